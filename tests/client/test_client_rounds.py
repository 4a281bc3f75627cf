"""The rounds of a modern call, from the client's side."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NoReturn

import pytest
import trio
from naming import naming, unnamed
from scripted import (
    FORM_QUESTION,
    ROOTS_QUESTION,
    SAMPLE_QUESTION,
    Gathering,
    Json,
    Thinker,
    as_legacy,
    as_modern,
    asking,
    calling,
    conversation,
    interim,
    said,
    works,
)

from trio_mcp.client import MAX_ROUNDS, accept
from trio_mcp.errors import CapabilityError, LimitExceeded, PeerError, RemoteProtocolError, RequestTimeout

STATE = ' odd "state" \\u0041 + / = \u00e9\U0001f600 '
ACCEPTED = {"action": "accept", "content": {"a": 1}}


def accepting(_params: object) -> Any:
    return accept(a=1)


async def legs_of(*interims: Json, **handlers: Any) -> list[Json]:
    """The params of each leg of a call to which a server answers with these results, and then that it is done."""
    async with conversation(as_modern, **{"on_elicit": accepting, **handlers}) as (client, wire, start):
        call = start(client.call_tool, "book", {"to": "Lisbon"})
        legs = [await wire.reply("tools/call", result) for result in (*interims, said("booked"))]
        assert (await call.result()).text == "booked"
    assert len({leg["id"] for leg in legs}) == len(legs)
    return [leg["params"] for leg in legs]


async def test_a_round_is_answered_and_the_call_sent_again() -> None:
    first, second = await legs_of(asking("a", "b", state="s1"))
    assert first.keys().isdisjoint({"inputResponses", "requestState"})
    assert (second["name"], second["arguments"]) == ("book", {"to": "Lisbon"})
    assert (second["inputResponses"], second["requestState"]) == ({"a": ACCEPTED, "b": ACCEPTED}, "s1")


async def test_every_round_has_a_new_id_and_a_new_progress_token() -> None:
    seen: list[float] = []
    async with conversation(as_modern, on_elicit=accepting) as (client, wire, start):
        call = start(client.call_tool, "book", on_progress=lambda params: seen.append(params.progress))
        legs = []
        for number in range(4):
            legs.append(await wire.request("tools/call"))
            await wire.report(legs[-1], number)
            await wire.respond(legs[-1], asking("a", state=str(number)) if number < 3 else said("done"))
        await call.result()
    assert len({leg["id"] for leg in legs}) == len({leg["params"]["_meta"]["progressToken"] for leg in legs}) == 4
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "states", [[STATE], ["s1", None], [None, "s2"], ["s1", "s2", None]], ids=["odd", "with and without", "late", "both"]
)
async def test_the_state_is_sent_back_exactly_as_it_came_and_none_where_none_came(states: list[str | None]) -> None:
    legs = await legs_of(*(asking("a", state=state) for state in states))
    assert [leg.get("requestState") for leg in legs[1:]] == states
    assert all(leg["inputResponses"] == {"a": ACCEPTED} for leg in legs[1:])


async def test_answers_belong_to_their_own_round_only() -> None:
    _, second, third = await legs_of(asking("a", "b", state="s"), asking("c", state="s"))
    assert (set(second["inputResponses"]), set(third["inputResponses"])) == ({"a", "b"}, {"c"})


async def test_the_state_of_one_call_never_travels_with_another() -> None:
    async with conversation(as_modern, on_elicit=accepting) as (client, wire, start):
        call = start(client.call_tool, "first")
        await wire.reply("tools/call", asking("a", state="secret"))
        carried = await wire.request("tools/call")
        start(client.call_tool, "second")
        params = (await wire.request("tools/call"))["params"]
        assert (params["name"], params.get("requestState")) == ("second", None)
        await wire.respond(carried, said("done"))
        await call.result()


async def test_the_questions_of_a_round_are_answered_side_by_side() -> None:
    _, second = await legs_of(asking("a", "b", "c", state="s"), on_elicit=Gathering(3))
    assert second["inputResponses"] == {key: {"action": "decline"} for key in "abc"}


async def test_samples_and_roots_are_answered_in_rounds_too() -> None:
    questions = interim({"s": SAMPLE_QUESTION, "r": ROOTS_QUESTION})
    _, second = await legs_of(questions, on_sample=lambda _params: "short", on_roots=list)
    assert second["inputResponses"]["s"]["content"]["text"] == "short"
    assert second["inputResponses"]["r"] == {"roots": []}


@pytest.mark.parametrize(("method", "call"), [("prompts/get", "get_prompt"), ("resources/read", "read_resource")])
async def test_prompts_and_resources_may_ask_in_rounds_too(method: str, call: str) -> None:
    async with conversation(as_modern, on_elicit=accepting) as (client, wire, start):
        pending = start(getattr(client, call), "a://b")
        first = await wire.reply(method, asking("who", state="s"))
        second = await wire.reply(method, {"messages": [], "contents": [], "ttlMs": 0, "cacheScope": "private"})
        assert second["params"]["inputResponses"] == {"who": ACCEPTED}
        assert second["params"]["requestState"] == "s"
        assert second["id"] != first["id"]
        await pending.result()


@pytest.mark.parametrize("max_rounds", [0, 1, 3, MAX_ROUNDS])
async def test_a_server_that_asks_endlessly_is_left_after_max_rounds(max_rounds: int) -> None:
    seen: list[object] = []
    async with conversation(as_modern, on_elicit=lambda params: seen.append(params) or accept()) as (
        client,
        wire,
        start,
    ):
        options = {} if max_rounds == MAX_ROUNDS else {"max_rounds": max_rounds}
        call = start(client.call_tool, "book", **options)
        for number in range(max_rounds + 1):
            await wire.reply("tools/call", asking("a", state=str(number)))
        await call.fails(LimitExceeded, naming(f"{max_rounds} rounds"))
        await wire.silence()
    assert max_rounds == len(seen)


async def test_a_round_that_asks_nothing_is_answered_at_a_gentle_pace() -> None:
    async with conversation(as_modern) as (client, wire, start):
        call = start(client.call_tool, "book")
        times: list[float] = []
        for _ in range(MAX_ROUNDS):
            request = await wire.reply("tools/call", asking(state="not yet"))
            times.append(trio.current_time())
            assert "inputResponses" not in request["params"]
        request = await wire.reply("tools/call", said("ready"))
        assert request["params"]["requestState"] == "not yet"
        assert (await call.result()).text == "ready"
        pauses = [later - earlier for earlier, later in pairwise(times)]
        assert all(pause >= 0.05 for pause in pauses)
        assert sorted(pauses) == pytest.approx(pauses)
        assert max(pauses) < 1


async def test_the_timeout_of_a_call_covers_all_its_rounds() -> None:
    async with conversation(as_modern) as (client, wire, start):
        call = start(client.call_tool, "book", timeout=0.3)
        while not call.over:
            with trio.move_on_after(0.2):
                request = await wire.receive()
                if "id" in request:
                    await wire.respond(request, asking(state="s"))
        await call.fails(RequestTimeout)
        assert trio.current_time() < 1


def broken(_params: object) -> None:
    raise LookupError("mine")


@pytest.mark.parametrize(
    ("handlers", "kind", "named"),
    [
        ({"on_elicit": broken}, LookupError, "mine"),
        ({"on_sample": lambda _params: "x"}, CapabilityError, "elicitation/create"),
    ],
    ids=["fails", "is missing"],
)
async def test_a_handler_that_fails_or_was_never_declared_ends_the_call_without_a_retry(
    handlers: Json, kind: type[Exception], named: str
) -> None:
    async with calling(as_modern, handlers) as (wire, call, request):
        await wire.respond(request, asking("a", state="s"))
        await call.fails(kind, named)
        await wire.silence()


async def refuse_together(method: str, barrier: list[trio.Event]) -> None:
    """Refuse a question when both have been asked, the one that was asked last first."""
    barrier.append(trio.Event())
    if len(barrier) == 2:
        barrier[0].set()
        raise PeerError(-1, f"the user refused {method}")
    await barrier[0].wait()
    raise PeerError(-2, f"the user refused {method}")


def refusing() -> Json:
    barrier: list[trio.Event] = []
    return {
        "on_elicit": lambda _params: refuse_together("a form", barrier),
        "on_sample": lambda _params: refuse_together("a sample", barrier),
    }


async def test_questions_that_are_refused_together_raise_the_error_of_the_first_in_a_round() -> None:
    async with calling(as_modern, refusing()) as (wire, call, request):
        await wire.respond(request, interim({"q": FORM_QUESTION, "s": SAMPLE_QUESTION}))
        caught = await call.fails(PeerError)
        assert caught.code == -1
        (note,) = caught.__notes__
        assert unnamed(note, "PeerError", "(code -2)") == []
        await wire.silence()


async def test_questions_that_are_refused_together_in_a_session_are_errors_for_the_server() -> None:
    async with calling(as_legacy, refusing()) as (wire, call, request):
        await wire.send({"id": "q", **FORM_QUESTION})
        await wire.send({"id": "s", **SAMPLE_QUESTION})
        answers = [await wire.receive(), await wire.receive()]
        assert sorted(answer["error"]["code"] for answer in answers) == [-2, -1]
        # The server decides what becomes of the call.
        await wire.respond(request, said("booked without asking"))
        assert (await call.result()).text == "booked without asking"


async def test_a_handler_that_fails_as_it_is_cancelled_raises_its_error_in_the_caller() -> None:
    async def fails_late(_params: object) -> NoReturn:
        try:
            await trio.sleep_forever()
        finally:
            raise LookupError("mine")

    async with calling(as_modern, {"on_elicit": fails_late}, timeout=1) as (wire, call, request):
        await wire.respond(request, asking("a", "b", state="s"))
        await call.fails(LookupError)


async def test_a_handler_that_fails_cancels_the_others_of_its_round() -> None:
    thinks = Thinker()

    async def on_elicit(params: object) -> Any:
        if not thinks.asked.is_set():
            return await thinks(params)
        raise LookupError

    async with calling(as_modern, {"on_elicit": on_elicit}) as (wire, call, request):
        await wire.respond(request, asking("a", "b", state="s"))
        await call.fails(LookupError)
    assert thinks.cancelled


MALFORMED = [
    {"resultType": "input_required"},
    {"resultType": "input_required", "inputRequests": {}},
    {"resultType": "input_required", "inputRequests": {"a": {"method": "no/such", "params": {}}}},
    {"resultType": "input_required", "inputRequests": [1]},
    {"resultType": "input_required", "requestState": 7},
    {"resultType": "later"},
    {"resultType": 7},
    {},
    {"content": 7},
    {"content": "text"},
]


@pytest.mark.parametrize(
    ("opening", "result"),
    [*((as_modern, result) for result in MALFORMED), *((as_legacy, result) for result in MALFORMED[-3:])],
)
async def test_a_malformed_result_or_round_raises_in_its_own_call_only(opening: Any, result: Json) -> None:
    async with conversation(opening, on_elicit=accepting) as (client, wire, start):
        malformed = start(client.call_tool, "broken")
        request = await wire.request("tools/call")
        await works(client, wire, start)
        await wire.respond(request, result)
        await malformed.fails(RemoteProtocolError, r"result\.content" if result in MALFORMED[-3:] else "result")
        await works(client, wire, start)


async def test_a_call_that_is_cancelled_while_its_user_thinks_cancels_the_handler() -> None:
    thinks = Thinker()
    async with calling(as_modern, {"on_elicit": thinks}, timeout=3) as (wire, call, request):
        await wire.respond(request, asking("a", state="s"))
        await call.fails(RequestTimeout)
        assert thinks.cancelled
        await wire.silence()
