"""The pytest plugin: fixtures that run a test against your server in both eras. pytest-trio runs the tests.

@pytest.fixture
def mcp_server() -> Server:
    return my_server

async def test_addition(mcp_client: Client) -> None:        # runs twice: [legacy] and [modern]
    assert (await mcp_client.call_tool("add", {"a": 1, "b": 2})).text == "3"
"""

# pytest loads this module in every run of an environment in which the package is installed, also in those that test something
# else. So it imports nothing of `trio_mcp` until a fixture is used, and it is not in that package, which it would import.

from __future__ import annotations

import sys
import traceback
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest

if TYPE_CHECKING:
    from trio_mcp import Client, Server

ERAS = ("legacy", "modern")
RUNNERS = ("trio", "anyio")
"""The marks of a test that runs in Trio: pytest-trio's, and that of anyio's plugin, which may run another loop."""

NO_SERVER = (
    "the fixture mcp_client needs a fixture named mcp_server, which returns your Server: define it in conftest.py"
)
NO_TRIO = (
    "the fixture mcp_client needs a test that runs in Trio: install pytest-trio, make the test async, and mark it with "
    "@pytest.mark.trio or set trio_mode = true; a test that runs on asyncio opens a client itself: "
    "`async with Client.connect(server) as client:`"
)


NO_RUNNER = (
    "tests of trio_mcp run on Trio: install pytest-trio, and set trio_mode = true below [tool.pytest.ini_options]; or on "
    "asyncio, with pytest-asyncio or @pytest.mark.anyio, as those of an application in FastAPI do"
)
NO_ATTRIBUTE = "result.data is JSON: write [{!r}], or call_tool(..., returns=Model) for an object"
NO_PLUGIN = "trio_mode is an option of pytest-trio, which is not loaded: install pytest-trio"
REGISTERED = pytest.StashKey[bool]()
"""Whether this plugin has registered `trio_mode`, since pytest-trio has not."""


def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser) -> None:
    """Register `trio_mode` if pytest-trio is not loaded: pytest would end in an internal error, or say nothing of use."""
    # All plugins have registered their options by now.
    try:
        early_config.getini("trio_mode")
    except (KeyError, ValueError):
        parser.addini("trio_mode", NO_PLUGIN, type="bool", default=False)
        early_config.stash[REGISTERED] = True


def pytest_configure(config: pytest.Config) -> None:
    """Raise `UsageError` if `trio_mode` is set and pytest-trio, which runs tests so, is not loaded."""
    if REGISTERED in config.stash and config.getini("trio_mode"):
        raise pytest.UsageError(NO_PLUGIN)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Add to the failure of a test what to do, if it does not run in Trio, or if it calls asyncio there."""
    # A test of another project has not imported it.
    if call.excinfo is None or "trio_mcp" not in sys.modules:
        return
    error = call.excinfo.value
    if isinstance(error, pytest.fail.Exception):
        if error.msg is not None and error.msg.startswith("async def functions are not natively supported"):
            error.msg += f"\n{NO_RUNNER}"
    elif hint := attribute_hint(error):
        error.add_note(hint)
    elif item.get_closest_marker("trio") is not None:
        from trio_mcp.session.event_loop import asyncio_hint  # noqa: PLC0415  see the head of the module

        if hint := asyncio_hint(error, "test"):
            error.add_note(hint.removeprefix("; "))


def attribute_hint(error: BaseException) -> str:
    """Return what to write if code reads a member of `result.data` as an attribute, as with FastMCP; else an empty text."""
    # Not by a class for `.data`: other libraries take a real dict only.
    if not isinstance(error, AttributeError) or not isinstance(error.obj, dict) or error.name not in error.obj:
        return ""
    line = traceback.extract_tb(error.__traceback__)[-1].line or ""
    return NO_ATTRIBUTE.format(error.name) if ".data" in line else ""


@pytest.fixture(params=ERAS)
def mcp_era(request: pytest.FixtureRequest) -> Literal["legacy", "modern"]:
    """The era in which a test runs: "legacy", and then again "modern". For `MockClient(era=mcp_era)`."""
    return cast('Literal["legacy", "modern"]', request.param)


@pytest.fixture
def mcp_server() -> Server:
    """The server that `mcp_client` connects to; define a fixture of this name."""
    pytest.fail(NO_SERVER, pytrace=False)


@pytest.fixture
def mcp_client_options() -> Mapping[str, object]:
    """Keyword arguments of `Client.connect` for `mcp_client`, such as `{"on_elicit": ...}`; define it to give some."""
    return {}


@pytest.fixture
def _runs_in_trio(request: pytest.FixtureRequest) -> None:
    # Without a plugin for it, pytest would not run an async fixture, and hand the test a generator.
    marks = [name for name in RUNNERS if request.node.get_closest_marker(name)]
    if not marks or (marks == ["trio"] and REGISTERED in request.config.stash):
        pytest.fail(NO_TRIO, pytrace=False)


@pytest.fixture
async def mcp_client(
    _runs_in_trio: None, mcp_era: str, mcp_server: Server, mcp_client_options: Mapping[str, object]
) -> AsyncGenerator[Client]:
    """A client that is connected to `mcp_server` in memory, in the era of the test."""
    from trio_mcp import Client  # noqa: PLC0415  see the head of the module

    async with Client.connect(mcp_server, mode=mcp_era, **cast("dict[str, Any]", mcp_client_options)) as client:
        yield client
