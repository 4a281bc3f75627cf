"""The proxy between hosts and servers of other projects: a conversation that neither of them knows to be relayed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from official import QUIET, User, accepting, client_of, only_text
from processes import HERE, NEWEST, command_of, reached, said_by
from serving import IMPORTS
from wire_terms import MODERN, NEWEST_LEGACY

from trio_mcp import Client, accept
from trio_mcp.types import ElicitRequestFormParams, ElicitResult

LIMIT = 60.0
RELAY = [sys.executable, str(HERE / "relay_app.py")]
POEM = "So be it."

pytestmark = QUIET

every_way = pytest.mark.parametrize(("revision", "transport"), NEWEST)
every_way_twice = pytest.mark.parametrize("behind", ["stdio", "http"])


@contextmanager
def relayed(server: list[str], transport: str, behind: str = "stdio") -> Iterator[str | list[str]]:
    """A proxy in front of a server, which is a command for it, or a URL."""
    with reached(server, behind) as target:
        words = [target] if isinstance(target, str) else target
        with reached([*RELAY, transport, *words], transport) as proxy:
            yield proxy


@every_way
@every_way_twice
async def test_a_typescript_host_without_a_model_uses_an_official_server_that_samples(
    node_folder: Path, revision: str, transport: str, behind: str
) -> None:
    era, script = "auto" if revision == MODERN else "legacy", str(node_folder / "typescript_host.mjs")
    with relayed(command_of("official_server.py", behind), transport, behind) as target:
        seen = await said_by("node", script, target=target, era=era, tools=["recite", "book", "change"])
    assert (seen["version"], seen["server"]) == (revision, "official")
    assert {"recite", "book", "echo"} <= set(seen["tools"])
    assert seen["texts"] == {"recite": f"scripted: {POEM}", "book": "window 2 True", "change": "changed"}


@every_way
async def test_an_official_host_without_a_model_uses_a_typescript_server_that_samples(
    node_folder: Path, revision: str, transport: str
) -> None:
    command = ["node", str(node_folder / "typescript_server.mjs")]
    user = User(accepting(name="Ada"))
    with relayed(command, transport) as target, trio.fail_after(LIMIT):
        mode = "auto" if revision == MODERN else "legacy"
        async with client_of(target, mode, elicitation_callback=user.elicit) as client:
            assert client.protocol_version == revision
            tools = ("recite", "look", "sign", "echo")
            texts = {name: only_text(await client.call_tool(name)) for name in tools}
    [use] = json.loads(texts.pop("look"))
    assert (use["type"], use["name"], use["input"]) == ("tool_use", "look", {"at": "sky"})
    assert texts == {"recite": f"scripted: {POEM}", "sign": f"{POEM} Ada", "echo": "echoed"}


async def say_yes(form: ElicitRequestFormParams) -> ElicitResult:
    return accept(seat="aisle", bags=1) if "seat" in form.requested_schema.properties else accept(sure=True)


@every_way
@pytest.mark.parametrize("script", ["official_server.py", "peer_server.py"])
async def test_our_client_without_a_model_uses_servers_of_both_projects(
    revision: str, transport: str, script: str
) -> None:
    mode = "modern" if revision == MODERN else "legacy"
    tool = "recite" if script == "official_server.py" else "think"
    arguments = {} if tool == "recite" else {"about": "rain"}
    with relayed(command_of(script, "stdio"), transport) as target, trio.fail_after(LIMIT):
        options: dict[str, Any] = {"env": IMPORTS} if transport == "stdio" else {}
        async with Client.connect(target, mode=mode, on_elicit=say_yes, **options) as client:
            assert client.protocol_version == (MODERN if mode == "modern" else NEWEST_LEGACY)
            result = await client.call_tool(tool, arguments)
    assert result.text == f"scripted: {POEM}"
