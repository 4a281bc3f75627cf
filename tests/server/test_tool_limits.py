"""`limit=` and `queue=` of a tool: how many of its calls run at once, and how many more wait."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio
from connected import connected
from talk import Talk, talk_to
from trio.testing import MockClock, wait_all_tasks_blocked
from wire_terms import SERVER_BUSY

from trio_mcp import (
    CallHandler,
    CallRequest,
    CallResult,
    Context,
    PeerError,
    RequestTimeout,
    Server,
    ServiceOptions,
)
from trio_mcp.server.concurrency import ConcurrencyLimit, Place

BOUND = 20.0


class Gate:
    """A tool whose calls run until the test lets them go on."""

    def __init__(
        self, *, timeout_of_question: float = math.inf, seconds_of_scope: float = math.inf, **options: Any
    ) -> None:
        self._timeout_of_question = timeout_of_question
        self._seconds_of_scope = seconds_of_scope
        self.running: list[str] = []
        self.most = 0
        self.events: dict[str, trio.Event] = {}
        self.server = Server("tester", options=ServiceOptions(settle=0))
        self.server.tool(**options)(self.work)

    async def work(self, name: str, ctx: Context, ask: bool = False) -> str:
        """Run, after a question if it is to ask one."""
        if ask:
            with suppress(RequestTimeout), trio.move_on_after(self._seconds_of_scope):
                await ctx.elicit("?", bool, timeout=self._timeout_of_question)
        self.running.append(name)
        self.most = max(self.most, len(self.running))
        try:
            await self.events.setdefault(name, trio.Event()).wait()
        finally:
            self.running.remove(name)
        return name

    def end(self, name: str) -> None:
        self.events.setdefault(name, trio.Event()).set()


async def started(talk: Talk, *names: str, ask: bool = False) -> list[Any]:
    """Start calls one after the other; return their ids."""
    ids = []
    for name in names:
        ids.append(talk.leg("work", {"name": name, "ask": ask}))
        await wait_all_tasks_blocked()
    return ids


async def test_calls_over_the_limit_wait_and_calls_over_the_queue_are_refused() -> None:
    gate = Gate(limit=2, queue=1)
    async with talk_to(gate.server) as talk:
        first, _, waiting, refused = await started(talk, *"abcd")
        error = await talk.error(refused)
        assert error["code"] == SERVER_BUSY
        assert "2" in error["message"]
        assert "1" in error["message"]
        assert gate.running == ["a", "b"]
        gate.end("a")
        assert await talk.text(first) == "a"
        await wait_all_tasks_blocked()
        assert gate.running == ["b", "c"]
        gate.end("c")
        assert await talk.text(waiting) == "c"


async def test_of_calls_that_come_together_no_more_run_or_wait_than_may() -> None:
    gate = Gate(limit=2, queue=1)
    async with talk_to(gate.server) as talk:
        for name in "abcdef":
            talk.leg("work", {"name": name})
        await wait_all_tasks_blocked()
        refused = talk.waiting()
        assert [message["error"]["code"] for message in refused] == [SERVER_BUSY] * 3
        assert len(gate.running) == 2
        for name in "abcdef":
            gate.end(name)
        await wait_all_tasks_blocked()
        assert len(talk.waiting()) == 3


async def test_a_caller_with_half_of_the_places_waits_and_others_overtake_it() -> None:
    gate = Gate(limit=4, queue=8)
    async with gate.server.open_service() as service:
        alice, bob = (Talk(service, principal=name) for name in ("alice", "bob"))
        await started(alice, *"abc")
        assert gate.running == ["a", "b"]
        await started(bob, *"xy")
        assert gate.running == ["a", "b", "x"]
        # Her own place that is free is not hers while over half are in use: bob has none too many.
        gate.end("a")
        await wait_all_tasks_blocked()
        assert gate.running == ["b", "x"]
        gate.end("b")
        await wait_all_tasks_blocked()
        assert gate.running == ["x", "c"]
        gate.end("x")
        await wait_all_tasks_blocked()
        assert gate.running == ["c", "y"]
        for name in "cy":
            gate.end(name)


async def test_calls_that_resume_have_no_more_than_the_share_of_their_caller() -> None:
    gate = Gate(limit=4, queue=4)
    async with gate.server.open_service() as service:
        alice, bob = (Talk(service, principal=name) for name in ("alice", "bob"))
        questions = []
        for name in "abc":
            (asking,) = await started(alice, name, ask=True)
            questions.append(await alice.round(asking))
        for question in questions:
            question.retry(True)
            await wait_all_tasks_blocked()
        await started(bob, "x")
        assert gate.running == ["a", "b", "x"]
        for name in "abcx":
            gate.end(name)


async def test_a_call_over_the_limit_is_refused_at_once_without_a_queue(mode: Any) -> None:
    gate = Gate(limit=1)
    async with connected(gate.server, mode=mode) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "work", {"name": "a"})
        while not gate.running:
            await trio.lowlevel.checkpoint()
        with pytest.raises(PeerError) as caught:
            await client.call_tool("work", {"name": "b"})
        assert caught.value.code == SERVER_BUSY
        assert gate.server.services[0].statistics().actors.started == 1
        gate.end("a")


async def test_a_cancelled_call_gives_up_its_place_and_its_wait() -> None:
    gate = Gate(limit=1, queue=1)
    async with talk_to(gate.server) as talk:
        running, waiting = await started(talk, "a", "b")
        talk.cancel(waiting)
        await wait_all_tasks_blocked()
        await started(talk, "c")
        talk.cancel(running)
        await wait_all_tasks_blocked()
        assert gate.running == ["c"]


async def test_a_parked_call_gives_its_place_to_others_and_waits_for_one_when_it_goes_on() -> None:
    gate = Gate(limit=1, queue=5)
    async with talk_to(gate.server) as talk:
        (asking,) = await started(talk, "a", ask=True)
        question = await talk.round(asking)
        running, queued = await started(talk, "b", "c")
        assert gate.running == ["b"]
        resumed = question.retry(True)
        await wait_all_tasks_blocked()
        assert gate.running == ["b"]
        gate.end("b")
        assert await talk.text(running) == "b"
        await wait_all_tasks_blocked()
        # Ahead of the call that has not begun.
        assert gate.running == ["a"]
        gate.end("a")
        assert await talk.text(resumed) == "a"
        gate.end("c")
        assert await talk.text(queued) == "c"
    assert gate.most == 1


@pytest.mark.parametrize(
    ("options", "running_then"), [({"timeout_of_question": 30}, ["b"]), ({"seconds_of_scope": 30}, ["b", "a"])]
)
async def test_a_call_whose_question_ended_while_it_was_parked_is_counted(
    options: Any, running_then: list[str], mock_clock: MockClock
) -> None:
    """After a timeout it waits for a place; a scope that is cancelled waits for nothing."""
    gate = Gate(limit=1, queue=5, **options)
    async with talk_to(gate.server) as talk:
        (asking,) = await started(talk, "a", ask=True)
        await talk.round(asking)
        running, queued = await started(talk, "b", "c")
        mock_clock.jump(31)
        await wait_all_tasks_blocked()
        assert gate.running == running_then
        gate.end("b")
        assert await talk.text(running) == "b"
        await wait_all_tasks_blocked()
        assert gate.running == ["a"]
        gate.end("a")
        await wait_all_tasks_blocked()
        assert gate.running == ["c"]
        gate.end("c")
        assert await talk.text(queued) == "c"


async def test_a_call_that_asks_again_while_it_is_parked_gives_its_place_back(mock_clock: MockClock) -> None:
    server = Server("tester", options=ServiceOptions(settle=0))

    @server.tool(limit=1)
    async def work(name: str, ctx: Context, ask: bool = False) -> str:
        for seconds in (30, math.inf) if ask else ():
            with trio.move_on_after(seconds):
                await ctx.elicit("?", bool)
        return name

    async with talk_to(server) as talk:
        (asking,) = await started(talk, "a", ask=True)
        await talk.round(asking)
        mock_clock.jump(31)
        await wait_all_tasks_blocked()
        for name in "bc":
            assert await talk.text(talk.leg("work", {"name": name})) == name


async def test_a_place_that_is_claimed_while_another_lane_waits_for_it_is_counted_once() -> None:
    limit = ConcurrencyLimit("tool", 1, 1)
    place, other = Place(limit), Place(limit)
    async with trio.open_nursery() as nursery:
        await other.enter()
        nursery.start_soon(place.enter)
        await wait_all_tasks_blocked()
        place.claim()
    other.leave()
    place.leave()
    with trio.fail_after(BOUND):
        await other.enter()
    assert other.held


async def test_the_branches_of_a_resumed_call_share_its_place() -> None:
    server = Server("tester")

    @server.tool(limit=1)
    async def tool(ctx: Context) -> str:
        async def ask(child: Context) -> str:
            return (await child.elicit("?", bool)).action

        return " ".join(await ctx.branch_all(ask, ask, ask))

    async with talk_to(server) as talk:
        for _ in range(2):
            question = await talk.round(talk.leg("tool"))
            assert await talk.text(question.retry(True, True, True)) == "accept accept accept"


async def test_a_parked_call_that_is_given_up_frees_nothing_twice() -> None:
    gate = Gate(limit=1)
    async with talk_to(gate.server) as talk:
        (asking,) = await started(talk, "a", ask=True)
        await talk.round(asking)
        (actor,) = gate.server.services[0].supervisor.actors
        actor.scope.cancel()
        await wait_all_tasks_blocked()
        await started(talk, "b")
        (refused,) = await started(talk, "c")
        assert (await talk.error(refused))["code"] == SERVER_BUSY
        gate.end("b")


async def test_a_plain_function_is_limited_too() -> None:
    server = Server("tester")

    @server.tool(limit=1)
    def tool() -> str:
        return "done"

    async with connected(server) as client:
        for _ in range(2):
            assert (await client.call_tool("tool")).text == "done"


@pytest.mark.parametrize("options", [{"limit": 0}, {"limit": True}, {"queue": 1}, {"limit": 1, "queue": -1}])
def test_wrong_limits_are_refused(options: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"limit|queue"):
        Gate(**options)


async def test_while_one_run_of_a_waiting_call_has_ended_no_other_call_runs(mode: Any) -> None:
    server, running = Server("tester"), list[str]()
    ends = {name: trio.Event() for name in ("before", "first", "second", "other")}

    @server.middleware
    async def twice(call: CallRequest, handler: CallHandler) -> CallResult:
        results: list[CallResult] = []

        async def run() -> None:
            results.append(await handler())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            if call.arguments["name"] == "both":
                nursery.start_soon(run)
        return results[0]

    @server.tool(limit=1, queue=5)
    async def work(name: str) -> str:
        if name == "both":
            name = "second" if "first" in running else "first"
        running.append(name)
        await ends[name].wait()
        running.remove(name)
        return name

    async with connected(server, mode=mode) as client, trio.open_nursery() as nursery:
        for name in ("before", "both", "other"):
            nursery.start_soon(partial(client.call_tool, "work", {"name": name}))
            await wait_all_tasks_blocked()
        assert running == ["before"]
        ends["before"].set()
        await wait_all_tasks_blocked()
        assert sorted(running) == ["first", "second"]
        ends["first"].set()
        await wait_all_tasks_blocked()
        assert running == ["second"]
        ends["second"].set()
        await wait_all_tasks_blocked()
        assert running == ["other"]
        ends["other"].set()
