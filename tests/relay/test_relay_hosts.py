"""Hosts of one proxy over HTTP that take what is not theirs, or more than their share."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing
from asgi_peer import Reply, initialize, legacy_call, modern_call
from hosts import Hosts, proxied
from naming import unnamed
from principals import authenticate
from relaying import FORM, SECONDS, Json, Line, Model, ask, initialized, result

from trio_mcp import Backfill
from trio_mcp.relay.offers import STRAY_SECONDS
from trio_mcp.relay.streams import MAX_UNREAD
from trio_mcp.runtime import Mailbox
from trio_mcp.session import Limits, MemoryBudget, ServiceOptions

LIMIT = Backfill().max_answering
LOG: Json = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "a secret"}}
CHANGED: Json = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}}


# what a host must not see


@pytest.mark.parametrize("names", [["one"], ["one", "other"]], ids=["the only request", "one of two"])
async def test_a_log_message_that_may_be_about_the_request_of_another_host_is_dropped(names: list[str]) -> None:
    async with proxied() as hosts:
        server = await hosts.discovered()
        calls = [await hosts.call(server, name) for name in names]
        await server.send(LOG)
        for _, got in calls:
            await server.send(result(got["id"], resultType="complete"))
        for reply, _ in calls:
            assert (b"a secret" in (await reply.end()).body) == (len(names) == 1)


@pytest.mark.parametrize(("seconds", "passes"), [(0, False), (STRAY_SECONDS, True)])
async def test_a_log_message_that_may_be_about_a_cancelled_request_of_another_host_is_dropped(
    seconds: float, passes: bool, autojump_clock: trio.testing.MockClock
) -> None:
    async with proxied() as hosts:
        server = await hosts.discovered()
        one, _ = await hosts.call(server)
        await trio.testing.wait_all_tasks_blocked()
        one.gone.set()
        assert (await server.receive())["method"] == "notifications/cancelled"
        await trio.sleep(seconds)
        reply, got = await hosts.call(server)
        await server.send(LOG)
        await server.send(result(got["id"], resultType="complete"))
        assert (LOG in (await reply.end()).events) == passes


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage"])
async def test_a_request_of_a_modern_server_reaches_no_host_and_no_model(method: str) -> None:
    async with proxied() as hosts:
        server = await hosts.discovered()
        calls = [await hosts.call(server, name) for name in ("one", "other")]
        await server.send(ask("q", method))
        for _, got in calls:
            await server.send(result(got["id"], resultType="complete"))
        for reply, _ in calls:
            assert b"say hello" not in (await reply.end()).body


async def test_a_session_answers_the_questions_of_its_own_server_only() -> None:
    async with proxied() as hosts:
        (one, server_of_one), (other, server_of_other) = await hosts.open_session(), await hosts.open_session()
        reply = hosts.peer.start(legacy_call("look", id=2), one)
        await server_of_one.receive()
        await server_of_one.send(ask("q", "roots/list", {}))
        await reply.until("roots/list")
        asked = reply.events[0]["id"]
        # Which none has asked there.
        assert (await hosts.peer.post(result(asked, roots=["of the other"]), other)).status == 202
        assert (await hosts.peer.post(result(asked, roots=[]), one)).status == 202
        assert await server_of_one.receive() == result("q", roots=[])
        await hosts.peer.post({"jsonrpc": "2.0", "method": "notifications/x"}, other)
        assert (await server_of_other.receive())["method"] == "notifications/x"


# handshakes


async def test_a_host_that_leaves_before_its_server_answers_leaves_no_session() -> None:
    async with proxied() as hosts:
        opening = hosts.peer.start(initialize({}))
        server = await hosts.connection()
        await server.receive()
        opening.gone.set()
        await server.ends()


async def test_a_handshake_that_the_server_rejects_leaves_no_session() -> None:
    async with proxied() as hosts:
        opening = hosts.peer.start(initialize({}))
        server = await hosts.connection()
        got = await server.receive()
        await server.send({"jsonrpc": "2.0", "id": got["id"], "error": {"code": -32602, "message": "no"}})
        probe = await server.receive()
        assert probe["method"] == "server/discover"
        await server.send({"jsonrpc": "2.0", "id": probe["id"], "error": {"code": -32601, "message": "no"}})
        assert (await opening.end()).json["error"]["code"] == -32602
        await server.ends()


async def test_handshakes_that_wait_count_as_sessions() -> None:
    async with proxied(max_sessions=2) as hosts:
        leaving = hosts.peer.start(initialize({}))
        server_of_leaving = await hosts.connection()
        staying = hosts.peer.start(initialize({}))
        server = await hosts.connection()
        rejected = await hosts.peer.post(initialize({}))
        assert (rejected.status, rejected.json["error"]["code"]) == (503, -32000)
        leaving.gone.set()
        await server_of_leaving.receive()
        await server_of_leaving.ends()
        got = await server.receive()
        await server.send({"jsonrpc": "2.0", "id": got["id"], "result": initialized()})
        assert (await staying.end()).status == 200
        await hosts.open_session()


async def test_a_session_that_was_only_opened_makes_room_and_loses_its_server() -> None:
    async with proxied(max_sessions=1) as hosts:
        _, server = await hosts.open_session()
        await hosts.open_session()
        await server.ends()


# memory


async def test_a_request_that_waits_for_its_server_draws_from_the_memory_budget() -> None:
    memory = MemoryBudget(64 * 1024 * 1024)
    async with proxied(options=ServiceOptions(memory=memory)) as hosts:
        headers, server = await hosts.open_session()
        before = memory.statistics().drawn
        reply = hosts.peer.start(legacy_call("look", {"a": "x" * 100_000}, id=2), headers)
        got = await server.receive()
        assert memory.statistics().drawn - before > 100_000
        await server.send(result(got["id"]))
        await reply.end()
        await trio.testing.wait_all_tasks_blocked()
        # The event log of the session keeps the answer.
        assert memory.statistics().drawn - before < 20_000


async def test_a_request_without_room_is_rejected_with_the_name_of_the_budget() -> None:
    memory = MemoryBudget(1024 * 1024)
    async with proxied(options=ServiceOptions(memory=memory)) as hosts:
        headers, server = await hosts.open_session()
        replies: list[Reply] = []
        for number in range(20):
            replies.append(hosts.peer.start(legacy_call("look", {"a": "x" * 100_000}, id=number), headers))
            await trio.testing.wait_all_tasks_blocked()
        rejected = [await reply.end() for reply in replies if reply.status == 503]
        assert rejected
        assert {reply.json["error"]["code"] for reply in rejected} == {-32000}
        assert {"ServiceOptions.memory" in reply.json["error"]["message"] for reply in rejected} == {True}
        assert memory.statistics().drawn <= memory.total
        for reply in replies:
            reply.gone.set()
        assert (await server.receive())["method"] == "tools/call"


async def test_a_host_that_does_not_read_its_stream_makes_the_proxy_hold_little() -> None:
    memory = MemoryBudget(64 * 1024 * 1024)
    async with proxied(options=ServiceOptions(memory=memory)) as hosts:
        headers, server = await hosts.open_session()
        get = {**headers, "accept": "text/event-stream"}
        stream = hosts.peer.start(b"", get, method="GET")
        await trio.testing.wait_all_tasks_blocked()
        stream.stuck = trio.Event()
        data = b"\n".join([json.dumps(CHANGED).encode()] * 10_000)
        with trio.fail_after(SECONDS):
            await server.send(data)
            await trio.testing.wait_all_tasks_blocked()
        assert memory.statistics().drawn < 1024 * 1024
        stream.stuck.set()


async def test_a_question_for_a_host_that_reads_no_stream_is_answered_when_too_many_wait() -> None:
    async with proxied() as hosts:
        _, server = await hosts.open_session()
        for number in range(MAX_UNREAD + 1):
            await server.send(ask(number, "roots/list", {}))
        await server.fails(MAX_UNREAD, -32000)


# shares


@pytest.mark.parametrize("ends", ["answered", "cancelled", "lost"])
async def test_a_request_counts_for_its_caller_until_it_ends_in_whichever_way(ends: str) -> None:
    options = ServiceOptions(actors=Limits(actors=4))
    body, headers = modern_call("look", id="one")
    alice = {**headers, **user("alice")}
    async with proxied(options=options, authenticate=authenticate) as hosts:
        server = await hosts.discovered(user("alice"))
        for _ in range(3):
            replies = [hosts.peer.start(body, alice) for _ in range(2)]
            sent = [await server.receive() for _ in replies]
            refused = await hosts.peer.start(body, alice).end()
            assert (refused.status, refused.json["error"]["code"]) == (503, -32000)
            assert unnamed(refused.json["error"]["message"], "Limits.actors", "quarter") == []
            match ends:
                case "answered":
                    for got in sent:
                        await server.send(result(got["id"], resultType="complete"))
                case "cancelled":
                    for reply in replies:
                        reply.gone.set()
                        assert (await server.receive())["method"] == "notifications/cancelled"
                case _:
                    await server.leave()
            if ends != "cancelled":
                for reply in replies:
                    await reply.end()
            if ends == "lost":
                server = await hosts.discovered(user("alice"))


async def test_a_request_that_cannot_be_sent_is_rejected_and_counts_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp.session.client.Mailbox", lambda **_: Mailbox(limit=1))
    async with proxied(options=ServiceOptions(actors=Limits(actors=4))) as hosts:
        server = await hosts.discovered()
        for _ in range(3):
            reply, got = await hosts.call(server)
            rejected = await hosts.peer.start(*modern_call("look", id="over")).end()
            assert rejected.json["error"]["code"] == -32000
            assert unnamed(rejected.json["error"]["message"], "the server") == []
            await server.send(result(got["id"], resultType="complete"))
            await reply.end()


async def test_the_samples_of_one_caller_in_several_sessions_leave_room_for_another() -> None:
    model = Model(held=True)
    async with proxied(model, authenticate=authenticate) as hosts:
        servers = [(await hosts.open_session(user("alice")))[1] for _ in range(4)]
        _, server_of_bob = await hosts.open_session(user("bob"))
        for number in range(LIMIT // 2):
            await servers[number % 4].send(ask(number))
        await trio.testing.wait_all_tasks_blocked()
        for server in servers:
            await server.send(ask("over"))
            rejected = (await server.receive())["error"]
            assert rejected["code"] == -32000
            assert unnamed(rejected["message"], "max_answering", "quarter") == []
        await server_of_bob.send(ask("q"))
        await trio.testing.wait_all_tasks_blocked()
        assert len(model.asked) == LIMIT // 2 + 1


async def test_the_samples_of_a_modern_host_of_a_legacy_server_leave_room_for_another() -> None:
    model = Model(held=True)
    body, headers = modern_call("look", id="one")
    async with proxied(model, authenticate=authenticate) as hosts:
        for name in ("alice", "bob"):
            reply = hosts.peer.start(body, {**headers, **user(name)})
            server = await legacy_server(hosts)
            for number in range(LIMIT // 2 if name == "alice" else 1):
                await server.send(ask(number))
            await trio.testing.wait_all_tasks_blocked()
            if name == "alice":
                await server.send(ask("over"))
                assert unnamed((await server.receive())["error"]["message"], "max_answering", "quarter") == []
        assert len(model.asked) == LIMIT // 2 + 1
        reply.gone.set()


async def test_the_samples_of_all_hosts_together_are_limited() -> None:
    model = Model(held=True)
    async with proxied(model, authenticate=authenticate) as hosts:
        for name in ("alice", "bob", "carl", "dora"):
            _, server = await hosts.open_session(user(name))
            for number in range(LIMIT // 4):
                await server.send(ask(number))
        await trio.testing.wait_all_tasks_blocked()
        assert len(model.asked) == LIMIT
        _, server = await hosts.open_session(user("ed"))
        await server.send(ask("q"))
        assert (await server.receive())["error"]["code"] == -32000
        assert len(model.asked) == LIMIT


# eras


def user(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


async def legacy_server(hosts: Hosts) -> Line:
    """The connection to a legacy server, at which the call of a modern host runs."""
    server = await hosts.legacy_server()
    await received(server, "tools/call")
    return server


@pytest.mark.parametrize(("seconds", "passes"), [(0, False), (STRAY_SECONDS, True)])
async def test_a_question_of_a_legacy_server_in_a_cancelled_call_goes_to_no_other_host(
    seconds: float, passes: bool, autojump_clock: trio.testing.MockClock
) -> None:
    async with proxied() as hosts:
        body, headers = modern_call("look", id="one")
        one = hosts.peer.start(body, headers)
        server = await legacy_server(hosts)
        one.gone.set()
        await received(server, "notifications/cancelled")
        await trio.sleep(seconds)
        other = hosts.peer.start(body, headers)
        await received(server, "tools/call")
        await server.send(ask("q", "elicitation/create", FORM))
        if passes:
            assert (await other.end()).last["result"]["resultType"] == "input_required"
        else:
            assert (await server.receive())["error"]["code"] == -32602
        other.gone.set()


@pytest.mark.parametrize("others", [0, 1])
async def test_a_question_of_a_legacy_server_goes_to_no_host_that_it_may_not_be_for(others: int) -> None:
    async with proxied() as hosts:
        body, headers = modern_call("look", id="one")
        replies = [hosts.peer.start(body, headers)]
        server = await legacy_server(hosts)
        for _ in range(others):
            replies.append(hosts.peer.start(body, headers))
            await received(server, "tools/call")
        await server.send(ask("q", "elicitation/create", FORM))
        if others:
            assert (await server.receive())["error"]["code"] == -32602
        else:
            assert (await replies[0].end()).last["result"]["resultType"] == "input_required"
        for reply in replies:
            reply.gone.set()


async def test_a_proxy_that_ends_while_a_host_is_asked_logs_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    async with proxied() as hosts:
        body, headers = modern_call("look", id="one")
        reply = hosts.peer.start(body, headers)
        server = await legacy_server(hosts)
        await server.send(ask("q", "elicitation/create", FORM))
        assert (await reply.end()).last["result"]["resultType"] == "input_required"
    assert [record for record in caplog.records if record.exc_info] == []


async def received(server: Line, method: str) -> Json:
    while (got := await server.receive()).get("method") != method:
        if "id" in got:
            await server.send({"jsonrpc": "2.0", "id": got["id"], "result": {}})
    return dict(got)
