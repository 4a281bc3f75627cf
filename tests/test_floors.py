"""What a floor loads, seen in a fresh interpreter; import-linter sees the source, this sees what really happens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def loaded(*modules: str, then: str = "") -> set[str]:
    """The modules that are loaded after these were imported, and a line of Python was run."""
    sources = [str(ROOT), str(ROOT / "transports")]
    imports = "\n".join(f"import {module}" for module in modules)
    script = f"import sys\nsys.path[:0] = {sources!r}\n{imports}\n{then}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def submodules(package: str) -> list[str]:
    folder = ROOT.joinpath(*package.split("."))
    files = [file.relative_to(ROOT).with_suffix("") for file in folder.rglob("*.py")]
    return [".".join(file.parts).removesuffix(".__init__") for file in files]


ON_TRIO = """
import trio
from trio_mcp import Client, ClientGroup, Server

async def main():
    async with Client.connect(Server("s")) as client, ClientGroup({"a": Server("a")}) as group:
        await client.ping()
        await group.list_tools()

trio.run(main)
"""


LOADS: dict[str, tuple[list[str], str, str, str]] = {
    "the protocol": (
        submodules("trio_mcp.protocol"),
        "",
        "trio_mcp.protocol.jsonrpc",
        "trio trio_mcp.runtime trio_mcp.session",
    ),
    "the runtime": (
        submodules("trio_mcp.runtime"),
        "",
        "trio",
        "trio_mcp.protocol trio_mcp.types trio_mcp.session pydantic",
    ),
    "types, errors and formats": (
        ["trio_mcp.errors", *submodules("trio_mcp.types"), *submodules("trio_mcp.model_formats")],
        "",
        "trio_mcp.model_formats.api_types",
        "trio trio_mcp.protocol trio_mcp.runtime trio_mcp.session anthropic openai",
    ),
    "the files of hosts": (
        ["trio_mcp.mcp_json"],
        "",
        "trio_mcp.mcp_json",
        "trio pydantic trio_mcp.types trio_mcp.protocol trio_mcp.client",
    ),
    "a client of one server": (
        ["trio_mcp"],
        "trio_mcp.Client",
        "trio_mcp.client.client",
        "trio_mcp.server trio_mcp.compose trio_mcp.relay trio_mcp.model_formats trio_mcp.mcp_json",
    ),
    "a server with a mount": (
        ["trio_mcp"],
        "trio_mcp.Server('s').mount('t', trio_mcp.Server('t'))",
        "trio_mcp.server.mounts",
        "trio_mcp.client trio_mcp.compose trio_mcp.relay",
    ),
    "a group and an agent": (
        ["trio_mcp"],
        "trio_mcp.ClientGroup({}), trio_mcp.run_agent",
        "trio_mcp.compose.agent.agent",
        "trio_mcp.server trio_mcp.relay",
    ),
    "a program of Trio alone": (["trio_mcp"], ON_TRIO, "trio_mcp.session.event_loop", "asyncio trio_mcp.bridge"),
    # Every program that names an exception of ours loads the package, before it knows what else it needs.
    "the package alone": (["trio_mcp"], "", "trio_mcp", "logging secrets dataclasses trio pydantic"),
    # Python asks `trio_mcp` for the name first, and the hints for names that it does not have come from all packages.
    "a package by its name": (
        ["trio_mcp"],
        "from trio_mcp import auth",
        "trio_mcp.auth",
        "trio_mcp.openapi trio_mcp.client trio_mcp.testing trio_mcp.server",
    ),
}
"""What is imported, a line of Python after it, a module that is loaded then, and those that are not."""


@pytest.mark.parametrize(("imports", "then", "there", "unwanted"), LOADS.values(), ids=LOADS)
def test_a_floor_loads_no_other_than_it_needs(imports: list[str], then: str, there: str, unwanted: str) -> None:
    modules = loaded(*imports, then=then)
    assert there in modules
    assert modules.isdisjoint(unwanted.split())


SERVERS = {"hypercorn", "wsproto", "h2", "priority", "trio_mcp.server"}
CLIENTS = {"httpx2", "httpcore2", "trio_websocket", "trio_mcp.client"}
HEAVY = SERVERS - {"trio_mcp.server"} | CLIENTS | {"jsonschema", "h11", "asyncio"}

ENDS: list[tuple[str, str, str, set[str]]] = [
    ("stdio", "serve", "trio_mcp.server", HEAVY),
    ("stdio", "connect", "trio_mcp.client", HEAVY - {"trio_mcp.client"} | {"trio_mcp.server"}),
    ("http", "serve", "trio_mcp.server", CLIENTS),
    ("http", "connect", "trio_mcp.client", SERVERS | {"trio_websocket"}),
    ("sse", "serve", "trio_mcp.server", CLIENTS),
    ("sse", "connect", "trio_mcp.client", SERVERS | {"trio_websocket"}),
    ("websocket", "serve", "trio_mcp.server", CLIENTS),
    ("websocket", "connect", "trio_mcp.client", SERVERS - {"wsproto"} | {"httpx2"}),
]
"""A transport, one of its ends, the package that uses this end, and modules that this end must not load."""


@pytest.mark.parametrize(("name", "end", "floor", "unwanted"), ENDS, ids=[f"{name}-{end}" for name, end, *_ in ENDS])
def test_one_end_of_a_transport_does_not_load_what_the_other_needs(
    name: str, end: str, floor: str, unwanted: set[str]
) -> None:
    modules = loaded("trio_mcp", floor, "trio_mcp.session", then=f"trio_mcp.session.find_transport({name!r}).{end}")
    assert f"trio_mcp_transports.{name}" in modules or end == "serve"
    assert modules.isdisjoint(unwanted)


def test_a_wrong_option_is_looked_up_at_the_asked_end_only() -> None:
    check = """
from trio_mcp.session import check_options
try:
    check_options("stdio", "connect", {"nonsense": 1})
except TypeError:
    pass"""
    modules = loaded("trio_mcp.session", then=check)
    assert "trio_mcp_transports.http.client.channel" in modules
    assert modules.isdisjoint(SERVERS - {"wsproto"})


TOOLS_ONLY = """
import sys
sys.path[:0] = {sources!r}
from trio_mcp import Context, Server
server = Server("small")

@server.tool
async def echo(text: str, ctx: Context) -> str:
    return text

server.run()
from trio_mcp.types.base import Model
def models(kind):
    return [model for child in kind.__subclasses__() for model in (child, *models(child))]
print(len(models(Model)), *sys.modules, file=sys.stderr)
"""

CONVERSATION = (
    {
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}, "sampling": {}, "roots": {}},
            "clientInfo": {"name": "test", "version": "1"},
        },
    },
    {"id": 2, "method": "tools/list"},
    {"id": 3, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "hello"}}},
)

NOT_NEEDED = {"cryptography"} | {
    f"{package}.{name}"
    for package, names in {
        "trio_mcp": "bridge client cli compose model_formats relay testing",
        "trio_mcp.protocol": "conversation",
        "trio_mcp.protocol.uri": "expressions matching",
        "trio_mcp.runtime": "budget",
        "trio_mcp.server.elicit": "exchanges elicitation elicits forms url",
        "trio_mcp.server.tools": "builder handoff",
        "trio_mcp.server": "concurrency large_results middleware nested",
        "trio_mcp.server.data": "prompts resources",
        "trio_mcp.server.sampling": "answers loop",
        "trio_mcp.server.values": "content media results step_results",
        "trio_mcp.session": "batch client kept_results idempotency keyed_calls listen_requests observing token_usage",
        "trio_mcp.session.calls": "asks_rounds previous_run memory next_leg",
        "trio_mcp.session.recovery": "key_store session_record",
        "trio_mcp.session.tasks": "requests tasks",
        "trio_mcp.stores": "sealed",
        "trio_mcp.types": (
            "completion content elicitation discovery notifications prompts resources roots rounds sampling "
            "subscriptions tasks"
        ),
        "trio_mcp_transports.stdio": "client",
    }.items()
    for name in names.split()
}
"""Packages and modules, with what is below them."""

MOST_MODULES = 145
MOST_MODELS = 40


def test_a_server_of_tools_alone_loads_no_other_feature_until_it_has_answered_a_call() -> None:
    # This holds the time to the first answer, without measuring it; docs/internals/performance.md has what each part costs.
    script = TOOLS_ONLY.format(sources=[str(ROOT), str(ROOT / "transports")])
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        for message in CONVERSATION:
            stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            stdin.flush()
            assert "result" in json.loads(stdout.readline())
        _, stderr = process.communicate(timeout=30)
    models, *modules = stderr.split()
    assert sorted(found for found in modules if is_one_of(found, NOT_NEEDED | HEAVY)) == []
    assert len([found for found in modules if is_one_of(found, {"trio_mcp", "trio_mcp_transports"})]) <= MOST_MODULES
    assert int(models) <= MOST_MODELS


def is_one_of(module: str, packages: set[str]) -> bool:
    """Whether a module is one of these packages, or in one."""
    parts = module.split(".")
    return any(".".join(parts[:length]) in packages for length in range(1, len(parts) + 1))
