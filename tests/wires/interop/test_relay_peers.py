"""The proxy between hosts and servers of other projects: a conversation that neither of them knows to be relayed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from processes import HERE, MODERN, NEWEST, NEWEST_LEGACY, command_of, over_http
from serving import IMPORTS

from trio_mcp import Client, accept
from trio_mcp.types import ElicitRequestFormParams, ElicitResult

LIMIT = 60.0
RELAY = [sys.executable, str(HERE / "relay_app.py")]
POEM = "So be it."

pytestmark = [
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning"),
]

every_way = pytest.mark.parametrize(("revision", "transport"), NEWEST)
every_way_twice = pytest.mark.parametrize("behind", ["stdio", "http"])


def command_before(server: Sequence[str], transport: str = "stdio") -> list[str]:
    """Return the command of a proxy in front of a server."""
    return [*RELAY, transport, *server]


@contextmanager
def reached(server: Sequence[str], transport: str) -> Iterator[str | list[str]]:
    """A proxy in front of a server, which its host starts, or which listens."""
    if transport == "stdio":
        yield command_before(server)
    else:
        with over_http(command_before(server, "http")) as url:
            yield url


@contextmanager
def serving(script: str, behind: str) -> Iterator[list[str]]:
    """A server of this folder in the form that a proxy takes: a command, or a URL."""
    with ExitStack() as servers:
        command = command_of(script, behind)
        yield command if behind == "stdio" else [servers.enter_context(over_http(command))]


async def typescript_host(folder: Path, target: str | list[str], revision: str, tools: Sequence[str]) -> dict[str, Any]:
    era = "auto" if revision == MODERN else "legacy"
    said = {"target": target, "env": IMPORTS, "era": era, "tools": tools}
    command = ["node", str(folder / "typescript_host.mjs"), json.dumps(said)]
    with trio.fail_after(LIMIT):
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return dict(json.loads(done.stdout))


@every_way
@every_way_twice
async def test_a_typescript_host_without_a_model_uses_an_official_server_that_samples(
    node_folder: Path, revision: str, transport: str, behind: str
) -> None:
    with serving("official_server.py", behind) as server, reached(server, transport) as target:
        seen = await typescript_host(node_folder, target, revision, ["recite", "book", "change"])
    assert (seen["version"], seen["server"]) == (revision, "official")
    assert {"recite", "book", "echo"} <= set(seen["tools"])
    assert seen["texts"] == {"recite": f"scripted: {POEM}", "book": "window 2 True", "change": "changed"}


@every_way
async def test_an_official_host_without_a_model_uses_a_typescript_server_that_samples(
    node_folder: Path, revision: str, transport: str
) -> None:
    mcp = pytest.importorskip("mcp", reason="the official SDK is not installed")
    wire = pytest.importorskip("mcp_types")

    async def named(_context: object, _params: object) -> object:
        return wire.ElicitResult(action="accept", content={"name": "Ada"})

    with reached(["node", str(node_folder / "typescript_server.mjs")], transport) as target, trio.fail_after(LIMIT):
        where = target
        if isinstance(target, list):
            where = mcp.StdioServerParameters(command=target[0], args=target[1:], env=IMPORTS)
        mode = "auto" if revision == MODERN else "legacy"
        async with mcp.Client(where, mode=mode, elicitation_callback=named) as client:
            assert client.protocol_version == revision
            texts = {name: await text_of(client, name) for name in ("recite", "look", "sign", "echo")}
    [use] = json.loads(texts.pop("look"))
    assert (use["type"], use["name"], use["input"]) == ("tool_use", "look", {"at": "sky"})
    assert texts == {"recite": f"scripted: {POEM}", "sign": f"{POEM} Ada", "echo": "echoed"}


async def text_of(client: Any, name: str) -> str:
    [block] = (await client.call_tool(name)).content
    return str(block.text)


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
    with serving(script, "stdio") as server, reached(server, transport) as target, trio.fail_after(LIMIT):
        options: dict[str, Any] = {"env": IMPORTS} if transport == "stdio" else {}
        async with Client.connect(target, mode=mode, on_elicit=say_yes, **options) as client:
            assert client.protocol_version == (MODERN if mode == "modern" else NEWEST_LEGACY)
            result = await client.call_tool(tool, arguments)
    assert result.text == f"scripted: {POEM}"
