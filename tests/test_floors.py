"""What a floor loads, seen in a fresh interpreter; import-linter sees the source, this sees what really happens."""

from __future__ import annotations

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


def test_a_client_of_one_server_loads_no_group_and_no_agent() -> None:
    modules = loaded("trio_mcp", then="trio_mcp.Client")
    assert modules.isdisjoint(
        {"trio_mcp.client.group", "trio_mcp.client.agent", "trio_mcp.model_formats", "trio_mcp.mcp_json"}
    )


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
