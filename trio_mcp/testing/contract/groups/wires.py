"""Group F: what only some transports have: streams that can be resumed, raw bytes, and servers that are processes.

The transport's own tests check HTTP statuses and headers; see docs/internals/contract.md.
"""

from __future__ import annotations

from codecs import BOM_UTF8

import trio

from ....types import JsonObject, ProgressNotificationParams
from ..makers import Trait
from ..pair import Pair
from ..peer import Call, Peer, accepted
from ..rules import ELICITS, LEGACY, rule
from ..subjects.offers import ODD_TEXT
from ..watch import watch

NO_RESUME = "a lost modern response cancels its request"
ASKS = "only streams of 2025-06-18 and 2025-11-25 support both forms and resumption"
PATIENCE = 30.0
"""Seconds that a call continues without its client, for rules that test this."""

ACCENTED = '{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": "é"}}'

# any wire


@rule("F")
async def text_that_resembles_framing_arrives_unchanged(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("echo", {"text": ODD_TEXT})
        assert await call.text() == ODD_TEXT


@rule("F")
async def a_message_larger_than_one_read_arrives_complete(pair: Pair) -> None:
    text = "0123456789abcdef" * 60_000  # just under a megabyte
    async with pair.peer() as peer:
        assert await (await peer.call("echo", {"text": text})).text() == text
        await peer.ping()


@rule("F")
async def a_call_whose_tool_ends_its_stream_is_still_answered(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("let_go", progress="token")
        assert await call.text() == "still here"
        assert reported(peer) == [1, 2]


@rule("F", needs=(Trait.SERVES_MANY,))
async def calls_of_two_connections_may_have_the_same_id(pair: Pair) -> None:
    async with pair.peer() as one, pair.peer() as other:
        for peer, name in ((one, "one"), (other, "other")):
            await peer.request("tools/call", {"name": "wait", "arguments": {"name": name}}, id="same")
            await pair.stage.marked(f"{name} began")
        await one.cancel("same")
        await pair.stage.marked("one finally")
        await pair.stage.open("other")
        assert "result" in await other.reply("same")
    assert pair.stage.count("one ended") == 0


@rule("F", needs=(Trait.SERVES_MANY,))
async def messages_of_one_connection_do_not_reach_another(pair: Pair) -> None:
    async with pair.peer() as one, pair.peer() as other:
        call = await one.call("tell", {"n": 3}, progress="token")
        idle = await other.call("wait")
        await pair.stage.open("tell 0")
        assert await call.text() == "tell reported 3"
        await pair.stage.open("wait")
        assert await idle.text() == "wait"
        assert reported(one) == [0, 1, 2, 3]
        assert other.unread() == []


# streams that are lost


@rule("F", revisions=LEGACY, why=NO_RESUME, needs=(Trait.RESUMES,), grace=PATIENCE)
async def messages_during_a_lost_stream_arrive_once_and_in_order(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await lost(pair, peer)
        await pair.stage.open("tell 0")
        await peer.message("notifications/progress")
        await pair.stage.open("tell 1")
        assert await call.text() == "tell reported 20"
        assert reported(peer) == list(range(2, 21))


@rule("F", revisions=LEGACY, why=NO_RESUME, needs=(Trait.RESUMES,), grace=PATIENCE)
async def a_call_that_ended_while_its_stream_was_lost_is_answered(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await lost(pair, peer)
        await pair.stage.open("tell 0")
        await pair.stage.open("tell 1")
        await pair.stage.marked("tell reported")
        assert await call.text() == "tell reported 20"
        assert reported(peer) == list(range(1, 21))


@rule("F", revisions=LEGACY, why=NO_RESUME, needs=(Trait.RESUMES,), grace=PATIENCE)
async def a_stream_may_be_lost_more_than_once(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await lost(pair, peer)
        await pair.stage.open("tell 0")
        heard = [told_of(await peer.message("notifications/progress")) for _ in range(10)]
        await pair.cut()
        await pair.stage.open("tell 1")
        assert await call.text() == "tell reported 20"
        assert heard + reported(peer) == list(range(1, 21))


@rule("F", revisions=LEGACY, why=NO_RESUME, needs=(Trait.RESUMES,), grace=PATIENCE)
async def each_of_several_lost_streams_resumes_its_own_messages(pair: Pair) -> None:
    names = ("one", "two", "three")
    async with pair.peer() as peer:
        calls = [await peer.call("tell", {"n": 5, "name": name}, progress=name) for name in names]
        for _ in names:
            await peer.message("notifications/progress")
        await pair.cut()
        for name in names:
            await pair.stage.open(f"{name} 0")
        assert [await call.text() for call in calls] == [f"{name} reported 5" for name in names]
        heard = peer.unread()
        for name in names:
            assert [told_of(message) for message in heard if token_of(message) == name] == [1, 2, 3, 4, 5]


@rule(
    "F", revisions=tuple(name for name in LEGACY if name in ELICITS), why=ASKS, needs=(Trait.RESUMES,), grace=PATIENCE
)
async def a_question_that_was_asked_while_its_stream_was_lost_is_answered(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("tell_and_ask", progress="token")
        await peer.message("notifications/progress")
        await pair.cut()
        await pair.stage.open("tell_and_ask")
        await call.answer(await call.question(), accepted(value="here I am"))
        assert await call.text() == "here I am"
        assert reported(peer) == [2]


@rule("F", revisions=LEGACY, why=NO_RESUME, needs=(Trait.RESUMES,), grace=PATIENCE)
async def changes_without_a_reader_are_announced_once_when_a_client_listens(pair: Pair) -> None:
    uris = ["contract://text", "contract://bytes"]
    async with pair.peer() as away:
        heard = await watch(away, uris=uris)
        await pair.cut()
        async with pair.peer() as other:
            for uri in uris:
                await (await other.call("update", {"uri": uri, "times": 3})).text()
        assert [await heard.heard(), await heard.heard()] == uris
        await away.ping()
        assert away.unread() == []


@rule("F", revisions=LEGACY, why=NO_RESUME, needs=(Trait.RESUMES,), grace=PATIENCE)
async def a_caller_does_not_notice_that_its_stream_was_lost(pair: Pair) -> None:
    heard: list[float] = []
    begun = trio.Event()

    def on_progress(said: ProgressNotificationParams) -> None:
        heard.append(said.progress)
        begun.set()

    async with pair.client() as client, trio.open_nursery() as nursery:

        async def lose() -> None:
            await begun.wait()
            await pair.cut()
            await pair.stage.open("tell 0")

        nursery.start_soon(lose)
        assert (await client.call_tool("tell", {"n": 5}, on_progress=on_progress)).text == "tell reported 5"
    assert heard == [0, 1, 2, 3, 4, 5]


@rule("F", revisions=LEGACY, why="modern revisions have no sessions", needs=(Trait.STREAMS,), grace=PATIENCE)
async def closing_a_session_cancels_its_calls_immediately(pair: Pair) -> None:
    async with pair.peer() as peer:
        await peer.call("wait")
        await pair.stage.marked("wait began")
    await pair.stage.marked("wait finally")


# bytes


@rule("F", needs=(Trait.BYTES,))
async def bytes_in_another_encoding_are_rejected_and_the_next_message_is_processed(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert (await pair.refused(peer, ACCENTED.encode("latin-1")))["code"] == -32700
        await peer.ping()


@rule("F", needs=(Trait.TEXT,))
async def a_second_byte_order_mark_before_a_message_is_rejected(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert (await pair.refused(peer, BOM_UTF8 + BOM_UTF8 + ACCENTED.encode()))["code"] == -32700
        await peer.ping()


@rule("F", needs=(Trait.TEXT,))
async def an_ambiguous_message_is_rejected(pair: Pair) -> None:
    async with pair.peer() as peer:
        for data in (
            b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}',
            b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":NaN}}',
        ):
            assert (await pair.refused(peer, data))["code"] == -32700
        await peer.ping()


# a server that is a process


@rule("F", needs=(Trait.CHILD,))
async def output_of_a_tool_or_its_child_is_not_on_the_wire(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await (await peer.call("print_everywhere")).text() == "printed"
        await peer.ping()
        assert peer.unread() == []


@rule("F", needs=(Trait.CHILD,))
async def a_tool_reads_nothing_from_stdin(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await (await peer.call("read_input")).text() == ""
        await peer.ping()


@rule("F", needs=(Trait.CHILD,))
async def a_server_ends_with_its_input_and_lets_running_calls_clean_up(pair: Pair) -> None:
    async with pair.peer() as peer:
        await peer.call("wait")
        await pair.stage.marked("wait began")
        await pair.cut()
        assert await peer.ended() == []
        await pair.stage.marked("wait finally")
    assert pair.stage.count("wait ended") == 0


@rule("F", needs=(Trait.CHILD, Trait.BYTES))
async def a_message_split_over_two_lines_is_two_invalid_messages(pair: Pair) -> None:
    async with pair.peer() as peer:
        await pair.endpoint.send_bytes(peer.channel, b'{"jsonrpc":"2.0","id":1,\n"method":"ping"}')
        assert [(await refusal(peer))["code"] for _ in range(2)] == [-32700, -32700]
        await peer.ping()


async def lost(pair: Pair, peer: Peer) -> Call:
    """Start a call that waits at the first of two gates, with ten reports behind each, and lose its stream."""
    call = await peer.call("tell", {"n": 10, "gates": 2}, progress="token")
    assert told_of(await peer.message("notifications/progress")) == 0
    await pair.cut()
    return call


def reported(peer: Peer) -> list[object]:
    """Take all the messages that have arrived, which are progress notifications; return their values."""
    return [told_of(message) for message in peer.unread()]


def told_of(message: JsonObject) -> object:
    assert message.get("method") == "notifications/progress", message
    params = message["params"]
    assert isinstance(params, dict)
    return params["progress"]


def token_of(message: JsonObject) -> object:
    params = message["params"]
    assert isinstance(params, dict)
    return params["progressToken"]


async def refusal(peer: Peer) -> JsonObject:
    """Return the error that answers something that is not a request."""
    message = await peer.first(lambda message: "error" in message)
    error = message["error"]
    assert isinstance(error, dict)
    return error
