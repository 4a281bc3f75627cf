"""The session of a legacy host behind a proxy goes on when the server has lost it: what each side is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
import trio.testing
from ends import LineEnd
from naming import unnamed
from peer import message_of
from relaying import (
    ALL_SECONDS,
    NOTE,
    Ids,
    Json,
    Line,
    Model,
    ask,
    call,
    cancel,
    initialize,
    initialized,
    result,
)
from trio.testing import MockClock, wait_all_tasks_blocked
from wire_terms import UNSUPPORTED_VERSION

from trio_mcp.client.dialects import HANDSHAKE_TIMEOUT
from trio_mcp.client.reconnecting import reconnecting
from trio_mcp.client.session_reconnecting import LEAST_PAUSE
from trio_mcp.client.unread_requests import MAX_WAITING
from trio_mcp.relay import Backfill, RelayServer, session_memory
from trio_mcp.session import Envelope

LISTING: Json = {"jsonrpc": "2.0", "id": "list", "method": "tools/list"}
READY: Json = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@dataclass
class Lasting:
    """A host, and the connections to its server, one after the other."""

    host: Line
    relay: RelayServer
    sends: trio.MemorySendChannel[Line]
    servers: trio.MemoryReceiveChannel[Line]
    is_away: bool = False
    over: trio.Event = field(default_factory=trio.Event)

    async def server(self) -> Line:
        """The next connection of the proxy."""
        return await self.servers.receive()

    async def open(self, capabilities: Json | None = None) -> Line:
        """Let the host open a session."""
        server = await self.server()
        await self.host.send(initialize(capabilities or {}))
        await accept_handshake(server)
        assert (await self.host.receive())["id"] == "open"
        await self.host.send(READY)
        assert (await server.receive())["method"] == READY["method"]
        return server

    async def reopened(self) -> Line:
        """The next connection, when the proxy has opened the session in it."""
        server = await self.server()
        await reopen(server)
        return server


async def reopen(server: Line) -> None:
    """Take the session that the proxy opens."""
    await accept_handshake(server)
    assert (await server.receive())["method"] == READY["method"]


async def accept_handshake(server: Line, **changed: Any) -> Json:
    asked = await server.receive()
    assert asked["method"] == "initialize"
    await server.send({"jsonrpc": "2.0", "id": asked["id"], "result": {**initialized(), **OFFERS, **changed}})
    return dict(asked)


OFFERS: Json = {"capabilities": {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}}


@asynccontextmanager
async def lasting(**backfill: Any) -> AsyncIterator[Lasting]:
    host, host_end = trio.testing.memory_stream_pair()
    sends, servers = trio.open_memory_channel[Line](100)
    ids = Ids()

    @asynccontextmanager
    async def connect() -> AsyncIterator[LineEnd]:
        if found.is_away:
            raise OSError("nobody is at home")
        near, far = trio.testing.memory_stream_pair()
        server = Line(near)
        # The ids of questions are what some of the tests are about.
        server.received = ids
        sends.send_nowait(server)
        async with LineEnd(far) as channel:
            yield channel

    relay = RelayServer(lambda: reconnecting(connect), Backfill(Model(), **backfill), name="far", keeps_session=True)
    found = Lasting(Line(host), relay, sends, servers)
    found.host.sent = ids

    async def serve() -> None:
        await relay.serve_channel(LineEnd(host_end))
        found.over.set()

    with trio.fail_after(ALL_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            yield found
            await host.aclose()
            await found.over.wait()


async def test_the_session_is_opened_again_as_the_host_has_opened_it() -> None:
    async with lasting() as proxy:
        first = await proxy.open({"roots": {}})
        await first.leave()
        second = await proxy.server()
        asked = await accept_handshake(second)
        assert asked["params"]["capabilities"]["roots"] == {}
        assert asked["params"]["clientInfo"]["name"] == "host"
        assert (await second.receive())["method"] == READY["method"]
        assert (await proxy.host.receive())["method"] == "notifications/tools/list_changed"
        await proxy.host.send(call(1))
        assert (await second.receive())["id"] == 1
        await second.send(result(1))
        assert (await proxy.host.receive())["id"] == 1
        assert proxy.relay.failure is None


async def test_the_log_level_and_the_subscriptions_are_set_again_and_their_answers_do_not_reach_the_host() -> None:
    async with lasting() as proxy:
        first = await proxy.open()
        for number, (method, params) in enumerate(
            [
                ("logging/setLevel", {"level": "debug"}),
                ("resources/subscribe", {"uri": "note://one"}),
                ("resources/subscribe", {"uri": "note://two"}),
                ("resources/unsubscribe", {"uri": "note://one"}),
            ]
        ):
            await proxy.host.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            await first.receive()
            await first.send({"jsonrpc": "2.0", "id": number, "result": {}})
            assert (await proxy.host.receive())["id"] == number
        await first.leave()
        second = await proxy.reopened()
        again = [await second.receive() for _ in range(2)]
        assert [(each["method"], each["params"]) for each in again] == [
            ("logging/setLevel", {"level": "debug"}),
            ("resources/subscribe", {"uri": "note://two"}),
        ]
        for each in again:
            await second.send({"jsonrpc": "2.0", "id": each["id"], "result": {}})
        news = [await proxy.host.receive() for _ in range(2)]
        assert [each["method"].split("/", 1)[1] for each in news] == ["tools/list_changed", "resources/updated"]
        await proxy.host.hears_nothing_before(second, {"jsonrpc": "2.0", "method": "notifications/x"})


async def test_what_the_server_rejected_is_not_set_again_and_what_it_did_not_answer_is_set_once() -> None:
    async with lasting() as proxy:
        first = await proxy.open()
        for level in ("debug", "loud"):
            params = {"level": level}
            await proxy.host.send({"jsonrpc": "2.0", "id": level, "method": "logging/setLevel", "params": params})
            await first.receive()
        await first.send({"jsonrpc": "2.0", "id": "debug", "result": {}})
        await first.send({"jsonrpc": "2.0", "id": "loud", "error": {"code": -32602, "message": "no such level"}})
        assert [(await proxy.host.receive())["id"] for _ in range(2)] == ["debug", "loud"]
        uri = {"uri": "note://one"}
        await proxy.host.send({"jsonrpc": "2.0", "id": "one", "method": "resources/subscribe", "params": uri})
        await first.receive()
        await first.leave()
        second = await proxy.reopened()
        assert (await second.receive())["params"] == {"level": "debug"}
        assert (await second.receive())["id"] == "one"
        await proxy.host.send(call(1))
        assert (await second.receive())["id"] == 1


async def test_so_many_subscriptions_are_made_again_and_none_ends_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_memory, "MAX_URIS", 1)
    async with lasting() as proxy:
        first = await proxy.open()
        for uri in ("note://one", "note://two"):
            await proxy.host.send(
                {"jsonrpc": "2.0", "id": uri, "method": "resources/subscribe", "params": {"uri": uri}}
            )
            await first.receive()
            await first.send({"jsonrpc": "2.0", "id": uri, "result": {}})
            await proxy.host.receive()
        await first.leave()
        second = await proxy.reopened()
        subscribed = await second.receive()
        assert subscribed["params"] == {"uri": "note://one"}
        await proxy.host.send(call(1))
        assert (await second.receive())["id"] == 1
        await second.send({"jsonrpc": "2.0", "id": subscribed["id"], "error": {"code": -32602, "message": "no"}})
        await second.send(result(1))
        assert [(await proxy.host.receive()).get("id") for _ in range(3)] == [None, None, 1]


async def test_what_may_have_run_is_an_error_and_what_is_repeatable_is_sent_again() -> None:
    async with lasting() as proxy:
        first = await proxy.open()
        await proxy.host.send({**LISTING, "id": "tools"})
        await first.receive()
        look = {"name": "look", "inputSchema": {}, "annotations": {"idempotentHint": True}}
        pay = {"name": "pay", "annotations": {"readOnlyHint": True}}
        await first.send({"jsonrpc": "2.0", "id": "tools", "result": {"tools": [look, pay, {"name": "pay"}]}})
        assert (await proxy.host.receive())["id"] == "tools"
        for sent in (call(1, "look"), call(2, "pay"), LISTING, {"jsonrpc": "2.0", "id": 3, "method": "x/unknown"}):
            await proxy.host.send(sent)
            await first.receive()
        await first.leave()
        failed = sorted([await proxy.host.receive() for _ in range(2)], key=lambda each: str(each["id"]))
        assert [(each["id"], each["error"]["code"]) for each in failed] == [(2, -32603), (3, -32603)]
        assert not unnamed(failed[0]["error"]["message"], "far", "may or may not")
        second = await proxy.reopened()
        assert [(await second.receive())["id"] for _ in range(2)] == [1, "list"]
        await second.send(result(1))
        assert (await proxy.host.receive())["method"] == "notifications/tools/list_changed"
        assert (await proxy.host.receive())["id"] == 1
        # Once: a server that a request ends would be ended again and again.
        await second.leave()
        assert (await proxy.host.receive())["id"] == "list"


async def test_a_request_that_the_server_ignored_because_it_had_lost_the_session_is_sent_again_whatever_it_is() -> None:
    async with lasting() as proxy:
        server = await proxy.open()
        await proxy.host.send(call("pay", "pay"))
        await server.receive()
        await server.send(b"LOST")
        assert server.received is not None
        await server.send(f"LOST {server.received.at_proxy('pay')}".encode())
        # It would belong to the lost session.
        await proxy.host.send(NOTE)
        await wait_all_tasks_blocked()
        await reopen(server)
        assert (await server.receive())["id"] == "pay"
        await server.send(result("pay"))
        assert (await proxy.host.receive())["method"] == "notifications/tools/list_changed"
        assert (await proxy.host.receive())["id"] == "pay"


async def test_the_first_request_that_the_server_ignored_has_the_session_opened_again() -> None:
    async with lasting() as proxy:
        server = await proxy.open()
        await proxy.host.send(call("pay", "pay"))
        await server.receive()
        assert server.received is not None
        await server.send(f"LOST {server.received.at_proxy('pay')}".encode())
        await reopen(server)
        assert (await server.receive())["id"] == "pay"
        # A second time it is an error, and the session is opened again without another request.
        await server.send(f"LOST {server.received.at_proxy('pay')}".encode())
        assert (await proxy.host.receive())["method"] == "notifications/tools/list_changed"
        assert unnamed(await proxy.host.fails("pay"), "may or may not")
        await accept_handshake(server)


async def test_a_request_that_waited_for_a_session_which_was_lost_as_well_is_sent_again() -> None:
    async with lasting() as proxy:
        server = await proxy.open()
        await server.send(b"LOST")
        await wait_all_tasks_blocked()
        await proxy.host.send(call("pay", "pay"))
        for _ in range(2):
            await reopen(server)
            assert (await server.receive())["id"] == "pay"
            assert server.received is not None
            await server.send(f"LOST {server.received.at_proxy('pay')}".encode())
        # Each session that was opened again is news for the host.
        assert [(await proxy.host.receive()).get("id") for _ in range(3)] == [None, None, "pay"]
        await accept_handshake(server)


@pytest.mark.parametrize("name", [[], {}, None])
async def test_a_call_whose_name_is_no_text_passes_as_any_other(name: Any) -> None:
    async with lasting() as proxy:
        server = await proxy.open()
        await proxy.host.send(call(1, name))
        assert (await server.receive())["params"] == {"name": name}


async def test_while_the_server_is_away_calls_get_a_clear_error_and_then_it_is_back(mock_clock: MockClock) -> None:
    async with lasting() as proxy:
        first = await proxy.open()
        proxy.is_away = True
        await first.leave()
        await wait_all_tasks_blocked()
        for number in range(3):
            await proxy.host.send(call(number, "away"))
            assert not unnamed(await proxy.host.fails(number), "far", "nobody is at home")
        proxy.is_away = False
        mock_clock.jump(LEAST_PAUSE)
        await proxy.host.send(call(7))
        second = await proxy.reopened()
        assert (await second.receive())["id"] == 7


async def test_without_a_request_it_is_tried_again_with_growing_pauses(mock_clock: MockClock) -> None:
    async with lasting() as proxy:
        first = await proxy.open()
        proxy.is_away = True
        await first.leave()
        for _ in range(5):
            await wait_all_tasks_blocked()
            mock_clock.jump(5.0)
        proxy.is_away = False
        mock_clock.autojump_threshold = 0
        await proxy.reopened()


async def test_a_request_that_is_cancelled_while_it_waits_is_never_sent() -> None:
    async with lasting() as proxy:
        first = await proxy.open()
        await proxy.host.send(LISTING)
        await first.receive()
        await first.leave()
        second = await proxy.server()
        await proxy.host.send(cancel("list"))
        await proxy.host.send(call(1))
        await wait_all_tasks_blocked()
        await reopen(second)
        assert (await second.receive())["id"] == 1


async def test_questions_of_the_lost_session_are_withdrawn_and_their_late_answers_do_not_reach_the_next_one() -> None:
    async with lasting() as proxy:
        capabilities = {"sampling": {}}
        first = await proxy.open(capabilities)
        await first.send(ask(1))
        assert (await proxy.host.receive())["id"] == 1
        await first.leave()
        withdrawn = await proxy.host.receive()
        assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", 1)
        second = await proxy.reopened()
        assert (await proxy.host.receive())["method"] == "notifications/tools/list_changed"
        await second.send(ask(1))
        asked = await proxy.host.receive()
        assert asked["id"] != 1
        await proxy.host.send({"jsonrpc": "2.0", "id": 1, "result": {"late": True}})
        await proxy.host.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"late": False}})
        answer = await second.receive()
        assert (answer["id"], answer["result"]) == (1, {"late": False})


async def test_a_server_that_cancels_a_question_of_a_later_session_names_it_as_the_host_knows_it() -> None:
    async with lasting() as proxy:
        first = await proxy.open({"sampling": {}})
        await first.leave()
        second = await proxy.reopened()
        assert (await proxy.host.receive())["method"] == "notifications/tools/list_changed"
        await second.send(ask(1))
        asked = await proxy.host.receive()
        await second.send(cancel(1))
        assert (await proxy.host.receive())["params"]["requestId"] == asked["id"]


async def test_the_proxy_answers_questions_in_a_later_session_too() -> None:
    async with lasting() as proxy:
        first = await proxy.open()
        await first.leave()
        second = await proxy.reopened()
        assert (await proxy.host.receive())["method"] == "notifications/tools/list_changed"
        await second.send(ask(1))
        assert (await second.receive())["id"] == 1


async def test_a_server_that_comes_back_with_another_revision_ends_the_session_and_says_why() -> None:
    async with lasting() as proxy:
        first = await proxy.open()
        await first.leave()
        second = await proxy.server()
        await accept_handshake(second, protocolVersion="2024-11-05")
        await proxy.host.ends()
        assert proxy.relay.failure is not None
        assert not unnamed(proxy.relay.failure, "2024-11-05")


async def test_a_server_that_comes_back_in_another_era_is_tried_until_it_is_as_before(mock_clock: MockClock) -> None:
    async with lasting() as proxy:
        await (await proxy.open()).leave()
        second = await proxy.server()
        asked = await second.receive()
        await proxy.host.send(call(1))
        error = {"code": UNSUPPORTED_VERSION, "message": "2026-07-28 alone"}
        await second.send({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        assert not unnamed(await proxy.host.fails(1), "far", "2026-07-28 alone")
        mock_clock.jump(LEAST_PAUSE)
        await reopen(second)


async def test_a_host_that_leaves_while_its_session_is_opened_again_leaves_nothing_behind() -> None:
    async with lasting() as proxy:
        await (await proxy.open()).leave()
        second = await proxy.server()
        assert (await second.receive())["method"] == "initialize"
        await proxy.host.send(call(1))
        await proxy.host.leave()
        await proxy.over.wait()
        await second.ends()


async def test_a_handshake_connects_again_although_the_reader_has_not_come_back_since_the_loss() -> None:
    """As behind a host that does not read what it was sent."""
    ends: list[trio.StapledStream[Any, Any]] = []

    @asynccontextmanager
    async def connect() -> AsyncIterator[LineEnd]:
        near, far = trio.testing.memory_stream_pair()
        ends.append(near)
        async with LineEnd(far) as channel:
            yield channel

    with trio.fail_after(ALL_SECONDS):
        async with reconnecting(connect) as channel:
            await Line(ends[0]).leave()
            (lost,) = await channel.receive_many()
            assert lost.message.connection_lost
            await channel.send(Envelope(message_of({"id": "open", "method": "initialize"})))
            assert (await Line(ends[1]).receive())["id"] == "open"


async def test_a_few_requests_wait_for_a_session_and_no_more() -> None:
    async with lasting() as proxy:
        await (await proxy.open()).leave()
        second = await proxy.server()
        for number in range(MAX_WAITING + 1):
            await proxy.host.send(call(number))
        assert not unnamed(await proxy.host.fails(MAX_WAITING), str(MAX_WAITING))
        await reopen(second)
        assert [(await second.receive())["id"] for _ in range(MAX_WAITING)] == [*range(MAX_WAITING)]


async def test_a_server_that_ends_after_each_handshake_is_not_started_without_pauses(mock_clock: MockClock) -> None:
    async with lasting() as proxy:
        await (await proxy.open()).leave()
        await (await proxy.reopened()).leave()
        await wait_all_tasks_blocked()
        with pytest.raises(trio.WouldBlock):
            proxy.servers.receive_nowait()
        mock_clock.autojump_threshold = 0
        await proxy.reopened()


async def test_a_server_that_is_slow_to_come_back_is_asked_once_and_may_answer_late(mock_clock: MockClock) -> None:
    async with lasting() as proxy:
        await (await proxy.open()).leave()
        second = await proxy.server()
        asked = await second.receive()
        await wait_all_tasks_blocked()
        mock_clock.jump(HANDSHAKE_TIMEOUT)
        await wait_all_tasks_blocked()
        # The host is not kept waiting for it.
        await proxy.host.send(call(1, "away"))
        assert (await proxy.host.receive())["error"]["code"] == -32603
        mock_clock.jump(LEAST_PAUSE)
        await proxy.host.send(call(2))
        await wait_all_tasks_blocked()
        await second.send({"jsonrpc": "2.0", "id": asked["id"], "result": {**initialized(), **OFFERS}})
        assert (await second.receive())["method"] == READY["method"]
        assert (await second.receive())["id"] == 2


@pytest.mark.parametrize("is_lost", [True, False])
async def test_an_answer_that_came_between_two_attempts_opens_the_session_unless_its_connection_was_lost(
    is_lost: bool, mock_clock: MockClock
) -> None:
    async with lasting() as proxy:
        await (await proxy.open()).leave()
        slow = await proxy.server()
        asked = await slow.receive()
        await wait_all_tasks_blocked()
        mock_clock.jump(HANDSHAKE_TIMEOUT)
        await wait_all_tasks_blocked()
        await slow.send({"jsonrpc": "2.0", "id": asked["id"], "result": {**initialized(), **OFFERS}})
        await wait_all_tasks_blocked()
        if is_lost:
            await slow.leave()
            await wait_all_tasks_blocked()
        mock_clock.autojump_threshold = 0
        if is_lost:
            await proxy.reopened()
        else:
            assert (await slow.receive())["method"] == READY["method"]
