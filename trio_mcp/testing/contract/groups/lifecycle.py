"""Group E: the life of a connection, and what it rejects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import trio

from ....errors import PeerError
from ....protocol.revisions import NEWEST_LEGACY
from ....types import LOGGING_LEVELS, JsonObject
from ..expecting import failure
from ..makers import Trait
from ..pair import Pair
from ..peer import INFO, Peer
from ..rules import LEGACY, MODERN, rule
from ..subjects.lifecycle import REFUSED, SEATS

NO_HANDSHAKE = "modern revisions have no handshake"
NO_PING = "modern revisions have no ping"
ONE_ANSWER = "the answer is the same for every revision, so one is enough"


# opening


@rule("E", revisions=LEGACY, why=NO_HANDSHAKE)
async def the_requested_revision_is_used(pair: Pair) -> None:
    async with pair.unopened() as peer:
        result = await peer.open()
        assert result["protocolVersion"] == pair.revision
        assert result["instructions"] == "Be strict."
        assert "tools" in result["capabilities"]  # type: ignore[operator]


@rule("E", revisions=(NEWEST_LEGACY,), why=ONE_ANSWER)
async def an_unknown_revision_is_answered_with_the_newest_legacy_one(pair: Pair) -> None:
    for unknown in ("1999-01-01", "2099-12-31", *MODERN):
        async with pair.unopened() as peer:
            result = await peer.result(await peer.request("initialize", handshake(unknown)))
            assert result["protocolVersion"] == NEWEST_LEGACY


@rule("E", revisions=MODERN, why="legacy revisions are negotiated in the handshake")
async def an_unknown_revision_is_rejected_with_the_supported_ones(pair: Pair) -> None:
    async with pair.unopened() as peer:
        peer.revision = "2099-12-31"
        error = await peer.error(await peer.request("tools/list"))
        assert error["code"] == -32022
        assert pair.revision in error["data"]["supported"]  # type: ignore[operator, call-overload, index]
        peer.revision = pair.revision
        await peer.ping()


@rule("E", revisions=LEGACY, why=NO_HANDSHAKE)
async def no_request_is_accepted_before_the_handshake(pair: Pair) -> None:
    async with pair.unopened() as peer:
        refusal = await peer.refusal(await peer.request("tools/call", {"name": "echo", "arguments": {"text": "early"}}))
        assert "initialize" in refusal
        await peer.open()
        await peer.ping()
    assert pair.stage.count("echo") == 0


@rule(
    "E",
    revisions=LEGACY,
    why=NO_PING,
    needs={Trait.SHARED: "the handshake creates the session in which a client can ping"},
)
async def a_ping_is_answered_before_the_handshake(pair: Pair) -> None:
    async with pair.unopened() as peer:
        await peer.ping()
        await peer.open()


@rule("E", revisions=LEGACY, why=NO_HANDSHAKE)
async def a_malformed_handshake_is_rejected_and_may_be_repeated(pair: Pair) -> None:
    async with pair.unopened() as peer:
        error = await peer.error(await peer.request("initialize", {"protocolVersion": pair.revision}))
        assert error["code"] == -32602
        await peer.open()
        await peer.ping()


@rule("E", revisions=LEGACY, why=NO_PING)
async def a_ping_is_answered(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await peer.result(await peer.request("ping")) == {}


@rule("E", revisions=LEGACY, why=NO_PING)
async def our_client_answers_a_ping_while_its_user_is_being_asked(pair: Pair) -> None:
    async with (
        pair.client(on_elicit=thinks_for_ever, on_sample=thinks_for_ever) as client,
        trio.open_nursery() as calls,
    ):
        calls.start_soon(client.call_tool, "ask_model", {"prompt": "hm"})
        await pair.stage.marked("ask_model began")
        assert (await client.call_tool("ping_client")).text == "alive"
        calls.cancel_scope.cancel()


@rule("E")
async def our_client_opens_the_session_and_knows_the_server(pair: Pair) -> None:
    async with pair.client() as client:
        assert client.protocol_version == pair.revision
        assert client.server_info is not None
        assert (client.server_info.name, client.instructions) == ("contract", "Be strict.")
        await client.ping()


@rule("E")
async def a_tool_is_called(pair: Pair) -> None:
    async with pair.client() as client:
        assert (await client.call_tool("echo", {"text": "hello"})).text == "hello"


# capabilities


@rule("E", revisions=LEGACY, why="modern listings are the same for every client")
async def a_tool_that_a_client_cannot_serve_is_hidden_from_it(pair: Pair) -> None:
    async with pair.peer({}) as peer:
        assert "gated" not in await tools_of(peer)
    assert pair.stage.count("gated") == 0


@rule("E")
async def a_tool_that_a_client_can_serve_is_shown_to_it_and_called(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert "gated" in await tools_of(peer)
        assert await (await peer.call("gated")).text() == "with a model"


@rule("E")
async def a_tool_that_a_client_cannot_serve_is_rejected_before_it_runs(pair: Pair) -> None:
    async with pair.peer({}) as peer:
        await (await peer.call("gated")).lacks(sampling={})
        await peer.ping()
    assert pair.stage.count("gated") == 0


# ids


@rule("E")
async def an_id_is_returned_unchanged(pair: Pair) -> None:
    async with pair.peer() as peer:
        for request_id in ("a", "1", 1000, 0, -5, 2**53 - 1, "ü" * 64):
            reply = await peer.reply(await peer.request("tools/list", id=request_id))
            assert reply["id"] == request_id
            assert "result" in reply


@rule("E", needs=(Trait.SHARED,))
async def an_id_in_use_is_rejected_on_a_shared_channel(pair: Pair) -> None:
    async with pair.peer() as peer:
        await peer.request("tools/call", {"name": "wait", "arguments": {}}, id="twice")
        await pair.stage.marked("wait began")
        error = await peer.error(
            await peer.request("tools/call", {"name": "echo", "arguments": {"text": "x"}}, id="twice")
        )
        assert error["code"] == -32600
        await pair.stage.open("wait")
        assert "result" in await peer.reply("twice")
    assert pair.stage.count("echo") == 0


@rule("E", needs=(Trait.STREAMS,))
async def an_id_in_use_is_accepted_where_each_request_has_a_stream(pair: Pair) -> None:
    async with pair.peer() as peer:
        for name in ("one", "two"):
            await peer.request("tools/call", {"name": "wait", "arguments": {"name": name}}, id="same")
            await pair.stage.marked(f"{name} began")
        await pair.stage.open("two")
        assert "two" in str(await peer.result("same"))
        await pair.stage.open("one")
        assert "one" in str(await peer.result("same"))


@rule("E")
async def a_request_is_answered_once(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("echo", {"text": "once"})
        assert await call.text() == "once"
        await peer.ping()
        again = [message for message in peer.unread() if message.get("id") == call.id]
        assert again == [], f"its answer came twice: {again}"


@rule("E")
async def a_request_runs_once(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await (await peer.call("echo", {"text": "once"})).text() == "once"
        await peer.ping()
    assert pair.stage.count("echo") == 1


# what is refused


@rule("E")
async def an_unknown_method_is_rejected_by_name(pair: Pair) -> None:
    async with pair.peer() as peer:
        error = await peer.error(await peer.request("no/such"))
        assert error["code"] == -32601
        assert "no/such" in str(error["message"])
        await peer.ping()


@rule("E")
async def an_unknown_tool_is_rejected_by_name(pair: Pair) -> None:
    async with pair.peer() as peer:
        error = await (await peer.call("no_such")).error()
        assert error["code"] == -32602
        assert "no_such" in str(error["message"])
        await peer.ping()


@rule("E")
async def wrong_params_are_rejected_with_the_reason(pair: Pair) -> None:
    async with pair.peer() as peer:
        error = await peer.error(await peer.request("completion/complete", {"ref": {"type": "ref/prompt"}}))
        assert error["code"] == -32602
        await peer.ping()


@rule("E")
async def wrong_arguments_are_reported_to_the_model(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert "text" in await (await peer.call("echo", {"text": 3})).failure()
        assert "text" in await (await peer.call("echo")).failure()
    assert pair.stage.count("echo") == 0


@rule("E", needs=(Trait.TEXT,))
async def text_that_is_not_a_message_is_rejected_and_the_connection_stays_open(pair: Pair) -> None:
    async with pair.peer() as peer:
        for data, code in ((b'{"jsonrpc": "2.0", "id": 7', -32700), (b'{"id": 7}', -32600), (b"7", -32600)):
            assert (await pair.refused(peer, data))["code"] == code
            await peer.ping()


@rule("E")
async def stray_replies_and_unknown_notifications_are_ignored(pair: Pair) -> None:
    async with pair.peer() as peer:
        await peer.notify("notifications/no/such")
        await peer.send({"id": "never asked", "result": {}})
        await peer.send({"id": 1, "error": {"code": -1, "message": "not asked either"}})
        await peer.ping()
        assert peer.unread() == []


# errors


@rule("E")
async def an_error_reaches_our_client_with_its_code_and_data(pair: Pair) -> None:
    async with pair.client() as client:
        error = await failure(PeerError, client.call_tool("refuse"))
        assert (error.code, error.message, error.data) == (REFUSED, "these seats are taken", SEATS)


@rule("E", revisions=LEGACY, why="a modern client that cannot answer does not retry")
async def an_error_of_the_client_reaches_the_tool_with_its_code_and_data(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("relay")
        question = await call.question()
        await peer.send({"id": question.key, "error": {"code": -1, "message": "no", "data": SEATS}})
        assert json.loads(await call.text()) == [-1, "no", SEATS]


# log messages and roots


@rule("E", revisions=LEGACY, why="each modern request sets its own log level")
async def a_session_receives_logs_of_its_level_and_above(pair: Pair) -> None:
    async with pair.peer() as peer:
        for least in ("error", "debug", "emergency"):
            assert await peer.result(await peer.request("logging/setLevel", {"level": least})) == {}
            assert await (await peer.call("log_everything")).text() == "logged"
            assert heard(peer) == list(LOGGING_LEVELS[LOGGING_LEVELS.index(least) :])


@rule("E", revisions=MODERN, why="a legacy session sets its log level once")
async def a_request_receives_logs_of_its_level_and_above(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await (await peer.call("log_everything", logs="error")).text() == "logged"
        assert heard(peer) == ["error", "critical", "alert", "emergency"]
        assert await (await peer.call("log_everything")).text() == "logged"
        assert heard(peer) == []


@rule("E", revisions=LEGACY, why="each modern request sets its own log level")
async def an_unknown_log_level_is_rejected(pair: Pair) -> None:
    async with pair.peer() as peer:
        error = await peer.error(await peer.request("logging/setLevel", {"level": "loud"}))
        assert error["code"] == -32602
        await peer.ping()


@rule("E")
async def a_tool_receives_the_current_roots(pair: Pair) -> None:
    roots = [Path("/first")]
    async with pair.client(on_roots=lambda: roots) as client:
        assert (await client.call_tool("folders")).text == "file:///first"
        roots.append(Path("/second"))
        client.roots_changed()
        assert (await client.call_tool("folders")).text == "file:///first file:///second"


# steps of the rules


async def thinks_for_ever(_asked: object) -> NoReturn:
    await trio.sleep_forever()
    raise AssertionError("somebody woke him")


def handshake(version: str) -> JsonObject:
    return {"protocolVersion": version, "capabilities": {}, "clientInfo": INFO}


async def tools_of(peer: Peer) -> set[str]:
    """Return the names of the tools that a list shows."""
    tools = (await peer.result(await peer.request("tools/list")))["tools"]
    assert isinstance(tools, list)
    return {str(tool["name"]) for tool in tools if isinstance(tool, dict)}


def heard(peer: Peer) -> list[object]:
    """Return the levels of the log messages that have arrived."""
    messages = [message["params"] for message in peer.unread() if message.get("method") == "notifications/message"]
    return [params["level"] for params in messages if isinstance(params, dict)]
