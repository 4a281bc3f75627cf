"""A server that was asked to speak an older revision says what that revision has, and nothing beyond it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from naming import unnamed
from pydantic import BaseModel
from samples import CLIENT, SERVER, WHO
from spec_schemas import closed_validator, request_definitions, validator
from talk import Json, Talk, accept, session_with

from trio_mcp import Context, Server
from trio_mcp.protocol.jsonrpc import METHOD_NOT_FOUND
from trio_mcp.session import RequestFacts, open_service
from trio_mcp.types import (
    AudioContent,
    Model,
    SamplingMessage,
    TextContent,
    ToolAnnotations,
)

OLDER = ["2024-11-05", "2025-03-26", "2025-06-18"]
LEGACY = [*OLDER, "2025-11-25"]
DECLARED: Json = {"elicitation": {}, "sampling": {}, "roots": {}}


def check(spec_dir: Path, version: str, definition: str, value: Json) -> None:
    """`value` is valid, and has no member that the revision does not name."""
    validator(spec_dir, version, definition).validate(value)
    if definition != "EmptyResult":
        closed_validator(spec_dir, version, definition).validate(value)


def check_sent(spec_dir: Path, version: str, message: Json) -> Json:
    """A request or a notification of the server; its params. Before 2025-11-25 its definition leaves out the envelope."""
    envelope = () if version >= "2025-11-25" else ("jsonrpc", "id")
    part = {name: value for name, value in message.items() if name not in envelope}
    check(spec_dir, version, request_definitions(spec_dir, version)[message["method"]], part)
    return message.get("params", {})


# what a client asks for


@asynccontextmanager
async def answering(results: Mapping[str, Model]) -> AsyncIterator[Talk]:
    """A server that answers with these results, whatever it is asked."""

    def route_of(result: Model) -> Any:
        def route(_facts: RequestFacts, _params: Model) -> Model:
            return result

        return route

    routes = {method: route_of(result) for method, result in results.items()}
    async with open_service(routes, WHO, SERVER, "instructions") as service:
        yield Talk(service)


@pytest.mark.parametrize("version", LEGACY)
async def test_a_server_says_of_itself_what_the_revision_has(spec_dir: Path, version: str) -> None:
    async with answering({}) as talk:
        said = await talk.initialize(version, CLIENT.wire())
        check(spec_dir, version, "InitializeResult", said)
        assert said["protocolVersion"] == version
        assert ("title" in said["serverInfo"]) == (version >= "2025-06-18")
        assert ("icons" in said["serverInfo"]) == (version >= "2025-11-25")
        assert ("completions" in said["capabilities"]) == (version >= "2025-03-26")
        assert "tools" in said["capabilities"]


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize(
    ("method", "params"), [("ping", {}), ("logging/setLevel", {"level": "debug"})], ids=["ping", "setLevel"]
)
async def test_what_the_session_answers_itself_is_an_empty_object(version: str, method: str, params: Json) -> None:
    async with answering({}) as talk:
        await talk.initialize(version)
        assert await talk.result(talk.request(method, params)) == {}


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen", "elicitation/create", "roots/list"])
async def test_a_request_that_a_client_cannot_send_in_the_revision_is_not_found(version: str, method: str) -> None:
    async with answering({}) as talk:
        await talk.initialize(version)
        assert (await talk.error(talk.request(method)))["code"] == METHOD_NOT_FOUND


# what tools return


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
async def sample(ctx: Context) -> str:
    audio = AudioContent(data="aGk=", mime_type="audio/wav")
    two = SamplingMessage(role="user", content=[TextContent(text="listen"), audio])
    return (await ctx.sample(messages=[two], max_tokens=9)).text


@toolbox.tool
async def roots(ctx: Context) -> str:
    return " ".join([root.uri for root in await ctx.roots()])


@toolbox.tool
async def tell(ctx: Context) -> str:
    await ctx.progress(1, 2, "half")
    await ctx.log("error", {"a": 1}, logger="l")
    return "told"


@asynccontextmanager
async def speaking(version: str) -> AsyncIterator[Talk]:
    async with session_with(toolbox, version, DECLARED) as talk:
        yield talk


@pytest.mark.parametrize("version", LEGACY)
async def test_tools_are_listed_as_the_revision_describes_them(spec_dir: Path, version: str) -> None:
    async with speaking(version) as talk:
        listed = await talk.result(talk.request("tools/list"))
    check(spec_dir, version, "ListToolsResult", listed)
    place = listed["tools"][0]
    assert ("annotations" in place) == (version >= "2025-03-26")
    assert all((name in place) == (version >= "2025-06-18") for name in ("title", "outputSchema", "_meta"))


# what tools ask and tell


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_a_question_has_a_mode_only_where_there_is_more_than_one(spec_dir: Path, version: str) -> None:
    async with speaking(version) as talk:
        call = talk.call("ask")
        question = await talk.question()
        params = check_sent(spec_dir, version, question)
        assert params.get("mode") == (None if version == "2025-06-18" else "form")
        talk.answer(question, accept(value="a"))
        assert await talk.text(call) == "a"


async def test_a_choice_of_several_fails_the_call_where_the_revision_cannot_ask_for_it() -> None:
    async with speaking("2025-06-18") as talk:
        assert unnamed(await talk.failure(talk.call("ask", {"several": True})), "2025-06-18", "choice") == []


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26"])
async def test_a_question_to_the_user_fails_the_call_where_the_revision_has_none(version: str) -> None:
    async with speaking(version) as talk:
        assert "elicitation" in await talk.failure(talk.call("ask"))


@pytest.mark.parametrize("version", LEGACY)
async def test_the_clients_model_is_asked_in_the_blocks_of_the_revision(spec_dir: Path, version: str) -> None:
    async with speaking(version) as talk:
        call = talk.call("sample")
        question = await talk.question("sampling/createMessage")
        messages = check_sent(spec_dir, version, question)["messages"]
        blocks = [message["content"] for message in messages]
        if version >= "2025-11-25":
            (blocks,) = blocks
        audio = "audio" if version >= "2025-03-26" else "text"
        assert [block["type"] for block in blocks] == ["text", audio]
        talk.answer(question, {"role": "assistant", "content": {"type": "text", "text": "heard"}, "model": "m"})
        assert await talk.text(call) == "heard"


@pytest.mark.parametrize("version", LEGACY)
async def test_progress_and_logs_are_told_in_every_revision(spec_dir: Path, version: str) -> None:
    async with speaking(version) as talk:
        call = talk.call("tell", meta={"progressToken": "t"})
        progress, log = await talk.receive(), await talk.receive()
        told = check_sent(spec_dir, version, progress)
        assert told.get("message") == ("half" if version >= "2025-03-26" else None)
        assert check_sent(spec_dir, version, log) == {"level": "error", "data": {"a": 1}, "logger": "l"}
        assert await talk.text(call) == "told"
