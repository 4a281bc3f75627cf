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


def test_the_protocol_loads_no_trio_and_no_runtime() -> None:
    modules = loaded(*submodules("trio_mcp.protocol"))
    assert "trio_mcp.protocol.jsonrpc" in modules
    assert modules.isdisjoint({"trio", "trio_mcp.runtime", "trio_mcp.session"})


def test_the_runtime_loads_no_protocol_and_no_types() -> None:
    modules = loaded(*submodules("trio_mcp.runtime"))
    assert "trio" in modules
    assert modules.isdisjoint({"trio_mcp.protocol", "trio_mcp.types", "trio_mcp.session", "pydantic"})


def test_types_errors_and_formats_load_no_other_floor() -> None:
    modules = loaded("trio_mcp.errors", *submodules("trio_mcp.types"), *submodules("trio_mcp.model_formats"))
    assert "trio_mcp.model_formats.api_types" in modules
    assert modules.isdisjoint({"trio", "trio_mcp.protocol", "trio_mcp.runtime", "trio_mcp.session"})
    assert modules.isdisjoint({"anthropic", "openai"})


def test_the_files_of_hosts_are_read_without_trio_or_a_client() -> None:
    modules = loaded("trio_mcp.mcp_json")
    assert modules.isdisjoint({"trio", "pydantic", "trio_mcp.types", "trio_mcp.protocol", "trio_mcp.client"})


def test_a_client_of_one_server_loads_no_server_no_group_and_no_agent() -> None:
    modules = loaded("trio_mcp", then="trio_mcp.Client")
    assert "trio_mcp.client.client" in modules
    unwanted = {"trio_mcp.server", "trio_mcp.compose", "trio_mcp.relay", "trio_mcp.model_formats", "trio_mcp.mcp_json"}
    assert modules.isdisjoint(unwanted)


def test_a_server_loads_no_client_no_group_and_no_proxy() -> None:
    modules = loaded("trio_mcp", then="trio_mcp.Server('s').mount('t', trio_mcp.Server('t'))")
    assert "trio_mcp.server.mounts" in modules
    assert modules.isdisjoint({"trio_mcp.client", "trio_mcp.compose", "trio_mcp.relay"})


def test_a_group_and_an_agent_load_no_server_and_no_proxy() -> None:
    modules = loaded("trio_mcp", then="trio_mcp.ClientGroup({}), trio_mcp.run_agent")
    assert "trio_mcp.compose.agent.agent" in modules
    assert modules.isdisjoint({"trio_mcp.server", "trio_mcp.relay"})


ON_TRIO = """
import trio
from trio_mcp import Client, ClientGroup, Server

async def main():
    async with Client.connect(Server("s")) as client, ClientGroup({"a": Server("a")}) as group:
        await client.ping()
        await group.list_tools()

trio.run(main)
"""


def test_a_program_of_trio_alone_loads_neither_asyncio_nor_the_bridge_to_it() -> None:
    modules = loaded("trio_mcp", then=ON_TRIO)
    assert "trio_mcp.session.event_loop" in modules
    assert modules.isdisjoint({"asyncio", "trio_mcp.bridge"})


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


def test_the_package_alone_loads_neither_logging_nor_cryptography() -> None:
    # Every program that names an exception of ours loads them, before it knows what else it needs.
    assert loaded("trio_mcp").isdisjoint({"logging", "secrets", "dataclasses", "trio", "pydantic"})


def test_a_package_that_is_imported_by_its_name_loads_no_other_one() -> None:
    # Python asks `trio_mcp` for the name first, and the hints for names that it does not have come from all packages.
    modules = loaded("trio_mcp", then="from trio_mcp import auth")
    assert "trio_mcp.auth" in modules
    assert modules.isdisjoint({"trio_mcp.openapi", "trio_mcp.client", "trio_mcp.testing", "trio_mcp.server"})


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

NOT_NEEDED = {
    # by a package and what is below it
    "trio_mcp.bridge",
    "trio_mcp.client",
    "trio_mcp.cli",
    "trio_mcp.compose",
    "trio_mcp.model_formats",
    "trio_mcp.protocol.conversation",
    "trio_mcp.protocol.uri.expressions",
    "trio_mcp.protocol.uri.matching",
    "trio_mcp.relay",
    "trio_mcp.runtime.budget",
    "trio_mcp.server.elicit.exchanges",
    "trio_mcp.server.tools.builder",
    "trio_mcp.server.concurrency",
    "trio_mcp.server.elicit.elicitation",
    "trio_mcp.server.elicit.elicits",
    "trio_mcp.server.elicit.forms",
    "trio_mcp.server.tools.handoff",
    "trio_mcp.server.large_results",
    "trio_mcp.server.middleware",
    "trio_mcp.server.nested",
    "trio_mcp.server.data.prompts",
    "trio_mcp.server.data.resources",
    "trio_mcp.server.sampling.answers",
    "trio_mcp.server.sampling.loop",
    "trio_mcp.server.values.content",
    "trio_mcp.server.values.media",
    "trio_mcp.server.values.results",
    "trio_mcp.server.values.step_results",
    "trio_mcp.server.elicit.url",
    "trio_mcp.session.batch",
    "trio_mcp.session.calls.asks_rounds",
    "trio_mcp.session.calls.previous_run",
    "trio_mcp.session.calls.memory",
    "trio_mcp.session.calls.next_leg",
    "trio_mcp.session.client",
    "trio_mcp.session.kept_results",
    "trio_mcp.session.idempotency",
    "trio_mcp.session.keyed_calls",
    "trio_mcp.session.listen_requests",
    "trio_mcp.session.recovery.key_store",
    "trio_mcp.session.recovery.session_record",
    "trio_mcp.session.observing",
    "trio_mcp.session.tasks.requests",
    "trio_mcp.session.tasks.tasks",
    "trio_mcp.session.token_usage",
    "trio_mcp.stores.sealed",
    "trio_mcp.testing",
    "trio_mcp.types.completion",
    "trio_mcp.types.content",
    "trio_mcp.types.elicitation",
    "trio_mcp.types.discovery",
    "trio_mcp.types.notifications",
    "trio_mcp.types.prompts",
    "trio_mcp.types.resources",
    "trio_mcp.types.roots",
    "trio_mcp.types.rounds",
    "trio_mcp.types.sampling",
    "trio_mcp.types.subscriptions",
    "trio_mcp.types.tasks",
    "trio_mcp_transports.stdio.client",
    "cryptography",
}

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
