"""The rounds of a modern call, from the client's side."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import trio
from naming import naming
from scripted import Json, Wire, as_modern, asking, conversation, said
from trio.testing import MockClock

from trio_mcp.client import MAX_ROUNDS, accept, decline
from trio_mcp.errors import CapabilityError, LimitExceeded, RemoteProtocolError, RequestTimeout

STATE = ' odd "state" \\u0041 + / = \u00e9\U0001f600 '


def answering(seen: list[Any] | None = None) -> Callable[[Any], Any]:
    def on_elicit(params: Any) -> Any:
        if seen is not None:
            seen.append(params.message)
        return accept(a=1)

    return on_elicit


async def leg(wire: Wire) -> tuple[Json, Json]:
    """The next leg of the call: the request, and its params."""
    request = await wire.request("tools/call")
    return request, request["params"]


async def test_a_round_is_answered_and_the_call_sent_again() -> None:
    async with conversation(as_modern, on_elicit=answering()) as (client, wire, start):
        call = start(client.call_tool, "book", {"to": "Lisbon"})
        first, params = await leg(wire)
        assert params.keys().isdisjoint({"inputResponses", "requestState"})
        await wire.respond(first, asking("a", "b", state="s1"))
        second, params = await leg(wire)
        assert (params["name"], params["arguments"]) == ("book", {"to": "Lisbon"})
        answer = {"action": "accept", "content": {"a": 1}}
        assert {"a": answer, "b": answer} == params["inputResponses"]
        assert params["requestState"] == "s1"
        await wire.respond(second, said("booked"))
        assert (await call.result()).text == "booked"


async def test_every_round_has_an_id_and_a_progress_token_of_its_own() -> None:
    seen: list[float] = []
    async with conversation(as_modern, on_elicit=answering()) as (client, wire, start):
        call = start(client.call_tool, "book", on_progress=lambda params: seen.append(params.progress))
        ids, tokens = [], []
        for number in range(4):
            request, params = await leg(wire)
            ids.append(request["id"])
            tokens.append(params["_meta"]["progressToken"])
            await wire.notify("notifications/progress", {"progressToken": tokens[-1], "progress": number})
            await wire.respond(request, asking("a", state=str(number)) if number < 3 else said("done"))
        await call.result()
    assert 4 == len(set(ids)) == len(set(tokens))
    assert seen == [0, 1, 2, 3]


async def test_the_state_is_sent_back_exactly_as_it_came() -> None:
    async with conversation(as_modern, on_elicit=answering()) as (client, wire, start):
        call = start(client.call_tool, "book")
        request, _ = await leg(wire)
        await wire.respond(request, asking("a", state=STATE))
        request, params = await leg(wire)
        assert params["requestState"] == STATE
        await wire.respond(request, said("done"))
        await call.result()


async def test_a_round_without_a_state_is_answered_without_one_also_after_one_with() -> None:
    async with conversation(as_modern, on_elicit=answering()) as (client, wire, start):
        call = start(client.call_tool, "book")
        for state in ("s1", None, "s3"):
            request, params = await leg(wire)
            await wire.respond(request, asking("a", state=state))
        request, params = await leg(wire)
        assert params["requestState"] == "s3"
        await wire.respond(request, asking("a"))
        request, params = await leg(wire)
        assert "requestState" not in params
        assert {"a"} == set(params["inputResponses"])
        await wire.respond(request, said("done"))
        await call.result()


async def test_answers_belong_to_their_own_round_only() -> None:
    async with conversation(as_modern, on_elicit=answering()) as (client, wire, start):
        call = start(client.call_tool, "book")
        for keys in (("a", "b"), ("c",)):
            request, _ = await leg(wire)
            await wire.respond(request, asking(*keys, state="s"))
        request, params = await leg(wire)
        assert {"c"} == set(params["inputResponses"])
        await wire.respond(request, said("done"))
        await call.result()


async def test_the_state_of_one_call_never_travels_with_another() -> None:
    async with conversation(as_modern, on_elicit=answering()) as (client, wire, start):
        call = start(client.call_tool, "first")
        request, _ = await leg(wire)
        await wire.respond(request, asking("a", state="secret"))
        carried, _ = await leg(wire)
        start(client.call_tool, "second")
        _, params = await leg(wire)
        assert (params["name"], params.get("requestState")) == ("second", None)
        await wire.respond(carried, said("done"))
        await call.result()


async def test_the_questions_of_a_round_are_answered_side_by_side() -> None:
    waiting: list[object] = []
    all_asked = trio.Event()

    async def on_elicit(params: Any) -> Any:
        waiting.append(params)
        if len(waiting) == 3:
            all_asked.set()
        await all_asked.wait()
        return decline()

    async with conversation(as_modern, on_elicit=on_elicit) as (client, wire, start):
        start(client.call_tool, "book")
        request, _ = await leg(wire)
        await wire.respond(request, asking("a", "b", "c", state="s"))
        _, params = await leg(wire)
        assert {key: {"action": "decline"} for key in "abc"} == params["inputResponses"]


async def test_samples_and_roots_are_answered_in_rounds_too() -> None:
    sample = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}
    questions = {"s": {"method": "sampling/createMessage", "params": sample}, "r": {"method": "roots/list"}}
    handlers = {"on_sample": lambda _params: "short", "on_roots": list}
    async with conversation(as_modern, **handlers) as (client, wire, start):
        start(client.call_tool, "book")
        request, _ = await leg(wire)
        await wire.respond(request, {"resultType": "input_required", "inputRequests": questions})
        _, params = await leg(wire)
        assert params["inputResponses"]["s"]["content"]["text"] == "short"
        assert params["inputResponses"]["r"] == {"roots": []}


# limits


@pytest.mark.parametrize("max_rounds", [0, 1, 3, MAX_ROUNDS])
async def test_a_server_that_asks_for_ever_is_left_after_max_rounds(max_rounds: int) -> None:
    seen: list[object] = []
    async with conversation(as_modern, on_elicit=answering(seen)) as (client, wire, start):
        options = {} if max_rounds == MAX_ROUNDS else {"max_rounds": max_rounds}
        call = start(client.call_tool, "book", **options)
        for number in range(max_rounds + 1):
            request, _ = await leg(wire)
            await wire.respond(request, asking("a", state=str(number)))
        with pytest.raises(LimitExceeded, match=naming(f"{max_rounds} rounds")):
            await call.result()
        await wire.silence(0.05)
    assert max_rounds == len(seen)


async def test_a_round_that_asks_nothing_is_answered_at_a_gentle_pace(autojump_clock: MockClock) -> None:
    async with conversation(as_modern) as (client, wire, start):
        call = start(client.call_tool, "book")
        times: list[float] = []
        for _ in range(MAX_ROUNDS):
            request, params = await leg(wire)
            times.append(trio.current_time())
            assert "inputResponses" not in params
            await wire.respond(request, asking(state="not yet"))
        request, params = await leg(wire)
        assert params["requestState"] == "not yet"
        await wire.respond(request, said("ready"))
        assert (await call.result()).text == "ready"
        pauses = [later - earlier for earlier, later in pairwise(times)]
        assert all(pause >= 0.05 for pause in pauses)
        assert sorted(pauses) == pytest.approx(pauses)
        assert max(pauses) < 1


async def test_the_timeout_of_a_call_covers_all_its_rounds(autojump_clock: MockClock) -> None:
    async with conversation(as_modern) as (client, wire, start):
        call = start(client.call_tool, "book", timeout=0.3)
        while not call.over:
            with trio.move_on_after(0.2):
                request = await wire.receive()
                if "id" in request:
                    await wire.respond(request, asking(state="s"))
        with pytest.raises(RequestTimeout):
            await call.result()
        assert trio.current_time() < 1


# failing


async def test_a_handler_that_fails_ends_the_call_without_a_retry() -> None:
    def broken(_params: object) -> None:
        raise LookupError("mine")

    async with conversation(as_modern, on_elicit=broken) as (client, wire, start):
        call = start(client.call_tool, "book")
        request, _ = await leg(wire)
        await wire.respond(request, asking("a", state="s"))
        with pytest.raises(LookupError, match="mine"):
            await call.result()
        await wire.silence(0.05)


async def test_a_handler_that_fails_cancels_the_others_of_its_round() -> None:
    events: list[str] = []
    entered = trio.Event()

    async def on_elicit(_params: object) -> Any:
        if not events:
            events.append("first")
            entered.set()
            try:
                await trio.sleep_forever()
            finally:
                events.append("cancelled")
        await entered.wait()
        raise LookupError

    async with conversation(as_modern, on_elicit=on_elicit) as (client, wire, start):
        call = start(client.call_tool, "book")
        request, _ = await leg(wire)
        await wire.respond(request, asking("a", "b", state="s"))
        with pytest.raises(LookupError):
            await call.result()
    assert events == ["first", "cancelled"]


async def test_a_question_that_was_never_declared_ends_the_call() -> None:
    async with conversation(as_modern, on_sample=lambda _params: "x") as (client, wire, start):
        call = start(client.call_tool, "book")
        request, _ = await leg(wire)
        await wire.respond(request, asking("a", state="s"))
        with pytest.raises(CapabilityError, match="elicitation/create"):
            await call.result()
        await wire.silence(0.05)


@pytest.mark.parametrize(
    "result",
    [
        {"resultType": "input_required"},
        {"resultType": "input_required", "inputRequests": {}},
        {"resultType": "input_required", "inputRequests": {"a": {"method": "no/such", "params": {}}}},
        {"resultType": "input_required", "inputRequests": [1]},
        {"resultType": "input_required", "requestState": 7},
        {"resultType": "later"},
        {"resultType": 7},
    ],
    ids=str,
)
async def test_a_malformed_round_raises_in_its_own_call_only(result: Json) -> None:
    async with conversation(as_modern, on_elicit=answering()) as (client, wire, start):
        broken, fine = start(client.call_tool, "broken"), start(client.call_tool, "fine")
        for _ in range(2):
            request, params = await leg(wire)
            await wire.respond(request, result if params["name"] == "broken" else said("fine"))
        with pytest.raises(RemoteProtocolError, match="result"):
            await broken.result()
        assert (await fine.result()).text == "fine"


async def test_a_call_that_is_cancelled_while_its_user_thinks_cancels_the_handler(autojump_clock: MockClock) -> None:
    events: list[str] = []

    async def on_elicit(_params: object) -> Any:
        try:
            await trio.sleep_forever()
        finally:
            events.append("cancelled")

    async with conversation(as_modern, on_elicit=on_elicit) as (client, wire, start):
        call = start(client.call_tool, "book", timeout=3)
        request, _ = await leg(wire)
        await wire.respond(request, asking("a", state="s"))
        with pytest.raises(RequestTimeout):
            await call.result()
        await wire.silence()
    assert events == ["cancelled"]
