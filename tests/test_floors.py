"""What a floor loads, seen in a fresh interpreter; import-linter sees the source, this sees what really happens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def loaded(*modules: str) -> set[str]:
    """The modules that are loaded after these were imported."""
    sources = [str(ROOT), str(ROOT / "transports")]
    imports = "\n".join(f"import {module}" for module in modules)
    script = f"import sys\nsys.path[:0] = {sources!r}\n{imports}\nprint(*sys.modules)"
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


def test_types_and_errors_load_no_other_floor() -> None:
    modules = loaded("trio_mcp.errors", *submodules("trio_mcp.types"))
    assert modules.isdisjoint({"trio", "trio_mcp.protocol", "trio_mcp.runtime", "trio_mcp.session"})


@pytest.mark.parametrize("unwanted", ["hypercorn", "httpx2", "jsonschema", "trio_websocket", "h11", "asyncio"])
def test_a_stdio_server_does_not_pay_for(unwanted: str, stdio_server: set[str]) -> None:
    assert unwanted not in stdio_server


@pytest.fixture(scope="module")
def stdio_server() -> set[str]:
    """What a stdio server has loaded when it can serve."""
    return loaded("trio_mcp", "trio_mcp.server", "trio_mcp_transports.stdio")
