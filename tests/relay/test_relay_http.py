"""The proxy for hosts over HTTP: sessions with a connection each, and requests of many hosts on one."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import trio
import trio.testing
from asgi_peer import legacy_call, modern_call
from hosts import progress, proxied
from relaying import SECONDS, Json, Model, ask, result

from trio_mcp import CancelReason
from trio_mcp.protocol.connection import PendingRequest
from trio_mcp.relay import Backfill, RelayServer
from trio_mcp.session import Call, client, make_session
from trio_mcp.testing.interruptions.census import only_new_objects


async def test_each_session_has_a_connection_to_the_server() -> None:
    async with proxied() as hosts:
        (one, server_of_one), (other, server_of_other) = await hosts.open_session(), await hosts.open_session()
        for headers, server, text in ((one, server_of_one, "one"), (other, server_of_other, "other")):
            reply = hosts.peer.start(legacy_call("look", {"at": text}, id=2, x=1), headers)
            got = await server.receive()
            assert got["params"] == {"name": "look", "arguments": {"at": text}, "x": 1}
            await server.send(result(got["id"], x=text))
            assert (await reply.end()).json == result(2, x=text)


async def test_requests_with_the_same_id_and_token_are_kept_apart() -> None:
    """Some hosts number every request 1, and hosts that share a connection know nothing of each other."""
    async with proxied() as hosts:
        server = await hosts.discovered()
        calls = [await hosts.call(server, meta={"progressToken": "t"}) for _ in range(2)]
        ids, tokens = zip(*((got["id"], got["params"]["_meta"]["progressToken"]) for _, got in calls), strict=True)
        assert len(set(ids)) == len(set(tokens)) == 2
        for number in (1, 0):
            await server.send(progress(tokens[number]))
            await server.send(result(ids[number], x=number, resultType="complete"))
        for number, (reply, _) in enumerate(calls):
            ended = await reply.end()
            assert ended.events[0] == progress("t")
            assert ended.events[1] == result(1, x=number, resultType="complete")


async def test_a_token_that_is_written_as_a_fraction_is_not_that_of_another_host() -> None:
    async with proxied() as hosts:
        server = await hosts.discovered()
        calls = [await hosts.call(server, id=number, meta={"progressToken": 1.0}) for number in range(2)]
        tokens = {got["params"]["_meta"]["progressToken"] for _, got in calls}
        assert len(tokens) == 2
        for reply, got in calls:
            await server.send(progress(got["params"]["_meta"]["progressToken"]))
            await server.send(result(got["id"], resultType="complete"))
            assert (await reply.end()).events[0] == progress(1)


async def test_a_request_that_is_rejected_for_want_of_room_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_REQUESTS", 1)
    async with proxied() as hosts:
        server = await hosts.discovered()
        with only_new_objects():
            open_reply, open_call = await hosts.call(server)
            rejected = hosts.peer.start(*modern_call("look", id=2, meta={"progressToken": "t"}))
            assert (await rejected.end()).last["error"]["code"] == -32000
            await server.send(result(open_call["id"], resultType="complete"))
            await open_reply.end()
            await trio.testing.wait_all_tasks_blocked()
            assert [each for each in gc.get_objects() if isinstance(each, Call | PendingRequest)] == []


async def test_unknown_members_of_errors_and_data_that_is_null_pass() -> None:
    async with proxied() as hosts:
        headers, server = await hosts.open_session()
        for number, more in enumerate([{"x-d": 1}, {"data": None}], start=2):
            reply = hosts.peer.start({"jsonrpc": "2.0", "id": number, "method": "x/look"}, headers)
            got = await server.receive()
            assert "params" not in got
            error = {"jsonrpc": "2.0", "error": {"code": 1, "message": "no", **more}}
            await server.send({**error, "id": got["id"]})
            assert (await reply.end()).last == {**error, "id": number}


async def test_a_host_that_disconnects_ends_the_request_to_the_model() -> None:
    model = Model(held=True)
    async with proxied(model) as hosts:
        server = await hosts.discovered()
        reply, got = await hosts.call(server)
        question = {"method": "sampling/createMessage", "params": ask(0)["params"]}
        await server.send(
            {**result(got["id"]), "result": {"resultType": "input_required", "inputRequests": {"q": question}}}
        )
        await model.began.wait()
        reply.gone.set()
        with trio.fail_after(SECONDS):
            await model.cancelled.wait()


async def test_what_belongs_to_no_request_waits_for_the_stream_of_the_session() -> None:
    changed: Json = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"x": 1}}
    async with proxied() as hosts:
        headers, server = await hosts.open_session()
        await server.send(changed)
        await trio.testing.wait_all_tasks_blocked()
        stream = hosts.peer.start(b"", {**headers, "accept": "text/event-stream"}, method="GET")
        await stream.until("list_changed")
        assert stream.events == [changed]


async def test_a_modern_request_after_the_server_has_gone_connects_again(autojump_clock: object) -> None:
    async with proxied() as hosts:
        server = await hosts.discovered()
        reply, _ = await hosts.call(server)
        await server.leave()
        assert (await reply.end()).json["error"]["code"] == -32603
        await hosts.discovered()


async def test_a_session_whose_server_has_gone_fails_its_requests_and_is_unknown_then(autojump_clock: object) -> None:
    """404 tells the host to open another one, which gets a new server (L-HTTP-18s)."""
    async with proxied() as hosts:
        headers, server = await hosts.open_session()
        reply = hosts.peer.start(legacy_call("look", id=2), headers)
        await server.receive()
        stream = hosts.peer.start(b"", {**headers, "accept": "text/event-stream"}, method="GET")
        await server.leave()
        assert (await reply.end()).last["error"]["code"] == -32603
        assert (await stream.end()).events == []
        assert (await hosts.peer.post(legacy_call("look", id=3), headers)).status == 404
        await hosts.open_session()


async def test_a_stream_of_the_oldest_revision_ends_with_its_server(autojump_clock: object) -> None:
    async with proxied() as hosts:
        stream = hosts.peer.start(b"", {"host": "localhost:8000"}, method="GET", path="/sse")
        server = await hosts.connection()
        await stream.until("event: endpoint")
        await server.leave()
        await stream.end()


async def test_a_session_that_is_deleted_closes_its_connection() -> None:
    async with proxied() as hosts:
        headers, server = await hosts.open_session()
        assert (await hosts.peer.post(b"", headers, method="DELETE")).status == 204
        await server.ends()


async def test_a_request_whose_session_is_deleted_gets_an_error() -> None:
    async with proxied() as hosts:
        headers, server = await hosts.open_session()
        reply = hosts.peer.start(legacy_call("look", id=2), headers)
        await server.receive()
        await hosts.peer.post(b"", headers, method="DELETE")
        assert (await reply.end()).last["error"]["code"] == -32603


async def test_a_session_that_has_ended_is_in_no_reference_cycle() -> None:
    def unused() -> Any:
        raise AssertionError("nothing connects")

    async with RelayServer(unused, Backfill()).open_service() as service:
        with only_new_objects():
            session = make_session(service, shared_channel=False)
            session.close(CancelReason.CLIENT)
            ended = weakref.ref(session)
            del session
            assert ended() is None


async def test_a_request_that_says_too_little_of_itself_is_rejected_with_400() -> None:
    async with proxied() as hosts:
        await hosts.discovered()
        body, headers = modern_call("look", id=1)
        del body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        reply = await hosts.peer.post(body, headers)
        assert (reply.status, reply.json["error"]["code"]) == (400, -32602)
