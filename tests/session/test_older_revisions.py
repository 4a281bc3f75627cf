"""A server that was asked to speak an older revision says what that revision has, and nothing beyond it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from naming import unnamed
from pydantic import BaseModel
from spec_schemas import closed_validator, request_definitions, validator
from talk import Json, session_with, talk_to
from wire_terms import METHOD_NOT_FOUND

from trio_mcp import Context, Server
from trio_mcp.types import ToolAnnotations

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
DECLARED: Json = {"elicitation": {}, "sampling": {}, "roots": {}}


def check(spec_dir: Path, version: str, definition: str, value: Json) -> None:
    """`value` is valid, and has no member that the revision does not name."""
    validator(spec_dir, version, definition).validate(value)
    closed_validator(spec_dir, version, definition).validate(value)


def check_sent(spec_dir: Path, version: str, message: Json) -> Json:
    """A request or a notification of the server; its params. Before 2025-11-25 its definition leaves out the envelope."""
    envelope = () if version >= "2025-11-25" else ("jsonrpc", "id")
    part = {name: value for name, value in message.items() if name not in envelope}
    check(spec_dir, version, request_definitions(spec_dir, version)[message["method"]], part)
    return message.get("params", {})


toolbox = Server("older", version="1", title="Older", instructions="Call.")


class Place(BaseModel):
    name: str


@toolbox.tool(title="A place", annotations=ToolAnnotations(read_only_hint=True), meta={"example.org/a": 1})
async def place() -> Place:
    """Somewhere."""
    return Place(name="Lisbon")


@toolbox.tool
async def ask(ctx: Context, several: bool = False) -> str:
    answer = await ctx.elicit("Which?", list[Literal["a", "b"]] if several else Literal["a", "b"])
    return str(answer.content) if answer.action == "accept" else answer.action


@toolbox.tool
async def tell(ctx: Context) -> str:
    await ctx.progress(1, 2, "half")
    await ctx.log("error", {"a": 1}, logger="l")
    return "reported"


@pytest.mark.parametrize("version", LEGACY)
async def test_all_that_a_session_sends_is_of_the_revision_that_was_agreed(spec_dir: Path, version: str) -> None:
    async with talk_to(toolbox) as talk:
        opened = await talk.initialize(version, DECLARED)
        check(spec_dir, version, "InitializeResult", opened)
        assert opened["protocolVersion"] == version
        listed = await talk.result(talk.request("tools/list"))
        check(spec_dir, version, "ListToolsResult", listed)
        assert ("annotations" in listed["tools"][0]) == (version >= "2025-03-26")
        call = talk.call("tell", meta={"progressToken": "t"})
        progress, log = await talk.receive(), await talk.receive()
        reported = check_sent(spec_dir, version, progress)
        assert reported.get("message") == ("half" if version >= "2025-03-26" else None)
        assert check_sent(spec_dir, version, log) == {"level": "error", "data": {"a": 1}, "logger": "l"}
        assert await talk.text(call) == "reported"


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen", "elicitation/create", "roots/list"])
async def test_a_request_that_a_client_cannot_send_in_the_revision_is_not_found(version: str, method: str) -> None:
    async with session_with(toolbox, version) as talk:
        assert (await talk.error(talk.request(method)))["code"] == METHOD_NOT_FOUND


async def test_a_choice_of_several_fails_the_call_where_the_revision_cannot_ask_for_it() -> None:
    async with session_with(toolbox, "2025-06-18", DECLARED) as talk:
        assert unnamed(await talk.failure(talk.call("ask", {"several": True})), "2025-06-18", "choice") == []


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26"])
async def test_a_question_to_the_user_fails_the_call_where_the_revision_has_none(version: str) -> None:
    async with session_with(toolbox, version, DECLARED) as talk:
        assert "elicitation" in await talk.failure(talk.call("ask"))
