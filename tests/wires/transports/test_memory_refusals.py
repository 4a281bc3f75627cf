"""What a full memory budget refuses over real sockets, to whom, and that all comes back when connections close (row 90)."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from naming import naming
from peer import modern_meta
from serving import served
from websocket_peer import TEXT, RawPeer, frame, raw
from wire_terms import headers_of

from trio_mcp import Server
from trio_mcp.session import MemoryBudget, ServiceOptions

MIB = 1024 * 1024
LIMIT = 30.0
BUSY = -32000
NAMES_BUDGET = naming("memory budget")


class Budgeted:
    """A served server, its budget, and what its tool `wait` has been doing."""

    def __init__(self, total: int) -> None:
        self.budget = MemoryBudget(total)
        self.server = Server("budgeted", version="1", options=ServiceOptions(memory=self.budget))
        self.url = ""
        self.waiting = trio.Event()
        self.ended = trio.Event()
        self.server.add_tool(self.wait)
        self.server.add_tool(self.echo)

    async def wait(self, text: str = "") -> None:
        assert isinstance(text, str)
        self.waiting.set()
        try:
            await trio.sleep_forever()
        finally:
            self.ended.set()

    async def echo(self, text: str) -> int:
        return len(text)

    @property
    def drawn(self) -> int:
        return self.budget.statistics().drawn


@asynccontextmanager
async def budgeted(total: int = 4 * MIB, **options: Any) -> AsyncIterator[Budgeted]:
    """Serve one; at the end of the block everything has to come back."""
    it = Budgeted(total)
    with trio.fail_after(LIMIT):
        async with served(it.server, **options) as it.url:
            start = it.drawn
            yield it
            while it.drawn != start:
                await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def connection(it: Budgeted) -> AsyncIterator[RawPeer]:
    """A connection on which nothing was said."""
    async with raw(it.url, connected=False) as peer:
        yield peer


def call(peer: RawPeer, tool: str, text: str = "", **headers: str) -> bytes:
    """Return a modern call as a POST."""
    params = {"name": tool, "arguments": {"text": text}, "_meta": modern_meta({})}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    return post(peer, {"content-length": str(len(body)), **headers_of("tools/call", params), **headers}) + body


def post(peer: RawPeer, headers: Mapping[str, str]) -> bytes:
    """Return the head of a POST."""
    named = {
        "host": peer.authority,
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        **headers,
    }
    lines = [f"{name}: {value}" for name, value in named.items()]
    return "\r\n".join([f"POST {peer.path} HTTP/1.1", *lines, "", ""]).encode()


async def assert_refused(peer: RawPeer, pattern: str = NAMES_BUDGET) -> None:
    """The next response is a refusal, which names the budget."""
    status, headers, body = await peer.client.response()
    error = json.loads(body).get("error", {})
    assert (status, error.get("code")) == (503, BUSY), body
    assert re.search(pattern, error["message"]), error
    assert headers["retry-after"] == "1"


async def assert_served(peer: RawPeer) -> None:
    """The next response has the result of a call."""
    status, _, body = await peer.client.response()
    assert status == 200, body
    assert "error" not in json.loads(body)


async def test_a_connection_that_has_no_room_is_refused_with_the_name_of_the_budget() -> None:
    async with budgeted() as it:
        with it.budget.open() as others:
            others.draw(it.budget.total)
            async with connection(it) as peer:
                status, _, body = await peer.client.response()
        assert status == 503
        assert re.search(NAMES_BUDGET, body.decode())
        assert it.budget.statistics().refused == 1
        async with connection(it) as peer:
            await peer.client.send(call(peer, "echo"))
            await assert_served(peer)


NO_ROOM: dict[str, Callable[[RawPeer], bytes]] = {
    "before it is read": lambda peer: post(peer, {"content-length": str(MIB)}),
    "in its middle, without a length": lambda peer: (
        post(peer, {"transfer-encoding": "chunked"}) + 4 * (b"%x\r\n%b\r\n" % (MIB // 4, b"a" * (MIB // 4)))
    ),
    "as a message that takes more memory": lambda peer: call(peer, "echo", "a" * (MIB // 2)).replace(
        b"aaa", "\u20ac".encode()
    ),
}


@pytest.mark.parametrize("sent", NO_ROOM.values(), ids=NO_ROOM)
async def test_a_body_that_has_no_room_is_refused(sent: Callable[[RawPeer], bytes]) -> None:
    async with budgeted() as it, connection(it) as peer:
        with it.budget.open() as others:
            others.draw(it.budget.total - MIB)
            await peer.client.send(sent(peer))
            await assert_refused(peer)


async def test_a_message_without_room_for_what_parsing_it_takes_is_refused() -> None:
    async with budgeted() as it, connection(it) as peer:
        with it.budget.open() as others:
            # There is room for five bytes for each of its text, but not for as many again.
            others.draw(2_600_000)
            text = "a" * 150_000 + "\U0001f600"
            await peer.client.send(call(peer, "echo", text))
            await assert_refused(peer)
            others.give_back(5 * len(text))
            async with connection(it) as another:
                await another.client.send(call(another, "echo", text))
                await assert_served(another)


async def test_a_websocket_message_that_has_no_room_in_the_middle_closes_the_connection() -> None:
    async with budgeted() as it, raw(it.url) as peer:
        with it.budget.open() as others:
            others.draw(it.budget.total - MIB // 2)
            await peer.client.send(frame(TEXT, b"a" * 60_000, first=0))
            for _ in range(8):
                await peer.client.send(frame(0, b"a" * 60_000, first=0))
            code, reason = await peer.closed()
        assert code == 1013
        assert re.search(NAMES_BUDGET, reason)


async def test_an_upgrade_that_has_no_room_is_refused_with_the_name_of_the_budget() -> None:
    async with budgeted() as it, connection(it) as peer:
        await peer.client.send(call(peer, "echo"))
        await assert_served(peer)
        with it.budget.open() as others:
            others.draw(it.budget.total)
            status, _, body = await peer.upgrade()
        error = json.loads(body)["error"]
        assert (status, error["code"]) == (503, BUSY)
        assert re.search(NAMES_BUDGET, error["message"])


async def test_bytes_before_an_answer_that_have_no_room_end_the_connection_and_its_call() -> None:
    async with budgeted() as it, connection(it) as peer:
        await peer.client.send(call(peer, "wait"))
        await it.waiting.wait()
        with it.budget.open() as others:
            others.draw(it.budget.total)
            await peer.client.send(call(peer, "echo"))
            assert await peer.client.rest() == b""
            await it.ended.wait()
            assert it.budget.statistics().refused == 1


async def test_over_half_a_large_connection_is_refused_and_a_small_one_is_served() -> None:
    async with budgeted() as it, connection(it) as large, connection(it) as small:
        with it.budget.open() as first, it.budget.open() as second:
            first.draw(MIB)
            second.draw(MIB)
            # There is room for it, but a quarter is the share of each of four connections.
            await large.client.send(post(large, {"content-length": str(MIB + MIB // 2)}))
            await assert_refused(large, naming("memory budget", "share", MIB))
            await small.client.send(call(small, "echo", "a" * (MIB // 4)))
            await assert_served(small)


async def test_until_half_a_connection_may_hold_more_than_its_share() -> None:
    async with budgeted(16 * MIB) as it, connection(it) as large, AsyncExitStack() as stack:
        for _ in range(14):
            stack.enter_context(it.budget.open()).draw(1)
        await large.client.send(call(large, "wait", "a" * (2 * MIB)))
        await it.waiting.wait()
        assert it.drawn > 2 * MIB


async def by_name(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-name")


async def test_over_half_a_principal_above_a_quarter_is_refused_and_another_is_served() -> None:
    async with budgeted(authenticate=by_name) as it, connection(it) as first, connection(it) as second:
        await first.client.send(call(first, "wait", "a" * (MIB // 4 * 3), **{"x-name": "ada"}))
        await it.waiting.wait()
        with it.budget.open() as others:
            others.draw(2 * MIB)
            text = "a" * (MIB // 3)
            await second.client.send(call(second, "echo", text, **{"x-name": "ada"}))
            await assert_refused(second, naming("memory budget", "quarter", MIB))
            async with connection(it) as third:
                await third.client.send(call(third, "echo", text, **{"x-name": "bob"}))
                await assert_served(third)


async def test_a_message_counts_once_when_its_call_begins() -> None:
    async with budgeted() as it, connection(it) as peer:
        with it.budget.open() as others:
            # Once as its body and once as what it is read into, until it has been read.
            others.draw(it.budget.total - MIB - MIB // 4)
            await peer.client.send(call(peer, "echo", "a" * (MIB // 5 * 2)))
            await assert_served(peer)
