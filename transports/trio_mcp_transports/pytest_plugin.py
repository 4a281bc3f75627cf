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
    "@pytest.mark.trio or set trio_mode = true"
)


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
    if not any(request.node.get_closest_marker(name) for name in RUNNERS):
        pytest.fail(NO_TRIO, pytrace=False)


@pytest.fixture
async def mcp_client(
    _runs_in_trio: None, mcp_era: str, mcp_server: Server, mcp_client_options: Mapping[str, object]
) -> AsyncGenerator[Client]:
    """A client that is connected to `mcp_server` in memory, in the era of the test."""
    from trio_mcp import Client  # noqa: PLC0415  see the head of the module

    async with Client.connect(mcp_server, mode=mcp_era, **cast("dict[str, Any]", mcp_client_options)) as client:
        yield client
