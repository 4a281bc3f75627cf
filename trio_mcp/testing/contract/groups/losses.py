"""Group D, second part: lost connections, many concurrent calls, slow readers, and the shutdown of the server."""

from __future__ import annotations

import trio

from ..expecting import nothing_more_of, read_until
from ..makers import Trait
from ..pair import Pair
from ..peer import Peer
from ..rules import LEGACY, rule
from .structured import PARKED, asks_and_works

ENDS_AT_ONCE = "such a server ends immediately when it is stopped or its one client disconnects"

# a connection that is lost


@rule("D")
async def a_call_ends_when_its_connection_is_lost(pair: Pair) -> None:
    async with pair.peer() as peer:
        await peer.call("wait")
        await pair.stage.marked("wait began")
        await pair.cut()
        await pair.stage.marked("wait finally")


@rule("D", revisions=LEGACY, why=PARKED)
async def a_call_that_samples_ends_when_its_connection_is_lost(pair: Pair) -> None:
    async with pair.peer() as peer:
        await (await peer.call("ask_model", {"prompt": "hello"})).question()
        await pair.cut()
        await pair.stage.marked("ask_model finally disconnect")


@rule("D")
async def a_call_that_asks_and_works_ends_when_its_connection_is_lost(pair: Pair) -> None:
    async with pair.peer() as peer:
        await peer.call("ask_and_work")
        await asks_and_works(pair)
        await pair.cut()
        await pair.stage.marked("asker finally")
        await pair.stage.marked("worker finally")


@rule("D")
async def a_call_that_writes_ends_when_its_connection_is_lost(pair: Pair) -> None:
    async with pair.peer() as peer:
        await peer.call("chatter", logs="debug")
        await pair.stage.marked("chatter held up")
        await pair.cut()
        await pair.stage.marked("chatter finally")


@rule("D", needs=(Trait.SERVES_MANY,))
async def a_lost_connection_does_not_disturb_another(pair: Pair) -> None:
    async with pair.peer() as peer:
        await peer.call("wait")
        await pair.stage.marked("wait began")
        await pair.cut()
    async with pair.client() as client:
        assert (await client.call_tool("echo", {"text": "again"})).text == "again"


@rule("D", needs=(Trait.SERVES_MANY,))
async def a_new_connection_receives_nothing_of_a_lost_one(pair: Pair) -> None:
    async with pair.peer() as lost:
        call = await lost.call("shielded", progress="token", logs="debug")
        await pair.stage.marked("shielded began")
        await pair.cut()
    async with pair.peer() as peer:
        again = await peer.call("wait")
        assert again.id == call.id
        await pair.stage.marked("wait began")
        await pair.stage.open("shielded")
        await pair.stage.marked("shielded ended")
        await nothing_more_of(peer, again)
        await pair.stage.open("wait")
        assert await again.text() == "wait"


# many at once


@rule("D")
async def a_hundred_concurrent_calls_each_get_their_own_answer(pair: Pair) -> None:
    async with pair.peer() as peer:
        calls = [await peer.call("wait", {"name": f"w{number}"}) for number in range(100)]
        for number in reversed(range(100)):
            await pair.stage.marked(f"w{number} began")
            await pair.stage.open(f"w{number}")
        assert [await call.text() for call in calls] == [f"w{number}" for number in range(100)]


@rule("D")
async def a_slow_reader_does_not_stop_calls_that_run(pair: Pair) -> None:
    async with pair.peer() as peer:
        bystander = await peer.call("wait")
        await pair.stage.marked("wait began")
        talker = await peer.call("chatter", logs="debug")
        await pair.stage.marked("chatter held up")
        await pair.stage.open("wait")
        await pair.stage.marked("wait ended")
        assert await bystander.text() == "wait"
        await talker.cancel()
        await read_until(peer, pair, "chatter finally")


@rule("D", needs=(Trait.SOCKET,))
async def a_cancel_arrives_although_no_message_of_the_server_does(pair: Pair) -> None:
    async with pair.peer() as peer, trio.open_nursery() as nursery:
        talker = await peer.call("chatter", logs="debug")
        await pair.stage.marked("chatter began")
        pair.endpoint.stall()
        await pair.stage.marked("chatter held up")
        nursery.start_soon(talker.cancel)  # it may wait until the server says that it took it
        await pair.stage.marked("chatter finally")
        nursery.cancel_scope.cancel()
        await pair.cut()


@rule("D")
async def a_call_that_ignores_its_cancellation_blocks_no_other_call(pair: Pair) -> None:
    async with pair.peer() as peer:
        stubborn = await peer.call("shielded")
        await pair.stage.marked("shielded began")
        await peer.ping()
        await stubborn.cancel()
        await peer.ping()
        assert await (await peer.call("echo", {"text": "still here"})).text() == "still here"
        await pair.stage.open("shielded")
        await pair.stage.marked("shielded ended")
        await pair.stage.at_rest()
        await nothing_more_of(peer, stubborn)


# the end of the server


@rule("D", needs={Trait.SERVES_MANY: ENDS_AT_ONCE})
async def a_shutdown_waits_for_calls_and_rejects_new_ones(pair: Pair) -> None:
    async with pair.peer() as peer, trio.open_nursery() as nursery:
        running = await peer.call("wait")
        await pair.stage.marked("wait began")
        nursery.start_soon(pair.stop, 10.0)
        assert "shutting down" in await refused_call(peer)
        await pair.stage.open("wait")
        assert await running.text() == "wait"


@rule("D")
async def a_shutdown_cancels_calls_that_do_not_end_and_answers_their_callers(pair: Pair) -> None:
    async with pair.peer() as peer:
        running = await peer.call("wait")
        await pair.stage.marked("wait began")
        await pair.stop(0.05)
        assert "shutting down" in await peer.refusal(running.id)
    assert pair.stage.count("wait finally") == 1
    assert pair.stage.count("wait ended") == 0


@rule("D", needs=(Trait.CHILD,))
async def a_child_that_is_stopped_cancels_its_calls(pair: Pair) -> None:
    async with pair.peer() as peer:
        await peer.call("wait")
        await pair.stage.marked("wait began")
        await pair.stop(0.05)
        await pair.stage.marked("wait finally")


# steps of the rules


async def refused_call(peer: Peer) -> str:
    """Call until the server rejects a call; return its reason."""
    while True:
        reply = await peer.reply((await peer.call("echo", {"text": "x"})).id)
        if "result" not in reply:
            return str(reply)
