"""Programs of client behaviour, good and bad, are run against two processes and against a model of what they must answer.

One example is one list of actions, run on a separate clock in one Trio run. After each action the machine knows exactly
which requests have had a reply, what each reply says, and what every run of a tool has done so far. The number of examples
comes from the environment: `TRIO_MCP_RUNS=5000`; that takes more than a minute, so the watchdog has to be off
(`-o faulthandler_timeout=0`). `--hypothesis-seed` repeats a run.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest
import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from peer import text_of
from rounds_model import (
    AUDIENCE,
    TOOLS,
    Case,
    Effects,
    Host,
    Json,
    View,
    World,
    make_server,
    simulate,
)
from talk import DECLINE, Talk, accept
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp.errors import InvalidRequestState
from trio_mcp.protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RequestId
from trio_mcp.protocol.sealing.request_state import KeyRing, Sealer
from trio_mcp.runtime import Actor, CancelReason, Limits
from trio_mcp.session import Service, ServiceOptions

RUNS = int(os.environ.get("TRIO_MCP_RUNS", "150"))
STATE_ERROR = {"code": INVALID_PARAMS, "message": InvalidRequestState.TEXT}
TTL, GRACE, SETTLE, SKEW = 600.0, 60.0, 0.2, 60.0
WALL = 1_800_000_000.0
KEYS = (KeyRing.random(), KeyRing.random())
PRINCIPALS = ("ana", "ben", None)

HOST = Host()
OPTIONS = ServiceOptions(
    actors=Limits(park_ttl=TTL), settle=SETTLE, outcome_grace=GRACE, keys=KEYS[0], max_state=8000, store=HOST
)
SERVERS = tuple(make_server(HOST, slot, OPTIONS) for slot in (0, 1))


Check = Callable[[Json], None]


@dataclass(eq=False)
class Sent:
    """A request, and the reply it has had."""

    talk: Talk
    id: RequestId
    reply: Json | None = None
    settled: bool = False
    """The model says that it has had its reply, or gets none."""


@dataclass(eq=False)
class State:
    """A `requestState` that was handed out, and what was true when it was sealed."""

    case: Case
    text: str
    origin: Process
    leg: int
    issued: float
    asked: dict[str, str]
    answers: dict[str, Json]
    steps: frozenset[str]


@dataclass(eq=False)
class Retry:
    """A carried-on request that was sent, so that it can be sent again."""

    state: State
    answers: Json | None


@dataclass(eq=False)
class Record:
    """A call in one process, as the model knows it."""

    case: Case
    process: Process
    run: int
    """Which run of its body in this process it is; -1 for one that never runs."""
    number: int = 1
    answers: dict[str, Json] = field(default_factory=dict)
    steps: frozenset[str] = frozenset()
    """Those it knows from an earlier run."""
    listeners: list[Sent] = field(default_factory=list)
    outcomes: dict[int, Json | None] = field(default_factory=dict)
    status: str = "running"
    named: bool = False
    cancelled: bool = False
    settle_at: float = 0.0
    until: float = 0.0
    """When it expires while it is parked, or is forgotten when it is done."""
    frozen: Effects | None = None


@dataclass(eq=False)
class Process:
    """One life of one of the two server processes."""

    slot: int
    life: int
    keys: int
    service: Service
    stop: trio.Event = field(default_factory=trio.Event)
    stopped: trio.Event = field(default_factory=trio.Event)
    talks: dict[str | None, Talk] = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)
    spent: set[State] = field(default_factory=set)
    actors: dict[str, Actor] = field(default_factory=dict)

    def talk(self, principal: str | None) -> Talk:
        if principal not in self.talks:
            self.talks[principal] = Talk(self.service, principal=principal)
        return self.talks[principal]


@dataclass
class Fetch:
    """A carried-on request that waits for its journal to come out of the stalled store."""

    process: Process
    state: State
    answers: Json
    sent: Sent


class Machine:
    """Runs actions and checks what they lead to. Every number that an action is given is taken modulo what there is."""

    def __init__(self, clock: MockClock, nursery: trio.Nursery) -> None:
        self.clock = clock
        self.nursery = nursery
        self.world = HOST.world = World()
        self.offset = 0.0
        self.processes: list[Process] = []
        self.cases: list[Case] = []
        self.states: list[State] = []
        self.retries: list[Retry] = []
        self.sent: list[Sent] = []
        self.records: list[Record] = []
        self.fetches: list[Fetch] = []
        self.checks: list[tuple[Sent, Check]] = []

    def wall(self) -> float:
        return WALL + trio.current_time() + self.offset

    # processes

    async def boot(self, slot: int, keys: int) -> Process:
        process: Process = await self.nursery.start(self._serve, slot, keys)
        return process

    async def _serve(self, slot: int, keys: int, *, task_status: trio.TaskStatus[Process]) -> None:
        async with SERVERS[slot].open_service() as service:
            service.calls.sealer = Sealer(KEYS[keys], AUDIENCE, TTL, self.wall)
            process = Process(slot, self.world.incarnation[slot], keys, service)
            task_status.started(process)
            await process.stop.wait()
        process.stopped.set()

    async def restart(self, slot: int, keys: int) -> None:
        """Requests that still wait are answered; the next life knows nothing."""
        process = self.processes[slot]
        waiting = [sent for sent in self.sent if sent.talk in process.talks.values() and not sent.settled]
        lost = [fetch.sent for fetch in self.fetches if fetch.process is process]
        self.fetches = [fetch for fetch in self.fetches if fetch.process is not process]
        for record in process.records.values():
            self._freeze(record)
        process.stop.set()
        await process.stopped.wait()
        self.collect()
        for sent in waiting:
            assert sent.reply is not None or sent in lost, "a request without a reply"
            sent.settled = True
        self.world.incarnation[slot] += 1
        self.processes[slot] = await self.boot(slot, keys)

    # actions

    async def act_wait(self, *_: int) -> None:
        """Nothing is done, and nothing happens."""

    async def act_start(self, tool: int, n: int, flags: int, who: int) -> None:
        case = Case(
            len(self.cases),
            TOOLS[tool % len(TOOLS)],
            1 + n % 3,
            flags % 4 == 1,
            flags // 4 % 2 == 1,
            PRINCIPALS[who % len(PRINCIPALS)],
        )
        self.cases.append(case)
        process = self.processes[who // 3 % 2]
        sent = self.send(process, case, None, None)
        self.begin(process, case, sent)

    async def act_next(self, which: int, mode: int, where: int, copies: int) -> None:
        """Carry a call forward, mostly with the newest state and at the process that sealed it."""
        if not self.states:
            return
        state = self.states[-1 - which % min(len(self.states), 4)]
        answers = made_answers(state, mode)
        retry = Retry(state, answers)
        self.retries.append(retry)
        self.carry(self.pick(state, where), retry, 2 if copies % 8 == 7 else 1)

    async def act_repeat(self, which: int, _mode: int, where: int, copies: int) -> None:
        if self.retries:
            retry = self.retries[-1 - which % len(self.retries)]
            self.carry(self.pick(retry.state, where), retry, 1 + copies % 3)

    async def act_forge(self, which: int, how: int, where: int, place: int) -> None:
        """A state that is not what was handed out, or is not for this request: refused, and nothing runs."""
        if not self.states:
            return
        state = self.states[which % len(self.states)]
        process = self.pick(state, where)
        case, text, principal = state.case, state.text, state.case.principal
        arguments: Json = {}
        match how % 5:
            case 0:
                at = place % len(text)
                text = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
            case 1:
                text = text[: place % len(text)]
            case 2:
                arguments = {"n": case.n + 1}
            case 3:
                principal = "eve"
            case _:
                case = replace(case, tool="charge" if case.tool != "charge" else "fan")
        sent = self.send(process, case, text, made_answers(state, 0), principal=principal, arguments=arguments)
        self.expect(sent, refused)

    async def act_disconnect(self, which: int, *_: int) -> None:
        if (sent := self.pending(which)) is not None:
            sent.talk.session.disconnect(sent.talk.listeners[sent.id])
            self.leave(sent)

    async def act_cancel(self, which: int, *_: int) -> None:
        if (sent := self.pending(which)) is not None:
            sent.talk.cancel(sent.id)
            self.leave(sent)

    async def act_close(self, who: int, where: int, *_: int) -> None:
        """A whole connection is lost."""
        process, principal = self.processes[where % 2], PRINCIPALS[who % len(PRINCIPALS)]
        if principal in process.talks:
            await self.close(process.talks.pop(principal))

    async def close(self, talk: Talk) -> None:
        talk.session.close(CancelReason.DISCONNECT)
        for sent in self.sent:
            if sent.talk is talk and not sent.settled:
                self.leave(sent)
        await wait_all_tasks_blocked()
        assert talk.waiting() == []
        assert not talk.session.busy

    async def act_release(self, which: int, *_: int) -> None:
        held = [case for case in self.cases if case.hold]
        if held:
            self.world.release(held[-1 - which % len(held)].number)

    async def act_advance(self, which: int, *_: int) -> None:
        self.clock.jump((0.3, 29.0, 61.0, 301.0, 601.0)[which % 5])

    async def act_wall(self, which: int, *_: int) -> None:
        self.offset += (-3600.0, -59.0, 59.0, 599.0, 601.0, 3600.0)[which % 6]

    async def act_restart(self, slot: int, keys: int, *_: int) -> None:
        await self.restart(slot % 2, 1 if keys % 4 == 3 else 0)

    async def act_stall(self, *_: int) -> None:
        self.world.stalled = True

    async def act_unstall(self, *_: int) -> None:
        """The store goes on, with one request after the other."""
        self.world.stalled = False
        while self.world.store_queue:
            self.world.store_queue.pop(0).set()
            await wait_all_tasks_blocked()
        fetches, self.fetches = self.fetches, []
        for fetch in fetches:
            if not fetch.sent.settled:
                self.join_or_revive(fetch.process, fetch.state, fetch.answers, fetch.sent)
                self.collect()
                self.settle()

    # the model: requests

    def pick(self, state: State, where: int) -> Process:
        origin = state.origin.slot
        return self.processes[1 - origin if where % 3 == 2 else origin]

    def pending(self, which: int) -> Sent | None:
        open_ = [sent for sent in self.sent if not sent.settled]
        return open_[which % len(open_)] if open_ else None

    def send(
        self,
        process: Process,
        case: Case,
        state: str | None,
        answers: Json | None,
        *,
        principal: str | None = None,
        arguments: Json | None = None,
    ) -> Sent:
        talk = process.talk(principal or case.principal)
        request_id = talk.leg(case.tool, {**case.arguments, **(arguments or {})}, state=state, answers=answers)
        sent = Sent(talk, request_id)
        self.sent.append(sent)
        return sent

    def begin(self, process: Process, case: Case, sent: Sent) -> Record:
        earlier = [record for record in self.records if record.case is case and record.process is process]
        record = Record(case, process, len([each for each in earlier if each.run >= 0]), listeners=[sent])
        record.settle_at = trio.current_time() + SETTLE
        process.records[case.number] = record
        self.records.append(record)
        return record

    def carry(self, process: Process, retry: Retry, copies: int) -> None:
        state = retry.state
        for _ in range(copies):
            sent = self.send(process, state.case, state.text, retry.answers)
            now = self.wall()
            good = process.keys == state.origin.keys and state.issued <= now + SKEW and now < state.issued + TTL
            if good:
                self.carry_on(process, state, retry.answers or {}, sent)
            else:
                self.expect(sent, refused)

    def carry_on(self, process: Process, state: State, answers: Json, sent: Sent) -> None:
        if self.join(process, state, answers, sent):
            return
        if state.origin is process or state in process.spent:
            self.expect(sent, refused)
        elif state.case.big and state.case.tool == "steps" and self.world.stalled:
            self.fetches.append(Fetch(process, state, answers, sent))
        else:
            self.revive(process, state, answers, sent)

    def join_or_revive(self, process: Process, state: State, answers: Json, sent: Sent) -> None:
        if not self.join(process, state, answers, sent):
            if state in process.spent:
                self.expect(sent, refused)
            else:
                self.revive(process, state, answers, sent)

    def join(self, process: Process, state: State, answers: Json, sent: Sent) -> bool:
        """The call is known here; False when it is not, or only as it was before it went on elsewhere."""
        record = self.known(process, state.case)
        if record is None:
            return False
        own, leg = state.origin is process, state.leg
        parked = record.status == "parked"
        if parked and leg == record.number and (own or state.asked == self.view(record).open):
            self.next_leg(record, answers, sent)
        elif record.status == "running" and leg + 1 == record.number:
            record.listeners.append(sent)
        elif leg + 1 in record.outcomes:
            self.expect(sent, same(record.outcomes[leg + 1]))
        elif record.status == "done" and not record.cancelled and leg == record.number:
            record.number += 1
            record.outcomes[record.number] = record.outcomes[leg]
            self.expect(sent, same(record.outcomes[leg]))
        elif not own and leg >= record.number and (parked or record.cancelled):
            self._freeze(record)
            del process.records[state.case.number]
            return False
        else:
            self.expect(sent, refused)
        return True

    def known(self, process: Process, case: Case) -> Record | None:
        record = process.records.get(case.number)
        return None if record is None or not record.named else record

    def next_leg(self, record: Record, answers: Json, sent: Sent) -> None:
        given = {key: answers[key] for key in self.view(record).open if answers.get(key) is not None}
        malformed = [key for key, answer in given.items() if answer.get("action") == "maybe"]
        if malformed:
            self.expect(sent, malformed_reply(malformed))
            return
        record.answers.update(given)
        record.number += 1
        record.status = "running"
        record.listeners = [sent]
        record.settle_at = trio.current_time() + SETTLE

    def revive(self, process: Process, state: State, answers: Json, sent: Sent) -> None:
        given = (
            {key: answers[key] for key in state.asked if answers.get(key) is not None} if state.case.replayable else {}
        )
        malformed = [key for key, answer in given.items() if answer.get("action") == "maybe"]
        if malformed:
            self.expect(sent, malformed_reply(malformed))
            return
        record = self.begin(process, state.case, sent)
        record.named = True
        record.number = state.leg + 1
        record.answers = {**state.answers, **given}
        record.steps = state.steps
        process.spent.add(state)
        if not state.case.replayable:
            record.run = -1

    def leave(self, sent: Sent) -> None:
        """No request waits for this reply any more. The call is cancelled when it was the last."""
        sent.settled = True
        for record in self.records:
            if sent in record.listeners:
                record.listeners.remove(sent)
                if not record.listeners:
                    record.outcomes[record.number] = None
                    self.over(record, cancelled=True)

    # the model: what a call does by itself

    def view(self, record: Record) -> View:
        if record.run < 0:
            return View(final="lost", failed=True)
        return simulate(record.case, record.answers, self.world.passed[record.case.number], record.steps)

    def settle(self) -> None:
        for record in self.records:
            if record.status == "running":
                self._run(record)
            elif record.status == "parked" and trio.current_time() >= record.until:
                self.over(record, cancelled=True)
        for process in self.processes:
            for record in list(process.records.values()):
                if record.status == "done" and (not record.named or record.until <= trio.current_time()):
                    del process.records[record.case.number]

    def _run(self, record: Record) -> None:
        view = self.view(record)
        if view.final is not None:
            self._end_leg(record, lambda reply: check_final(reply, view))
            self.over(record)
        elif (
            view.open and (not view.busy or trio.current_time() >= record.settle_at) and not self._kept_waiting(record)
        ):
            self._end_round(record, view)

    def _kept_waiting(self, record: Record) -> bool:
        """Its journal is too large to travel, and the store does not answer."""
        return record.case.big and record.case.tool == "steps" and self.world.stalled

    def _end_round(self, record: Record, view: View) -> None:
        reply = self._end_leg(record, lambda reply: check_round(reply, view))
        record.status, record.named = "parked", True
        record.until = trio.current_time() + TTL
        case = record.case
        steps = frozenset(view.steps) if case.replayable else frozenset()
        text = reply["result"]["requestState"]
        answers = dict(record.answers)
        self.states.append(
            State(case, text, record.process, record.number, self.wall(), dict(view.open), answers, steps)
        )

    def _end_leg(self, record: Record, check: Check) -> Json:
        replies = [sent.reply for sent in record.listeners]
        assert replies, record
        reply = replies[0]
        assert reply is not None, f"no reply to {record}"
        assert all(each == reply for each in replies), replies
        check(reply)
        for sent in record.listeners:
            sent.settled = True
        record.listeners = []
        record.outcomes[record.number] = reply
        return reply

    def over(self, record: Record, *, cancelled: bool = False) -> None:
        self._freeze(record)
        record.cancelled = cancelled
        record.until = trio.current_time() + GRACE

    def _freeze(self, record: Record) -> None:
        if record.frozen is None:
            record.frozen = self.view(record).effects
        record.status = "done"
        record.listeners = []

    # what is checked

    def expect(self, sent: Sent, check: Check) -> None:
        """It is answered at once, like this."""
        sent.settled = True
        self.checks.append((sent, check))

    def collect(self) -> None:
        by_id = {(sent.talk, sent.id): sent for sent in self.sent}
        for process in self.processes:
            for talk in process.talks.values():
                for message in talk.waiting():
                    sent = by_id[talk, message["id"]]
                    assert sent.reply is None, f"two replies to {sent.id}"
                    sent.reply = {key: value for key, value in message.items() if key in ("result", "error")}

    async def after_each(self) -> None:
        await wait_all_tasks_blocked()
        self.collect()
        self.settle()
        for sent, check in self.checks:
            assert sent.reply is not None, f"no reply to {sent.id}"
            check(sent.reply)
        self.checks.clear()
        for sent in self.sent:
            assert sent.settled or sent.reply is None, f"an early reply: {sent.reply}"
        for process in self.processes:
            self._check_process(process)
        self._check_effects()

    def _check_process(self, process: Process) -> None:
        records = [record for record in process.records.values() if record.status != "done"]
        parked = [record for record in records if record.status == "parked"]
        service = process.service
        for actor in service.supervisor.actors:
            process.actors[actor.name] = actor
        assert len(service.supervisor.actors) == len(records), (service, records)
        assert service.supervisor.statistics().parked == len(parked)
        assert len(service.calls.directory) == len([record for record in records if record.named])
        for principal, talk in process.talks.items():
            waiting = [sent for sent in self.sent if sent.talk is talk and not sent.settled]
            assert f"open={len(waiting)} " in repr(talk.session.connection), principal
        awaited = sum(len(self.view(record).open) for record in records)
        assert sum(actor.open_questions for actor in process.actors.values()) == awaited

    def _check_effects(self) -> None:
        for record in self.records:
            if record.run < 0:
                continue
            process = record.process
            runs = self.world.runs.get((process.slot, process.life, record.case.number), [])
            wanted = record.frozen if record.frozen is not None else self.view(record).effects
            assert runs[record.run] == wanted, record

    async def finish(self) -> None:
        """Let everything go: nothing may be left."""
        await self.act_unstall()
        await self.after_each()
        for process in self.processes:
            while process.talks:
                await self.close(process.talks.popitem()[1])
        await self.after_each()
        self.clock.jump(TTL + 1)
        await self.after_each()
        self.clock.jump(GRACE + 1)
        await self.after_each()
        for process in self.processes:
            process.service.calls.directory.find("")
            assert process.service.supervisor.actors == ()
            assert process.service.supervisor.statistics().parked == 0
            assert "live=0 finished=0" in repr(process.service.calls.directory)


def made_answers(state: State, mode: int) -> Json | None:
    """Answers of a client: all, some, none, too many, malformed, against the schema, or a refusal."""
    all_ = {key: accept(value=10 + place) for place, key in enumerate(state.asked)}
    first = next(iter(state.asked))
    match mode % 12:
        case 0:
            return dict(list(all_.items())[::2])
        case 1:
            return dict(list(all_.items())[1:])
        case 2:
            return None
        case 3:
            return {**all_, **{f"elicit-{number}": accept(value=666) for number in range(9)}, **all_, "none": {"x": 1}}
        case 4:
            return {**all_, first: {"action": "maybe"}}
        case 5:
            return {**all_, first: accept(value="no number")}
        case 6:
            return {**all_, first: DECLINE}
        case _:
            return all_


# what a reply says


def refused(reply: Json) -> None:
    assert reply.get("error") == STATE_ERROR, reply


def same(outcome: Json | None) -> Check:
    def check(reply: Json) -> None:
        if outcome is None:
            assert reply["error"]["code"] == INTERNAL_ERROR, reply
            assert "was cancelled" in reply["error"]["message"], reply
        else:
            assert reply == outcome, reply

    return check


def malformed_reply(keys: list[str]) -> Check:
    def check(reply: Json) -> None:
        assert reply["error"]["code"] == INVALID_PARAMS, reply
        assert any(f"inputResponses.{key}" in reply["error"]["message"] for key in keys), reply

    return check


def check_final(reply: Json, view: View) -> None:
    result = reply["result"]
    assert result["resultType"] == "complete", result
    assert bool(result.get("isError")) == view.failed, result
    if view.failed:
        assert str(view.final) in text_of(result), result
    else:
        assert text_of(result) == view.final, result


def check_round(reply: Json, view: View) -> None:
    result = reply["result"]
    assert result["resultType"] == "input_required", result
    asked = {key: question["params"]["message"].split("\n")[0] for key, question in result["inputRequests"].items()}
    assert list(asked.items()) == list(view.open.items()), (asked, view)


# programs

ACTIONS = (
    "wait",  # what others shrink to
    *("start",) * 4,
    *("next",) * 8,
    *("repeat",) * 3,
    *("release",) * 3,
    *("advance",) * 2,
    *("disconnect", "cancel", "stall", "unstall") * 2,
    *("forge", "close", "wall", "restart"),
)
NUMBER = st.integers(0, 63)
ACTION = st.tuples(st.sampled_from(ACTIONS), NUMBER, NUMBER, NUMBER, NUMBER)
Program = list[tuple[str, int, int, int, int]]


def run_program(program: Program) -> None:
    clock = MockClock()

    async def main() -> None:
        with trio.fail_after(1e6):
            async with trio.open_nursery() as nursery:
                machine = Machine(clock, nursery)
                machine.processes = [await machine.boot(slot, 0) for slot in (0, 1)]
                for name, *numbers in program:
                    await getattr(machine, f"act_{name}")(*numbers)
                    await machine.after_each()
                await machine.finish()
                for process in machine.processes:
                    process.stop.set()

    trio.run(main, clock=clock)


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    """Every refusal is logged; thousands of them say nothing new."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@settings(
    max_examples=RUNS,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.lists(ACTION, min_size=12, max_size=40))
def test_any_program_of_legs_answers_repeats_losses_and_restarts_does_what_the_model_says(program: Program) -> None:
    run_program(program)
