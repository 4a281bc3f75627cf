"""What a tool does to Trio, to its own errors, or to the process stays its own (reliability rows 67, 68, 72, 89; class A)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing
from connected import connected

from trio_mcp import McpError, Server
from trio_mcp.errors import CapabilityError, RemoteProtocolError

server = Server("boundary", version="1")


@server.tool
async def stray() -> str:
    """Raise a cancellation that was kept from another scope, as a cache of outcomes may."""
    kept: BaseException | None = None
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as error:
            kept = error
    assert kept is not None
    raise kept


async def numbers() -> AsyncIterator[int]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        yield 1


@server.tool
async def open_generator() -> str:
    """Leave a nursery open inside a generator."""
    async for _ in numbers():
        break
    return "left"


@server.tool
async def unsendable(kind: str) -> str:
    """Raise an error that has no text."""
    raise {
        "data": RemoteProtocolError("x", data=object()),  # type: ignore[arg-type]
        "text": RemoteProtocolError("\ud800"),
        "nan": RemoteProtocolError("x", data=math.nan),
        "needs": CapabilityError("x", {"a": object()}),  # type: ignore[dict-item]
    }[kind]


@server.tool
async def wait() -> str:
    """Be a bystander."""
    await trio.sleep(0.1)
    return "whole"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an open generator is said to be one
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("stray", {}),
        ("open_generator", {}),
        *(("unsendable", {"kind": kind}) for kind in ("data", "text", "nan", "needs")),
    ],
)
async def test_a_bystander_and_the_next_call_are_served(mode: str, name: str, arguments: dict[str, str]) -> None:
    answers: list[str] = []
    async with connected(server, mode=mode) as client, trio.open_nursery() as nursery:

        async def bystander() -> None:
            answers.append((await client.call_tool("wait")).text)

        nursery.start_soon(bystander)
        await trio.testing.wait_all_tasks_blocked()
        with contextlib.suppress(McpError):
            await client.call_tool(name, arguments)
        answers.append((await client.call_tool("wait")).text)
    assert answers == ["whole", "whole"]
