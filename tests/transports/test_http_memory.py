"""What HTTP holds for its clients is drawn from the memory budget, refused where that is full, and given back at every end."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import trio
from asgi_peer import JSON_HEADERS, AsgiPeer, AsgiSocket, Reply, initialize, legacy_call, modern_call, served
from naming import naming
from peer import LIMITS, hello, message_of
from stage import Stage
from talking import Session
from trio.testing import wait_all_tasks_blocked

from trio_mcp import ServiceOptions
from trio_mcp.session import ANONYMOUS, Envelope, MemoryBudget
from trio_mcp_transports.asgi.adapter import AsgiBody
from trio_mcp_transports.asgi.requests import Request, read_body
from trio_mcp_transports.asgi.responses import Binary, MessageSocket
from trio_mcp_transports.http import HttpLimits, asgi_app
from trio_mcp_transports.websocket.endpoint import WebSocketChannel

MIB = 1024 * 1024
SESSION_SIZE = 8 * 1024
BUSY = -32000
GRACE = 5.0
NAMES_BUDGET = naming("memory budget")


class BudgetedStage(Stage):
    """A stage with a separate budget."""

    def __init__(self, total: int = 4 * MIB) -> None:
        self.budget = MemoryBudget(total)
        super().__init__(ServiceOptions(memory=self.budget, outcome_grace=0))

    @property
    def drawn(self) -> int:
        return self.budget.statistics().drawn

    @contextmanager
    def fill(self, *, but: int = 0) -> Iterator[None]:
        """Draw everything but so much, for the length of the block."""
        with self.budget.open() as account:
            account.draw(self.budget.total - self.drawn - but)
            yield


@pytest.fixture
def stage() -> BudgetedStage:
    return BudgetedStage()


@pytest.fixture
async def peer(stage: BudgetedStage) -> AsyncIterator[AsgiPeer]:
    limits = HttpLimits(disconnect_grace=GRACE, sessions=3)
    async with served(asgi_app(stage.server, sse_path="/sse", limits=limits)) as peer:
        yield peer


@asynccontextmanager
async def given_back(stage: BudgetedStage) -> AsyncIterator[None]:
    """At the end of the block as much is drawn as at its beginning, and meanwhile it was more."""
    before = stage.drawn
    yield
    await wait_all_tasks_blocked()
    assert stage.drawn == before


def assert_refused(reply: Reply) -> None:
    error = reply.last["error"]
    assert (reply.status, error["code"]) == (503, BUSY)
    assert re.search(NAMES_BUDGET, error["message"])


# sessions


async def test_a_session_draws_until_it_ends(stage: BudgetedStage, peer: AsgiPeer) -> None:
    async with given_back(stage):
        session = Session(peer, await peer.open_session())
        assert stage.drawn >= SESSION_SIZE
        assert (await session.delete()).status == 204


async def test_a_session_that_has_no_room_is_refused(stage: BudgetedStage, peer: AsgiPeer) -> None:
    async with given_back(stage):
        with stage.fill(but=SESSION_SIZE - 1):
            assert_refused(await peer.post(initialize({}), JSON_HEADERS))


async def test_an_unused_session_makes_room_for_another(stage: BudgetedStage, peer: AsgiPeer) -> None:
    first = await peer.open_session()
    # The rest of the budget is enough for its handshake but not for one more session.
    with stage.fill(but=SESSION_SIZE - 1):
        second = await peer.open_session()
    assert (await peer.post(legacy_call("echo", {"text": "hi"}), second)).status == 200
    assert (await peer.post(legacy_call("echo", {"text": "hi"}), first)).status == 404


async def test_a_session_in_use_makes_no_room(stage: BudgetedStage, peer: AsgiPeer) -> None:
    first = await peer.open_session()
    assert (await peer.post(legacy_call("echo", {"text": "hi"}), first)).status == 200
    with stage.fill(but=SESSION_SIZE - 1):
        assert_refused(await peer.post(initialize({}), JSON_HEADERS))
    assert (await peer.post(legacy_call("echo", {"text": "hi"}), first)).status == 200


async def test_a_handshake_that_is_rejected_draws_nothing(stage: BudgetedStage, peer: AsgiPeer) -> None:
    async with given_back(stage):
        wrong = {**initialize({}), "params": {"protocolVersion": 1}}
        assert "error" in (await peer.post(wrong, JSON_HEADERS)).json


# calls and their replies


async def test_a_request_that_has_no_room_is_refused(stage: BudgetedStage, peer: AsgiPeer) -> None:
    async with given_back(stage):
        with stage.fill(but=MIB // 4):
            assert_refused(await peer.post(*modern_call("echo", {"text": "a" * MIB})))
    assert stage.runs == 0


async def test_a_malformed_message_is_given_back(stage: BudgetedStage, peer: AsgiPeer) -> None:
    async with given_back(stage):
        assert (await peer.post(b"{" + b" " * 100_000, JSON_HEADERS)).status == 400


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_reply_that_has_no_room_becomes_an_error(stage: BudgetedStage, peer: AsgiPeer, legacy: bool) -> None:
    full = stage.budget.open()

    @stage.server.tool
    async def make() -> str:
        full.draw(stage.budget.total - stage.drawn - MIB // 4)
        return "x" * MIB

    session = await peer.open_session()
    async with given_back(stage):
        reply = await peer.post(*((legacy_call("make"), session) if legacy else modern_call("make")))
        full.close()
    assert_refused(reply)


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_call_whose_client_leaves_gives_everything_back(
    stage: BudgetedStage, peer: AsgiPeer, legacy: bool
) -> None:
    session = await peer.open_session()
    async with given_back(stage):
        before = stage.drawn
        reply = peer.start(*((legacy_call("wait"), session) if legacy else modern_call("wait")))
        await stage.started.wait()
        assert stage.drawn > before
        reply.gone.set()
        await stage.ended.wait()


# streams of sessions


async def test_a_standalone_stream_gives_back_what_it_drew(stage: BudgetedStage, peer: AsgiPeer) -> None:
    session = Session(peer, await peer.open_session())
    async with given_back(stage):
        for _ in range(3):
            reply = await session.get()
            await session.drop(reply)
        assert (await session.delete()).status == 204
        # As much as a session: what was drawn at the beginning of the block.
        session = Session(peer, await peer.open_session())


async def test_a_stream_that_was_replaced_gives_back_what_it_drew(stage: BudgetedStage, peer: AsgiPeer) -> None:
    session = Session(peer, await peer.open_session())
    reply = await session.get()
    await session.drop(reply)
    reply = await session.get()
    async with given_back(stage):
        await session.drop(reply)
        await session.get()


async def test_an_unread_stream_gives_everything_back_after_its_grace(stage: BudgetedStage, peer: AsgiPeer) -> None:
    session = Session(peer, await peer.open_session())
    async with given_back(stage):
        talk = stage.expect()
        reply = await session.call()
        await talk.say(1)
        await session.drop(reply)
        await talk.say(2, 3)
        await trio.sleep(GRACE + 1)
        await talk.over.wait()


async def test_what_is_logged_makes_room_for_what_is_new(stage: BudgetedStage, peer: AsgiPeer) -> None:
    session = Session(peer, await peer.open_session())
    talk = stage.expect()
    reply = await session.call()
    await talk.say(*range(1, 50))
    with stage.fill(but=-MIB):
        await talk.say(50)
        assert re.search(NAMES_BUDGET, (await reply.end()).last["error"]["message"])
    # There was no room for more events; those before were dropped.
    assert (await session.get(reply.ids[0])).status == 400


async def test_a_deleted_session_gives_everything_back(stage: BudgetedStage, peer: AsgiPeer) -> None:
    async with given_back(stage):
        session = Session(peer, await peer.open_session())
        await session.get()
        stage.expect()
        await session.call()
        assert (await session.delete()).status == 204


# HTTP+SSE


async def leave(peer: AsgiPeer, reply: Reply) -> None:
    reply.gone.set()


async def break_off(peer: AsgiPeer, reply: Reply) -> None:
    peer.nursery.cancel_scope.cancel()


async def drain(peer: AsgiPeer, reply: Reply) -> None:
    await peer.app.drain(0)


@pytest.mark.parametrize("end", [leave, break_off, drain])
async def test_an_sse_stream_gives_everything_back_at_its_end(
    stage: BudgetedStage, peer: AsgiPeer, end: Callable[[AsgiPeer, Reply], Awaitable[None]]
) -> None:
    async with given_back(stage), trio.open_nursery() as requests:
        peer = AsgiPeer(peer.app, requests)
        reply, where = await peer.open_stream()
        for body in ({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello("2024-11-05", {})}, b"{"):
            await peer.post(body, **where)
        await peer.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, **where)
        await peer.post(legacy_call("wait"), **where)
        await stage.started.wait()
        await end(peer, reply)


async def test_an_sse_stream_that_has_no_room_is_refused(stage: BudgetedStage, peer: AsgiPeer) -> None:
    async with given_back(stage):
        with stage.fill(but=SESSION_SIZE - 1):
            headers = {"host": "localhost:8000", "accept": "text/event-stream"}
            assert_refused(await peer.post(b"", headers, method="GET", path="/sse"))


# WebSocket


def open_socket(peer: AsgiPeer) -> AsgiSocket:
    socket = AsgiSocket(peer.app)
    peer.nursery.start_soon(socket.run)
    return socket


@pytest.mark.parametrize("end", ["leave", "break off", "drain", "binary"])
async def test_a_websocket_gives_everything_back_at_its_end(stage: BudgetedStage, peer: AsgiPeer, end: str) -> None:
    async with given_back(stage), trio.open_nursery() as requests:
        before = stage.drawn
        socket = open_socket(AsgiPeer(peer.app, requests))
        socket.put("{")
        await wait_all_tasks_blocked()
        assert [message["type"] for message in socket.sent] == ["websocket.accept", "websocket.send"]
        assert stage.drawn >= before + SESSION_SIZE
        match end:
            case "leave":
                socket.leave()
            case "break off":
                requests.cancel_scope.cancel()
            case "drain":
                await peer.app.drain(0)
            case "binary":
                socket.put(b"{}")


async def test_a_websocket_that_has_no_room_is_refused(stage: BudgetedStage, peer: AsgiPeer) -> None:
    async with given_back(stage):
        with stage.fill(but=SESSION_SIZE - 1):
            socket = open_socket(peer)
            await wait_all_tasks_blocked()
        assert [message["type"] for message in socket.sent] == ["websocket.close"]


async def test_a_body_that_comes_in_pieces_is_held_once() -> None:
    count, piece = 64, 64 * 1024
    left = iter(range(count))

    async def receive() -> Any:
        await trio.lowlevel.checkpoint()
        return {"type": "http.request", "body": bytes(piece), "more_body": next(left) < count - 1}

    with MemoryBudget(64 * MIB).open() as account:
        tracemalloc.start()
        try:
            body = await read_body(Request("POST", "/", {}, AsgiBody(receive)), count * piece, 60, account)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert body == bytes(count * piece)
    assert peak < 1.5 * count * piece


async def test_a_websocket_keeps_no_message_that_it_has_made_into_text() -> None:
    results = [Envelope(message_of({"id": number, "result": {"x": "x" * 1000}})) for number in range(3)]
    kept: list[int] = []

    class Socket(MessageSocket):
        def open(self, max_message: int, on_lost: Callable[[], None]) -> None: ...

        async def receive_many(self) -> Iterable[bytes | Binary]:
            return ()

        def send_nowait(self, message: bytes) -> bool:
            return False

        async def send_many(self, messages: Iterable[bytes]) -> None:
            for message in messages:
                assert b"xxx" in message
                kept.append(len(results))
                await trio.lowlevel.checkpoint()

        async def close(self, code: int, reason: str) -> None: ...

    await WebSocketChannel(Socket(), ANONYMOUS, LIMITS).send_many(results)
    assert kept == [2, 1, 0]
