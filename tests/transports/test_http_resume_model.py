"""Resuming against a model: whatever is said, dropped, resumed and waited for, in whatever order, nothing is lost or repeated.

The model of a call is the list of what it said. A reader that begins after event `n` is owed exactly what follows, and nothing
else, for as long as it is the newest. One that was replaced or has gone has a beginning of that. Both are checked each time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import trio
from asgi_peer import Reply, served
from hypothesis import event, example, given, strategies as st
from talking import GRACE, Session, Stage, Talk, said
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import CancelReason
from trio_mcp.stores import MemoryEventStore
from trio_mcp_transports.http import HttpLimits, asgi_app

KEPT = 6
"""Events of a stream that the store keeps."""

Step: TypeAlias = tuple[str, int, int, int]


@dataclass
class Reader:
    """Who reads a stream, or did, and after which event it began."""

    reply: Reply
    after: int
    newest: bool = True


@dataclass
class Call:
    """The model of a call: the messages that it sends, and their readers."""

    name: str
    talk: Talk
    number: int
    events: list[object] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    answered: bool = False
    lost: bool = False
    """It was not read for too long."""
    left_at: float = math.inf
    """When its last reader went; time goes on from one wait to the next."""

    def say(self, count: int) -> None:
        for _ in range(0 if self.answered or self.lost else count):
            self.events.append(len(self.events) + 1)
            self.talk.orders.send_nowait(self.events[-1])

    def answer(self) -> None:
        if not (self.answered or self.lost):
            self.events.append("done")
            self.talk.orders.send_nowait("done")
            self.answered = True

    @property
    def reader(self) -> Reader | None:
        return next((reader for reader in self.readers if reader.newest), None)

    def leave(self) -> None:
        if (reader := self.reader) is not None:
            reader.newest = False

    def check(self) -> None:
        for reader in self.readers:
            owed = self.events[reader.after :]
            heard = said(reader.reply)
            assert heard == owed[: len(heard)]
            if reader.newest:
                assert heard == owed
                assert reader.reply.ended.is_set() == self.answered
        assert self.talk.over.is_set() == (self.answered or self.lost)
        if self.lost:
            assert self.talk.reason is CancelReason.DISCONNECT


class World:
    """A session of Alice's with two calls, and what may happen to them."""

    def __init__(self, alice: Session, bob: Session, calls: list[Call]) -> None:
        self.alice = alice
        self.bob = bob
        self.calls = calls

    async def take(self, step: Step) -> None:
        kind, which, place, pauses = step
        call = self.calls[which]
        match kind:
            case "say":
                call.say(place)
            case "answer":
                call.answer()
            case "drop":
                self.drop(call)
            case "wait":
                await self.wait(place)
            case "resume":
                await self.resume(call, place, pauses)
            case "stranger":
                refused = await self.bob.get(f"{call.number}-0")
                assert refused.status == 404
        for _ in range(pauses):
            await trio.lowlevel.checkpoint()

    def drop(self, call: Call) -> None:
        if (reader := call.reader) is not None:
            reader.reply.gone.set()
            call.leave()
            call.left_at = trio.current_time()

    async def wait(self, seconds: int) -> None:
        await wait_all_tasks_blocked()
        await trio.sleep(seconds)
        await wait_all_tasks_blocked()
        for call in self.calls:
            if call.reader is None and not call.answered and trio.current_time() >= call.left_at + GRACE:
                call.lost = True

    async def resume(self, call: Call, place: int, pauses: int) -> None:
        """Come back for what follows an event that was sent, or for one that never was; the call may go on talking meanwhile."""
        await wait_all_tasks_blocked()
        known = len(call.events)
        after = place % (known + 2)
        before = call.reader
        call.say(pauses % 4)
        for _ in range(pauses):
            await trio.lowlevel.checkpoint()
        headers = {**self.alice.headers, "last-event-id": f"{call.number}-{after}"}
        reply = self.alice.peer.start(b"", headers, method="GET")
        await wait_all_tasks_blocked()
        oldest = max(0, len(call.events) - KEPT)
        if call.lost or after < max(0, known - KEPT):
            event("what followed is gone")
            assert (reply.status, "no longer kept" in reply.json["error"]["message"]) == (400, True)
        elif after > len(call.events):
            event("it was never sent")
            assert (reply.status, "was never sent" in reply.json["error"]["message"]) == (400, True)
        elif reply.status == 400:  # what was said meanwhile took its place, or it was asked for before it was said
            event("overtaken")
            assert after < oldest or after > known
        else:
            event("resumed")
            assert reply.status == 200
            if before is not None:
                call.leave()
            call.readers.append(Reader(reply, after))


STEPS = st.tuples(
    st.sampled_from(["say", "say", "drop", "resume", "resume", "resume", "answer", "wait", "stranger"]),
    st.integers(0, 1),
    st.one_of(st.integers(1, 5), st.integers(1, 50)),
    st.integers(0, 12),
)


@given(st.lists(STEPS, max_size=25))
@example([("drop", 0, 1, 0), ("wait", 0, 12, 0), ("wait", 0, 18, 0)])
def test_nothing_is_lost_or_repeated_whatever_happens(steps: list[Step]) -> None:
    trio.run(play, steps, clock=MockClock(autojump_threshold=0))


async def play(steps: list[Step]) -> None:
    stage = Stage()
    limits = HttpLimits(disconnect_grace=GRACE)
    store = MemoryEventStore(stream_events=KEPT)
    app = asgi_app(stage.server, limits=limits, event_store=store, authenticate=by_name)
    with trio.fail_after(100_000):
        async with served(app) as peer:
            alice = Session(peer, await peer.open_session(who={"x-user": "alice"}))
            bob = Session(peer, {**alice.headers, "x-user": "bob"})
            calls = list[Call]()
            for number, name in enumerate("ab", 1):
                call = Call(name, stage.expect(name), number)
                call.readers.append(Reader(await alice.call(name, id=name), 0))
                call.say(1)
                await wait_all_tasks_blocked()
                calls.append(call)
            world = World(alice, bob, calls)
            for step in steps:
                await world.take(step)
                await wait_all_tasks_blocked()
                for call in calls:
                    call.check()


async def by_name(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-user")
