"""The pytest plugin, in pytest runs of another project."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from naming import unnamed
from serving import ROOT

SERVER = """
import pytest
from trio_mcp import Context, Server

@pytest.fixture
def mcp_server():
    server = Server("shop")

    @server.tool
    async def buy(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", bool)
        return f"{answer.action} in {ctx.request.protocol_version}"

    return server
"""
OPTIONS = """
from trio_mcp import accept

@pytest.fixture
def mcp_client_options():
    return {"on_elicit": lambda asked: accept(value=True)}
"""
TEST = """
import pytest
{mark}
async def test_buying(mcp_client):
    assert (await mcp_client.call_tool("buy")).text == "accept in " + mcp_client.protocol_version
"""


def run_pytest(folder: Path, *options: str, trio_mode: bool = True, alone: bool = False, **files: str) -> str:
    """Run pytest on these files with the plugin, `alone` or with all others; return what it printed."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n" if alone else f"[pytest]\ntrio_mode = {trio_mode}\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", "-W", "error", *options]
    # Without the others, the plugin is named as its entry point names it.
    plugin = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]["trio_mcp"]
    command += ["-p", plugin] if alone else []
    env = {**os.environ, **({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} if alone else {})}
    # With it pytest prints the messages of errors whole, and so twice.
    env.pop("CI", None)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


@pytest.mark.parametrize("trio_mode", [True, False])
def test_a_test_with_the_client_runs_in_both_eras(tmp_path: Path, trio_mode: bool) -> None:
    test = TEST.format(mark="" if trio_mode else "@pytest.mark.trio")
    printed = run_pytest(tmp_path, trio_mode=trio_mode, conftest=SERVER + OPTIONS, test_shop=test)
    assert "test_buying[legacy] PASSED" in printed
    assert "test_buying[modern] PASSED" in printed
    assert "2 passed" in printed


def test_the_era_alone_serves_a_mock_client(tmp_path: Path) -> None:
    test = """
from trio_mcp.testing import MockClient

async def test_buying(mcp_era, mcp_server):
    client = MockClient(elicits=[True], era=mcp_era)
    assert (await client.call((mcp_server, "buy"))).text.startswith("accept")
"""
    assert "2 passed" in run_pytest(tmp_path, conftest=SERVER, test_shop=test)


def test_the_server_may_be_an_async_fixture(tmp_path: Path) -> None:
    conftest = (SERVER + OPTIONS).replace("def mcp_server", "async def mcp_server")
    assert "2 passed" in run_pytest(tmp_path, conftest=conftest, test_shop=TEST.format(mark=""))


def test_without_a_server_the_error_names_the_fixture(tmp_path: Path) -> None:
    printed = run_pytest(tmp_path, test_shop=TEST.format(mark=""))
    assert "2 errors" in printed
    assert import_module("trio_mcp_transports.pytest_plugin").NO_SERVER in printed


def test_a_test_that_does_not_run_in_trio_gets_an_error_that_says_how(tmp_path: Path) -> None:
    test = "def test_buying(mcp_client):\n    pass\n"
    printed = run_pytest(tmp_path, trio_mode=False, conftest=SERVER, test_shop=test)
    assert "2 errors" in printed
    assert "install pytest-trio" in printed


def test_the_plugin_imports_nothing_until_a_fixture_is_used(tmp_path: Path) -> None:
    test = """
import sys

def test_nothing_is_loaded():
    loaded = {name for name in sys.modules if name.partition(".")[0] in ("trio_mcp", "pytest_trio", "trio", "pydantic")}
    assert loaded == set()
    assert "trio_mcp_transports.pytest_plugin" in sys.modules

def test_something_is_loaded_after_it(mcp_era):
    assert mcp_era in ("legacy", "modern")
"""
    # Without other plugins, some of which load Trio.
    printed = run_pytest(tmp_path, alone=True, test_loaded=test)
    assert "3 passed" in printed, printed


ASYNC_TEST = """
import asyncio
import trio_mcp

async def test_sleeping():
    await asyncio.sleep(1)
"""


def test_an_async_test_without_a_runner_fails_with_what_to_install_and_to_set(tmp_path: Path) -> None:
    printed = run_pytest(tmp_path, "-p", "no:anyio", trio_mode=False, test_sleeping=ASYNC_TEST)
    assert "1 failed" in printed
    assert unnamed(printed, "pytest-trio", "trio_mode = true", "pytest-asyncio", "@pytest.mark.anyio") == []


def test_a_test_that_calls_asyncio_fails_with_what_to_write(tmp_path: Path) -> None:
    printed = run_pytest(tmp_path, test_sleeping=ASYNC_TEST)
    assert "1 failed" in printed
    assert unnamed(printed, "no running event loop", "trio.sleep", "docs/asyncio.md") == []


def test_trio_mode_without_pytest_trio_is_an_error_that_names_it(tmp_path: Path) -> None:
    printed = run_pytest(tmp_path, "-p", "no:trio", test_sleeping=ASYNC_TEST)
    assert unnamed(printed, "trio_mode", "install pytest-trio") == []
    assert "INTERNALERROR" not in printed


def test_another_project_gets_no_advice(tmp_path: Path) -> None:
    printed = run_pytest(
        tmp_path, "-p", "no:anyio", trio_mode=False, test_sleeping=ASYNC_TEST.replace("import trio_mcp", "")
    )
    assert "1 failed" in printed
    assert "trio_mcp run" not in printed


HANDLERS = """
import asyncio, signal
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from trio_mcp import Client, Server, SyncClient
from trio_mcp.testing import MockClient
from trio_mcp_transports.http import asgi_app

server = Server("shop", asyncio=True)


@server.tool
async def price() -> int:
    await asyncio.sleep(0)
    return 3


@pytest.fixture(autouse=True)
def handlers():
    before = [signal.getsignal(number) for number in signal.valid_signals()]
    yield
    assert [signal.getsignal(number) for number in signal.valid_signals()] == before


def test_a_client_in_a_program():
    async def main():
        async with Client.connect(server) as client:
            return (await client.call_tool("price")).data

    assert asyncio.run(main()) == 3


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_mock_client_in_a_test_of_anyio():
    assert (await MockClient().call(price)).data == 3


def test_a_sync_client():
    with SyncClient.connect(server) as client:
        assert client.call_tool("price").data == 3


def test_a_mounted_server():
    app = FastAPI()
    app.mount("/tools", asgi_app(server))
    with TestClient(app, base_url="http://localhost") as http:
        assert http.post("/tools/mcp", json={}).status_code == 400
"""


def test_tests_on_asyncio_find_the_handlers_of_signals_as_they_were(tmp_path: Path) -> None:
    assert "4 passed" in (printed := run_pytest(tmp_path, trio_mode=False, test_handlers=HANDLERS)), printed


def test_the_client_without_pytest_trio_is_an_error_that_names_it(tmp_path: Path) -> None:
    options = ["-p", "no:trio", "-W", "ignore::pytest.PytestUnknownMarkWarning"]
    printed = run_pytest(
        tmp_path, *options, alone=True, conftest=SERVER, test_shop=TEST.format(mark="@pytest.mark.trio")
    )
    assert "the fixture mcp_client needs a test that runs in Trio: install pytest-trio" in printed
    assert "2 errors" in printed
    assert "AssertionError" not in printed


def test_a_member_of_the_data_of_a_result_that_is_read_as_an_attribute_names_what_to_write(tmp_path: Path) -> None:
    test = """
import trio_mcp
from trio_mcp.types import CallToolResult, TextContent

def test_data():
    result = CallToolResult(content=[], structured_content={"n": 1, "m": 2})
    assert result.data.n == 1

def test_other():
    data = {"n": 1}
    assert data.n == 1
"""
    printed = run_pytest(tmp_path, test_data=test)
    assert printed.count("result.data is JSON: write ['n']") == 1
