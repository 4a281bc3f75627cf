"""What a machine of rounds knows of the calls that it has started: which requests have had a reply by now, and which one."""

from __future__ import annotations

import trio
from rounds_model import Case, Host, Json, View, World, simulate
from rounds_records import (
    Check,
    Fetch,
    Process,
    Record,
    Retry,
    Sent,
    State,
    check_final,
    check_round,
    malformed_reply,
    refused,
    same,
)
from trio.testing import MockClock

TTL, GRACE, SETTLE, SKEW = 600.0, 60.0, 0.2, 60.0
WALL = 1_800_000_000.0

HOST = Host()


class Calls:
    """The calls of one program, as their clients have to see them."""

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
