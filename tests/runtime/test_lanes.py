"""The count of busy lanes: it is zero exactly when nothing more will happen without an answer.

The first half drives actors with real tasks. The second half compares the count with a model that recomputes it from
scratch after every step, in any order of steps that hypothesis can think of.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from random import Random

import pytest
import trio
import trio.lowlevel
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp.runtime import Actor, Branches, Lane, Slot, run_branch


class BodyActor(Actor):
    """An actor with the lane of its body at hand."""

    def __init__(self) -> None:
        super().__init__("actor-1", None, math.inf)
        self.root = Lane(self)


def new_actor() -> BodyActor:
    return BodyActor()


async def ask(lane: Lane) -> str:
    """Ask a question as a backchannel does: the answer comes through the actor's mailbox."""
    slot = lane.actor.mailbox.open(lane.next_key("ask"), str, lane.end_wait)
    lane.begin_wait()
    try:
        return await slot.take()
    finally:
        slot.give_up()


def record_quiet(actor: Actor) -> list[int]:
    """How many questions were open each time the actor went quiet."""
    quiet: list[int] = []
    actor.on_quiescent = lambda: quiet.append(len(actor.mailbox))
    return quiet


@pytest.mark.parametrize("how", ["a sibling fails", "the body fails", "it is cancelled"])
async def test_an_actor_is_not_quiet_while_branches_that_were_cancelled_give_their_questions_up(how: str) -> None:
    actor = new_actor()
    go = trio.Event()

    async def nests(lane: Lane) -> None:
        async with Branches(lane) as branches:
            branches.start(ask)
            branches.start(ask)

    async def acts(lane: Lane, branches: Branches) -> None:
        await go.wait()
        if how == "it is cancelled":
            branches.cancel()
        else:
            raise LookupError

    async def body() -> None:
        async with Branches(actor.root) as branches:
            branches.start(ask)
            branches.start(nests)
            if how == "the body fails":
                await acts(actor.root, branches)
            branches.start(lambda lane: acts(lane, branches))

    async def expecting_failure() -> None:
        with pytest.RaisesGroup(LookupError):
            await body()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(expecting_failure if how != "it is cancelled" else body)
        await wait_all_tasks_blocked()
        quiet = record_quiet(actor)
        go.set()
    assert quiet == []
    assert actor.busy == 1


async def test_a_cancelled_wait_for_a_branch_leaves_the_branch_running() -> None:
    actor = new_actor()
    async with Branches(actor.root) as branches:
        handle = branches.start(ask)
        with trio.move_on_after(1) as scope:
            await handle.result()
        assert scope.cancelled_caught
        assert actor.busy == 1  # the body; the branch waits for its answer
        actor.mailbox.post("ask/1-1", "answer")
    assert handle.value == "answer"
    assert actor.busy == 1


async def test_a_lane_that_waits_and_joins_at_once_is_busy_only_after_both() -> None:
    actor = new_actor()
    lane = actor.root
    lane.begin_wait()
    lane.begin_join()
    lane.end_wait()
    assert not actor.busy
    lane.end_join()
    assert actor.busy == 1


async def test_keys_and_paths_are_the_same_from_run_to_run() -> None:
    def run() -> list[str]:
        root = new_actor().root
        return [root.next_key("elicit"), root.next_path(), root.next_key("sample"), root.next_path()]

    assert run() == ["elicit-1", "/1", "sample-2", "/2"]
    assert run() == run()


async def test_a_named_question_has_its_name_for_a_key_where_no_other_can_have_it() -> None:
    root = new_actor().root
    branch = Lane(root.actor, root.next_path())
    assert [root.named_key("seat"), root.named_key("meal"), root.named_key("seat")] == ["seat", "meal", "seat-3"]
    assert [branch.named_key("seat"), branch.named_key("seat")] == ["seat/1-1", "seat/1-2"]


async def test_the_place_of_a_question_does_not_depend_on_its_name() -> None:
    root = new_actor().root
    branch = Lane(root.actor, "/10/2")
    assert [root.next_question("elicit", name)[1] for name in ("delivery-date", None, "seat/1-0")] == [(1,), (2,), (3,)]
    assert branch.next_question("elicit", "seat/1-0") == ("seat/1-0/10/2-1", (10, 2, 1))


async def test_the_reprs_show_the_state() -> None:
    actor = new_actor()
    assert repr(actor) == "<Actor actor-1 running busy=1 <Mailbox open=[]>>"
    assert repr(actor.root) == "<Lane body busy>"
    actor.root.begin_wait()
    assert repr(actor.root) == "<Lane body waiting>"
    actor.root.begin_join()
    assert repr(actor.root) == "<Lane body joining>"


async def test_more_idle_lanes_than_there_are_is_a_bug_that_shows() -> None:
    actor = new_actor()
    actor.lane_idle()
    with pytest.raises(AssertionError, match="more idle lanes"):
        actor.lane_idle()


class ModelledLane:
    """What the model knows of a lane: its open questions and its running children."""

    def __init__(self, lane: Lane, parent: ModelledLane | None) -> None:
        self.lane = lane
        self.parent = parent
        self.slots: dict[str, Slot[str]] = {}
        self.children = 0
        self.joining = False
        self.over = False

    @property
    def busy(self) -> bool:
        return not (self.over or self.slots or self.joining)


class BusyCount(RuleBasedStateMachine):
    """Lanes ask, are answered, give up, branch, join and end; the actor counts, and the model counts independently."""

    lanes = Bundle("lanes")
    questions = Bundle("questions")

    def __init__(self) -> None:
        super().__init__()
        self.actor = new_actor()
        self.quiet_at: list[int] = []
        self.all: list[ModelledLane] = [ModelledLane(self.actor.root, None)]
        self.actor.on_quiescent = self.went_quiet

    def went_quiet(self) -> None:
        self.quiet_at.append(len(self.actor.mailbox))

    def pick(self, index: int, fit: Callable[[ModelledLane], bool]) -> ModelledLane | None:
        fitting = [lane for lane in self.all if fit(lane)]
        return fitting[index % len(fitting)] if fitting else None

    @rule(target=questions, index=st.integers(0, 99))
    def ask(self, index: int) -> tuple[ModelledLane | None, str]:
        """A busy lane asks; so does one that waits already, from a separate nursery."""
        modelled = self.pick(index, lambda lane: not lane.over)
        if modelled is None:
            return None, ""
        lane = modelled.lane
        key = lane.next_key("ask")
        slot = self.actor.mailbox.open(key, str, lane.end_wait)
        modelled.slots[key] = slot
        lane.begin_wait()
        return modelled, key

    @rule(question=consumes(questions))
    def answer(self, question: tuple[ModelledLane | None, str]) -> None:
        modelled, key = question
        if modelled is not None:
            known = modelled.slots.pop(key, None)
            assert self.actor.mailbox.post(key, "answer") is (known is not None)

    @rule(question=consumes(questions))
    def give_up(self, question: tuple[ModelledLane | None, str]) -> None:
        modelled, key = question
        if modelled is not None and key in modelled.slots:
            modelled.slots.pop(key).give_up()

    @rule(index=st.integers(0, 99))
    def branch(self, index: int) -> None:
        parent = self.pick(index, lambda lane: lane.busy)
        if parent is not None:
            self.actor.lane_busy()
            parent.children += 1
            self.all.append(ModelledLane(Lane(self.actor, parent.lane.next_path()), parent))

    @rule(index=st.integers(0, 99))
    def join(self, index: int) -> None:
        parent = self.pick(index, lambda lane: lane.busy and lane.children > 0)
        if parent is not None:
            parent.joining = True
            parent.lane.begin_join()

    @rule(index=st.integers(0, 99))
    def end(self, index: int) -> None:
        """A busy lane without children ends; its parent, if it joins, goes on when this was the last."""
        child = self.pick(index, lambda lane: lane.busy and not lane.children and lane.parent is not None)
        if child is None:
            return
        parent = child.parent
        assert parent is not None
        child.over = True
        parent.children -= 1
        before = len(self.quiet_at)
        if parent.joining and not parent.children:
            parent.joining = False
            parent.lane.end_join()
        self.actor.lane_idle()
        if parent.busy:
            assert before == len(self.quiet_at), "the count touched zero between the branch and its parent"

    @invariant()
    def the_count_is_the_number_of_busy_lanes(self) -> None:
        assert sum(lane.busy for lane in self.all) == self.actor.busy

    @invariant()
    def the_actor_never_went_quiet_without_an_open_question(self) -> None:
        assert 0 not in self.quiet_at


BusyCount.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestBusyCount = BusyCount.TestCase


Program = list[tuple[str, object]]

programs = st.recursive(
    st.lists(st.tuples(st.sampled_from(["ask", "yield"]), st.none()), max_size=3),
    lambda inner: st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["ask", "yield", "ask for a second"]), st.none()),
            st.tuples(st.just("branch"), inner),
            st.tuples(st.just("group"), st.lists(inner, max_size=3)),
            st.tuples(st.just("await one"), st.lists(inner, min_size=1, max_size=3)),
            st.tuples(st.just("nursery"), st.integers(1, 3)),
        ),
        max_size=4,
    ),
    max_leaves=12,
)


class Body:
    """Runs a program as the body of an actor, and knows which of its questions are open."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.open: set[str] = set()
        self.over = False

    async def run(self, program: Program) -> None:
        await self.follow(self.actor.root, program)
        self.over = True

    async def follow(self, lane: Lane, program: Program) -> None:
        for action, detail in program:
            match action:
                case "ask":
                    await self.ask(lane)
                case "yield":
                    await trio.lowlevel.checkpoint()
                case "ask for a second":
                    with trio.move_on_after(1):
                        await self.ask(lane)
                case "branch":
                    await run_branch(lane, self.branch(detail))
                case "group" | "await one":
                    async with Branches(lane) as branches:
                        handles = [branches.start(self.branch(inner)) for inner in detail]
                        if action == "await one":
                            await handles[0].result()
                case "nursery":
                    async with trio.open_nursery() as nursery:
                        for _ in range(detail):
                            nursery.start_soon(self.ask, lane)

    def branch(self, program: object) -> Callable[[Lane], Awaitable[None]]:
        return lambda lane: self.follow(lane, program)

    async def ask(self, lane: Lane) -> None:
        key = lane.next_key("ask")
        slot = self.actor.mailbox.open(key, str, lane.end_wait)
        self.open.add(key)
        lane.begin_wait()
        try:
            await slot.take()
        finally:
            slot.give_up()
            self.open.discard(key)


@given(program=programs, random=st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_any_body_is_quiet_exactly_when_all_its_tasks_wait_for_answers(program: Program, random: Random) -> None:
    async def main() -> None:
        actor = new_actor()
        quiet = record_quiet(actor)
        body = Body(actor)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(body.run, program)
            await wait_all_tasks_blocked()
            while not body.over:
                assert not actor.busy
                assert body.open, "quiet without a question: no answer could ever come"
                if random.random() < 0.2:
                    clock.jump(1)
                for key in random.sample(sorted(body.open), random.randint(1, len(body.open))):
                    actor.mailbox.post(key, "answer")
                await wait_all_tasks_blocked()
        assert (actor.busy, actor.branches) == (1, 0)
        assert 0 not in quiet

    clock = MockClock()
    trio.run(main, clock=clock)
