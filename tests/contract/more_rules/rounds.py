"""Group G: what only 2026-07-28 has: requests without a session, calls in rounds, and streams of changes."""

from __future__ import annotations

import trio
from wire_terms import SUBSCRIPTION_ID

from trio_mcp.testing.contract.makers import Trait
from trio_mcp.testing.contract.pair import Pair
from trio_mcp.testing.contract.peer import EVERYTHING, Call, Peer, accepted
from trio_mcp.testing.contract.rules import MODERN, rule
from trio_mcp.types import JsonObject

from .tools import NOTE

NO_ROUNDS = "legacy revisions have no rounds: a server sends its questions as requests"
NO_META = "a legacy client sends its capabilities once per session"
NO_LISTEN = "legacy revisions have no subscriptions/listen"

ANSWERS: dict[str, JsonObject] = {
    "elicitation/create": accepted(value=3),
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"},
    "roots/list": {"roots": [{"uri": "file:///here"}]},
}


# every request says all there is to say


@rule("G", revisions=MODERN, why="legacy revisions have no discovery")
async def a_server_is_discovered(pair: Pair) -> None:
    async with pair.unopened() as peer:
        result = await peer.result(await peer.request("server/discover"))
        assert pair.revision in result["supportedVersions"]  # type: ignore[operator]
        assert (result["instructions"], result["resultType"]) == ("Be strict.", "complete")
        assert "tools" in result["capabilities"]  # type: ignore[operator]


@rule("G", revisions=MODERN, why=NO_META)
async def the_client_capabilities_of_one_request_apply_to_no_other(pair: Pair) -> None:
    async with pair.peer() as peer:
        peer.capabilities = {}
        assert (await (await peer.call("gated")).error())["code"] == -32021
        peer.capabilities = EVERYTHING
        assert await (await peer.call("gated")).text() == "with a model"
        peer.capabilities = {}
        assert (await (await peer.call("gated")).error())["code"] == -32021


@rule("G", revisions=MODERN, why="the tool is hidden from legacy clients")
async def a_tool_that_some_clients_cannot_serve_is_listed_for_all(pair: Pair) -> None:
    async with pair.peer({}) as peer:
        tools = (await peer.result(await peer.request("tools/list")))["tools"]
        assert "gated" in [tool["name"] for tool in tools]  # type: ignore[union-attr, index, call-overload]


# rounds


@rule("G", revisions=MODERN, why=NO_ROUNDS)
async def a_call_asks_the_user_the_model_and_the_roots_in_one_round(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask_everything")
        asked = await call.round()
        assert sorted(question.method for question in asked.values()) == sorted(ANSWERS)
        await call.go_on({key: ANSWERS[question.method] for key, question in asked.items()})
        assert await call.text() == "3 hi file:///here"


@rule("G", revisions=MODERN, why=NO_ROUNDS)
async def a_call_may_take_several_rounds_and_runs_once(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask_twice")
        for number in (1, 2):
            (key,) = await call.round()
            assert pair.stage.count(f"answer {number}") == 0
            await call.go_on({key: accepted(value=number)})
        assert await call.text() == "1 2"
    assert [pair.stage.count(f"answer {number}") for number in (1, 2)] == [1, 1]


# the state


@rule("G", revisions=MODERN, why=NO_ROUNDS)
async def answers_without_a_state_begin_a_new_call(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = Call(peer, "ask_twice", {})
        await call.send(inputResponses={"elicit-1": accepted(value=9)})
        (key,) = await call.round()
        assert pair.stage.count("answer 1") == 0
        await finish(call, key)


@rule("G", revisions=MODERN, why=NO_ROUNDS, needs=(Trait.SERVES_MANY,))
async def a_parked_call_outlives_its_connection_and_continues_over_another(pair: Pair) -> None:
    async with pair.peer() as lost:
        call = await lost.call("ask_twice")
        (key,) = await call.round()
        await pair.cut()
    async with pair.peer() as peer:
        again = Call(peer, "ask_twice", {})
        again.state = call.state
        await finish(again, key)


@rule("G", revisions=MODERN, why=NO_ROUNDS)
async def a_cancel_of_a_leg_that_has_ended_leaves_the_call_parked(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask_twice")
        (key,) = await call.round()
        await call.cancel()
        await peer.ping()
        await finish(call, key)


@rule("G", revisions=MODERN, why=NO_ROUNDS)
async def a_cancel_of_a_later_leg_ends_the_call_permanently(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask_and_wait")
        (key,) = await call.round()
        await call.go_on({key: accepted(value=1)})
        await pair.stage.marked("answered")
        await call.cancel()
        await pair.stage.at_rest()
        await call.go_on({key: accepted(value=1)})
        assert "error" in await peer.reply(call.id)
    assert pair.stage.count("answered") == 1


# streams


@rule("G", revisions=MODERN, why=NO_LISTEN)
async def a_listener_is_notified_of_changes_until_it_disconnects(pair: Pair) -> None:
    async with pair.peer() as peer:
        listening = await listen(peer)
        assert await (await peer.call("touch")).text() == "touched"
        params = (await peer.message("notifications/resources/updated"))["params"]
        assert isinstance(params, dict)
        assert params["uri"] == NOTE
        assert params["_meta"] == {SUBSCRIPTION_ID: listening}
        await peer.cancel(listening)
        await pair.stage.at_rest()
        assert await (await peer.call("touch")).text() == "touched"
        await peer.ping()
        assert [message for message in peer.unread() if message.get("method") is not None] == []


@rule("G", revisions=MODERN, why=NO_LISTEN)
async def a_listener_ends_with_its_connection(pair: Pair) -> None:
    async with pair.peer() as peer:
        await listen(peer)
        await pair.cut()
        await pair.stage.at_rest()


@rule("G", revisions=MODERN, why=NO_LISTEN)
async def a_listener_receives_its_result_when_the_server_shuts_down(pair: Pair) -> None:
    async with pair.peer() as peer:
        listening = await listen(peer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.stop, 0.0)
            assert (await peer.result(listening))["resultType"] == "complete"


@rule("G", revisions=MODERN, why="a legacy stream can be resumed", needs=(Trait.STREAMS,), grace=60.0)
async def closing_the_response_stream_cancels_its_call_immediately(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask_and_wait")
        (key,) = await call.round()
        await call.go_on({key: accepted(value=1)})
        await pair.stage.marked("answered")
        await pair.cut()
        await pair.stage.at_rest()


# steps of the rules


async def finish(call: Call, key: str) -> None:
    """Answer both questions of `ask_twice`, the first under this key, and check that the call ends well."""
    await call.go_on({key: accepted(value=1)})
    (second,) = await call.round()
    await call.go_on({second: accepted(value=2)})
    assert await call.text() == "1 2"


async def listen(peer: Peer) -> int | str:
    """Listen for changes of the note; return the id of the request."""
    listening = await peer.request("subscriptions/listen", {"notifications": {"resourceSubscriptions": [NOTE]}})
    honoured = (await peer.message("notifications/subscriptions/acknowledged"))["params"]
    assert isinstance(honoured, dict)
    assert honoured["notifications"] == {"resourceSubscriptions": [NOTE]}
    return listening
