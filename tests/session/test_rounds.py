"""The rounds of a modern call: parked with all it has, it asks everything at once, and runs each leg at most once."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
import trio
from talk import Json, Talk, accept, log_level, offering, session_with, talk_to
from trio.testing import wait_all_tasks_blocked
from wire_terms import INVALID_PARAMS, MISSING_CAPABILITY

from trio_mcp import CancelReason
from trio_mcp.errors import InvalidRequestState
from trio_mcp.protocol.sealing import request_state
from trio_mcp.server import Accepted, Context, Server
from trio_mcp.session import KeyRing, Limits, ServiceOptions
from trio_mcp.session.calls import directory
from trio_mcp.types import JsonObject

STATE_ERROR = {"code": INVALID_PARAMS, "message": InvalidRequestState.TEXT}


def number_of(answer: object) -> int:
    assert isinstance(answer, Accepted)
    return answer.content


class Travel:
    """A server whose tool has side effects before, between and after its questions; `effects` records them."""

    def __init__(self, **options: Any) -> None:
        self.effects: list[str] = []
        self.server = offering(self.book, self.twice, self.both, **options)

    async def book(self, ctx: Context, to: str = "Lisbon") -> str:
        """One question between two side effects, and a clean-up that records why."""
        self.effects.append("searched")
        flights = ["TP1", "TP2"]
        try:
            choice = number_of(await ctx.elicit(f"Which flight to {to}?", int))
        except trio.Cancelled:
            self.effects.append(f"gave up: {ctx.cancel_reason}")
            raise
        self.effects.append("booked")
        return f"Booked {flights[choice]} to {to}"

    async def twice(self, ctx: Context) -> str:
        """Two questions, one after the other."""
        first = number_of(await ctx.elicit("First?", int))
        self.effects.append(f"first {first}")
        second = number_of(await ctx.elicit("Second?", int))
        self.effects.append(f"second {second}")
        return f"{first} {second}"

    async def both(self, ctx: Context) -> str:
        """Two questions at once."""
        answers = await ctx.branch_all(lambda c: c.elicit("Left?", int), lambda c: c.elicit("Right?", int))
        return " ".join(str(number_of(answer)) for answer in answers)


# parking


async def test_a_parked_call_keeps_its_locals_and_repeats_no_side_effect() -> None:
    travel = Travel()
    async with talk_to(travel.server) as talk:
        asked = await talk.round(talk.leg("book"))
        assert asked.message == "Which flight to Lisbon?"
        assert talk.service.supervisor.statistics().parked == 1
        assert await talk.text(asked.retry(1)) == "Booked TP2 to Lisbon"
    assert travel.effects == ["searched", "booked"]
    assert talk.service.supervisor.statistics().started == 1


async def test_each_leg_has_its_own_id_progress_token_and_log_level() -> None:
    async def reports(ctx: Context) -> str:
        for number in (1, 2):
            await ctx.progress(number)
            await ctx.log("info", f"in leg {number}")
            await ctx.elicit("Go on?", bool)
        await ctx.progress(3)
        return f"{ctx.request.id}"

    async with talk_to(offering(reports)) as talk:
        call = talk.leg("reports", id="a", meta={"progressToken": "t1"})
        assert (await talk.notification("notifications/progress"))["progressToken"] == "t1"
        asked = await talk.round(call)
        call = asked.retry(True, id="b", meta=log_level("info"))
        assert (await talk.notification("notifications/message"))["data"] == "in leg 2"
        asked = await talk.round(call)
        call = asked.retry(True, id="c", meta={"progressToken": "t3"})
        assert await talk.notification("notifications/progress") == {"progressToken": "t3", "progress": 3}
        assert await talk.text(call) == "c"


async def test_nothing_is_reported_while_no_leg_is_open() -> None:
    async def reports(ctx: Context) -> str:
        async with ctx.branches() as group:
            group.start(lambda c: c.elicit("Go on?", bool))
            await trio.sleep(1)
            await ctx.progress(1)
            await ctx.log("emergency", "nobody hears this")
        return "done"

    async with talk_to(offering(reports, settle=0.1)) as talk:
        asked = await talk.round(talk.leg("reports", meta={"progressToken": "t", **log_level("debug")}))
        await trio.sleep(2)
        assert await talk.text(asked.retry(True)) == "done"


# batching


async def test_a_busy_sibling_holds_a_round_back_for_the_settle_time_and_no_longer() -> None:
    async def asks(ctx: Context) -> str:
        async def computes(child: Context) -> str:
            await trio.sleep(3)
            return str(number_of(await child.elicit("Slow?", int)))

        fast, slow = await ctx.branch_all(lambda c: c.elicit("Fast?", int), computes)
        return f"{number_of(fast)} {slow}"

    async with talk_to(offering(asks, settle=0.5)) as talk:
        first = await talk.round(talk.leg("asks"))
        assert trio.current_time() == 0.5
        assert first.message == "Fast?"
        second = await talk.round(first.retry(1))
        assert trio.current_time() == 3
        assert second.message == "Slow?"
        assert await talk.text(second.retry(2)) == "1 2"


async def test_a_question_that_is_asked_while_the_call_is_parked_goes_out_with_the_next_round() -> None:
    async def asks(ctx: Context) -> str:
        async def late(child: Context) -> str:
            await trio.sleep(1)
            return str(number_of(await child.elicit("Late?", int)))

        early, later = await ctx.branch_all(lambda c: c.elicit("Early?", int), late)
        return f"{number_of(early)} {later}"

    async with talk_to(offering(asks, settle=0.1)) as talk:
        first = await talk.round(talk.leg("asks"))
        await trio.sleep(2)
        assert talk.waiting() == []
        second = await talk.round(first.retry(1))
        assert second.message == "Late?"
        assert await talk.text(second.retry(2)) == "1 2"


async def test_a_round_is_never_empty() -> None:
    """A branch that ends while its parent waits for it must not end the leg with nothing to ask."""

    async def works(ctx: Context) -> str:
        for number in range(3):
            await ctx.branch_all(*[asks_once] * 3)
            await ctx.branch(asks_once)
            with trio.move_on_after(number):
                await ctx.elicit("Quick?", int)
            await trio.sleep(1)
        return "done"

    async def asks_once(child: Context) -> None:
        await child.elicit("?", int)
        await trio.sleep(0.05)

    async with talk_to(offering(works, settle=0.1)) as talk:
        call = talk.leg("works")
        for _ in range(30):
            result = await talk.result(call)
            if result["resultType"] == "complete":
                return
            assert result["inputRequests"], "an empty round"
            answers = {key: accept(value=1) for key in result["inputRequests"]}
            call = talk.leg("works", state=result["requestState"], answers=answers)
        raise AssertionError("the call never ends")


# answers


async def test_what_is_still_open_is_never_asked_of_a_client_that_does_not_declare_it() -> None:
    async with talk_to(Travel().server) as talk:
        first = await talk.round(talk.leg("both"))
        error = await talk.error(first.leg({first.keys[0]: accept(value=1)}, capabilities={}))
        assert error["code"] == MISSING_CAPABILITY
        assert await talk.text(first.retry(3, 4, capabilities={})) == "3 4"


async def test_branches_that_ask_a_client_that_cannot_are_one_refusal_that_names_what_is_missing() -> None:
    async def roots(ctx: Context) -> str:
        await ctx.branch_all(*[lambda child: child.roots()] * 100)
        return "never"

    async with talk_to(offering(roots)) as talk:
        error = await talk.error(talk.leg("roots", capabilities={"elicitation": {"form": {}}, "sampling": {}}))
        assert error["code"] == MISSING_CAPABILITY
        assert error["data"] == {"requiredCapabilities": {"roots": {}}}


# at most once


@pytest.mark.parametrize(("limit", "value"), [("FINISHED_CALLS", 2), ("FINISHED_BYTES", 2_500)])
async def test_when_too_many_or_too_large_outcomes_are_kept_the_oldest_goes_first(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(directory, limit, getattr(directory, limit)._replace(limit=value))
    travel = Travel()
    async with talk_to(travel.server) as talk:
        asked = [await talk.round(talk.leg("book", {"to": str(n) * 800})) for n in range(3)]
        for each in asked:
            await talk.text(each.retry(1))
        ran = list(travel.effects)
        assert await talk.error(asked[0].retry(1)) == STATE_ERROR
        assert "TP2 to 222" in await talk.text(asked[2].retry(1))
        assert travel.effects == ran


async def test_one_large_outcome_is_kept_whatever_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "FINISHED_BYTES", directory.FINISHED_BYTES._replace(limit=10))
    async with talk_to(Travel().server) as talk:
        asked = await talk.round(talk.leg("book"))
        assert [await talk.text(asked.retry(1)) for _ in range(2)] == ["Booked TP2 to Lisbon"] * 2


# whose state it is


@pytest.mark.parametrize(
    ("name", "arguments"), [("book", {"to": "Porto"}), ("twice", {}), ("no_such_tool", {})], ids=str
)
async def test_a_state_with_another_tool_or_other_arguments_is_refused_and_nothing_runs(
    name: str, arguments: Json
) -> None:
    travel = Travel()
    async with talk_to(travel.server) as talk:
        asked = await talk.round(talk.leg("book", {"to": "Lisbon"}))
        last = talk.leg(name, arguments, state=asked.state, answers={asked.key: accept(value=1)})
        assert await talk.error(last) == STATE_ERROR
        assert "Booked TP2" in await talk.text(asked.retry(1))
    assert travel.effects == ["searched", "booked"]


async def test_a_state_of_another_server_with_the_same_keys_is_refused() -> None:
    keys = KeyRing.random()
    travel = Travel(keys=keys)
    other = Server("elsewhere", options=ServiceOptions(keys=keys))
    other.tool(Travel().book)
    async with talk_to(travel.server) as talk, talk_to(other) as elsewhere:
        asked = await elsewhere.round(elsewhere.leg("book"))
        assert await talk.error(asked.retry(1, talk=talk)) == STATE_ERROR
    assert travel.effects == []


# going away


@pytest.mark.parametrize("leave", ["disconnect", "cancel", "close"])
@pytest.mark.parametrize("leaver", ["first", "copy"])
async def test_a_leg_goes_on_while_another_listener_still_waits(leave: str, leaver: str) -> None:
    go_on = trio.Event()

    async def works(ctx: Context) -> str:
        await ctx.elicit("?", bool)
        await go_on.wait()
        return "done"

    async with talk_to(offering(works)) as talk:
        asked = await talk.round(talk.leg("works"))
        talks = {"first": Talk(talk.service), "copy": Talk(talk.service)}
        ids = {name: asked.retry(True, talk=each) for name, each in talks.items()}
        await wait_all_tasks_blocked()
        leaving = talks.pop(leaver)
        match leave:
            case "disconnect":
                leaving.session.disconnect(leaving.listeners[ids[leaver]])
            case "cancel":
                leaving.cancel(ids[leaver])
            case "close":
                leaving.session.close(CancelReason.DISCONNECT)
        await wait_all_tasks_blocked()
        go_on.set()
        ((name, staying),) = talks.items()
        assert await staying.text(ids[name]) == "done"
        await leaving.silence()
        assert not leaving.session.busy


# running out of time and room


async def test_a_parked_call_without_an_answer_is_cleaned_up_after_its_ttl() -> None:
    travel = Travel(actors=Limits(park_ttl=600))
    async with talk_to(travel.server) as talk:
        asked = await talk.round(talk.leg("book"))
        await trio.sleep(599)
        assert travel.effects == ["searched"]
        await trio.sleep(2)
        assert travel.effects == ["searched", "gave up: expired"]
        assert talk.service.supervisor.actors == ()
        assert await talk.error(asked.retry(1)) == STATE_ERROR
    assert travel.effects == ["searched", "gave up: expired"]


async def test_a_retry_that_comes_while_an_expired_call_cleans_up_is_refused() -> None:
    async def slow_to_clean_up(ctx: Context) -> str:
        try:
            await ctx.elicit("?", bool)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
        return "done"

    async with talk_to(offering(slow_to_clean_up, actors=Limits(park_ttl=10))) as talk:
        asked = await talk.round(talk.leg("slow_to_clean_up"))
        await trio.sleep(12)
        assert len(talk.service.supervisor.actors) == 1
        assert await talk.error(asked.retry(True)) == STATE_ERROR


@pytest.mark.parametrize(
    ("limits", "named"),
    [(Limits(parked=1), "1 calls"), (Limits(parked_per_principal=1), "1 of your calls")],
    ids=["in all", "per principal"],
)
async def test_a_call_that_may_not_be_parked_gets_an_error_with_the_limit_and_is_cleaned_up(
    limits: Limits, named: str
) -> None:
    travel = Travel(actors=limits)
    async with talk_to(travel.server) as talk:
        asked = await talk.round(talk.leg("book"))
        assert named in (await talk.error(talk.leg("book")))["message"]
        await wait_all_tasks_blocked()
        assert len(talk.service.supervisor.actors) == 1
        assert "Booked TP2" in await talk.text(asked.retry(1))


@pytest.mark.parametrize("value", [1, float("inf"), dt.date(2026, 7, 28)], ids=str)
async def test_a_body_may_change_its_arguments_before_it_asks(value: object) -> None:
    async def book(options: dict[str, Any], ctx: Context) -> str:
        options["seat"]["row"] = value
        return str(number_of(await ctx.elicit("How many?", int)))

    async with talk_to(offering(book)) as talk:
        arguments = {"options": {"seat": {}}}
        asked = await talk.round(talk.leg("book", arguments))
        assert await talk.text(asked.retry(3)) == "3"


async def test_a_call_that_asks_nothing_takes_no_digest_of_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = 0
    real = request_state.digest

    def digest(name: str, arguments: JsonObject) -> str:
        nonlocal digests
        digests += 1
        return real(name, arguments)

    async def echo(text: str) -> str:
        return text

    monkeypatch.setattr(request_state, "digest", digest)
    async with talk_to(offering(echo, Travel().book)) as talk:
        assert await talk.text(talk.leg("echo", {"text": "x" * 10_000})) == "x" * 10_000
        assert digests == 0
        await talk.round(talk.leg("book"))
        assert digests == 1


async def test_a_legacy_request_with_an_unknown_member_named_as_the_field_of_a_state_is_no_retry() -> None:
    async def hello() -> str:
        return "hello"

    async with session_with(offering(hello)) as talk:
        request = talk.request("tools/call", {"name": "hello", "arguments": {}, "request_state": "?"})
        assert await talk.text(request) == "hello"
