"""What a program of the machine of tasks consists of: what callers do, good and bad, and what happens to their server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

import trio
from late_store import MOST_LATE, NEVER, TIMEOUT
from peer import EVERYTHING
from talk import DECLINE, Talk, accept
from task_talk import DECLARES
from tasks_model import HOLDS, TOOLS, Case, Host, Json, make_server
from tasks_process import KEYS, MortalStore, Process
from tasks_records import CALLERS, Asked, Round, Sent, Task
from tasks_told import Told
from trio.testing import MockClock, wait_all_tasks_blocked
from wire_terms import IDEMPOTENCY_KEY, REPEAT_OF

from trio_mcp import CancelReason
from trio_mcp.session import MemoryBudget, ServiceOptions
from trio_mcp.session.options import TaskOptions

OPEN, OPEN_PER_OWNER, TTL = 5, 3, 100.0
SURELY_KNOWN = 500.0
"""Seconds for which a repeat of a request is recognised, whatever became of the first."""
OPTIONS = ServiceOptions(keys=KEYS, tasks=TaskOptions(ttl=TTL, max_ttl=300, open=OPEN, open_per_owner=OPEN_PER_OWNER))
HOST = Host()
SERVER = make_server(HOST)

T = TypeVar("T")


def pick(things: Iterable[T], which: int) -> T | None:
    """Return one of them, the newest for 0."""
    listed = list(things)
    return listed[-1 - which % len(listed)] if listed else None


class Rules(Told):
    """Runs actions. Every number that an action is given is taken modulo what there is."""

    def __init__(self, clock: MockClock, nursery: trio.Nursery) -> None:
        super().__init__()
        self.clock = clock
        self.nursery = nursery
        self.first_sent: dict[Case, tuple[float, float, str]] = {}
        """When a call with a key was first made, on both clocks, and in which process."""
        self.elders: list[MortalStore] = []
        """The stores of the processes that have ended; what they have given up may still be made."""
        self._lateness: list[float] = []
        self._attempts = 0
        HOST.world = self.world

    # processes

    async def boot(self) -> None:
        self.process = await self.nursery.start(self._serve)
        self.world.is_dead = False
        await wait_all_tasks_blocked()

    async def _serve(self, *, task_status: trio.TaskStatus[Process]) -> None:
        store, budget = MortalStore(self.disk, self._die, self.elders, self._lateness), MemoryBudget(2**26)
        options = replace(OPTIONS, store=store, memory=budget)
        async with SERVER._open_service(options) as service:  # noqa: SLF001  creating a server is slow
            process = Process(service, store, budget)
            task_status.started(process)
            await process.stop.wait()
        process.stopped.set()

    def _die(self) -> None:
        """Drop the messages that the process has not sent by now."""
        try:
            self.collect()
        except AssertionError as error:
            # Raised here it would become an error of the store.
            self.world.failures.append(str(error))
        self.world.is_dead = True

    async def end_process(self) -> None:
        """Tear down the process, or shut it down; nothing of it may remain."""
        process = self.process
        if not process.store.has_crashed:
            self.is_ending = True
        if process.store.hang is not None:
            process.store.hang.set()
        # What cannot be written any more is given up in time.
        self.clock.autojump_threshold = 0
        process.stop.set()
        await process.stopped.wait()
        self.clock.autojump_threshold = float("inf")
        if not process.store.has_crashed:
            self.collect()
            await process.store.aclose()
        self.is_ending = False
        for talk in process.talks.values():
            talk.outbox.__exit__(None, None, None)
            talk.session.close(CancelReason.DISCONNECT)
        process.talks.clear()
        self.sent.clear()
        self.asked.clear()
        self.world.process_ended()
        if process.store.given_up:
            self.forgive()
        self.elders.append(process.store)
        self.reboots += 1
        assert process.budget.drawn == 0, process.budget
        assert not any(work.running for work in self.world.works.values()), "something still runs"

    async def talk(self, era: str, caller: int) -> Talk:
        """Return a caller's connection."""
        talks = self.process.talks
        if (era, caller) not in talks:
            talks[era, caller] = talk = Talk(self.process.service, principal=CALLERS[caller])
            if era == "legacy":
                await talk.initialize()
        return talks[era, caller]

    def send(self, sent: Sent, method: str, era: str, **params: object) -> Sent:
        """Send a request; `_meta` holds what goes into it besides what the era has there."""
        meta = params.pop("_meta", None)
        if era == "modern":
            declared = EVERYTHING if sent.case is not None and not sent.case.as_task else DECLARES
            request_id = sent.talk.ask(method, declared, meta, **params)
        else:
            request_id = sent.talk.request(method, {**params, **({"_meta": meta} if meta else {})})
        self.sent[sent.talk, request_id] = sent
        return sent

    # actions: calls

    async def act_wait(self, *_: int) -> None:
        """Nothing is done, and nothing happens."""

    async def act_start(self, tool: int, n: int, flags: int, who: int) -> None:
        number = len(self.cases)
        case = Case(
            number,
            TOOLS[tool % len(TOOLS)],
            1 + n % 2,
            HOLDS[n // 2 % len(HOLDS)],
            ("legacy", "modern")[flags % 2],
            who % len(CALLERS),
            as_task=flags // 2 % 3 != 0,
            key=f"key-{number}" if flags // 6 % 3 else None,
        )
        self.cases.append(case)
        if case.key is not None:
            self.first_sent[case] = (self.now(), self.wall.now(), self.process.service.calls.node)
        await self.call(case, who // len(CALLERS))

    async def call(self, case: Case, ttl: int, *, repeat: bool = False, caller: int | None = None) -> None:
        talk = await self.talk(case.era, case.caller if caller is None else caller)
        meta: Json = {}
        if case.key is not None:
            meta[IDEMPOTENCY_KEY] = case.key
            if repeat:
                meta[REPEAT_OF] = self.first_sent[case][2]
        params: Json = {"name": case.tool, "arguments": case.arguments, "_meta": meta}
        if case.as_task and case.era == "legacy":
            # The same for each repeat of the call.
            params["task"] = ({}, {"ttl": 1_000}, {"ttl": 40_000}, {"ttl": 10**9})[case.number % 4]
        about = "create" if case.as_task else "call"
        self.send(Sent(talk, about, case, is_repeat=repeat), "tools/call", case.era, **params)

    async def act_repeat(self, which: int, who: int, *_: int) -> None:
        case = pick(self.first_sent, which)
        if case is None:
            return
        self.note_repeat(case)
        # Another session of the same caller may do it too.
        caller = 1 - case.caller if case.caller < 2 and who % 2 else case.caller
        await self.call(case, 0, repeat=True, caller=caller)

    def note_repeat(self, case: Case) -> None:
        """Note that a call may be taken for a new one, if its repeat comes so late."""
        began, began_wall, _node = self.first_sent[case]
        if max(self.now() - began, self.wall.now() - began_wall) > SURELY_KNOWN:
            self.world.work(case.number).may_run_again = True

    async def act_disconnect(self, which: int, how: int, *_: int) -> None:
        """A caller withdraws a request, or its connection for it is lost."""
        found = pick(self.sent, which)
        if found is None:
            return
        talk, request_id = found
        del self.sent[found]
        if how % 2:
            talk.cancel(request_id)
        else:
            talk.session.disconnect(talk.listeners[request_id])

    async def act_close(self, which: int, *_: int) -> None:
        """A whole connection is lost."""
        key = pick(self.process.talks, which)
        if key is None:
            return
        talk = self.process.talks.pop(key)
        self.sent = {place: sent for place, sent in self.sent.items() if place[0] is not talk}
        self.asked = [asked for asked in self.asked if asked.talk is not talk]
        for task in self.tasks.values():
            task.cancels = task.cancels or (task.has_session and task.talk is talk)
        talk.session.close(CancelReason.DISCONNECT)
        talk.outbox.__exit__(None, None, None)

    # actions: answers

    def value(self, case: Case, each: int, mode: int) -> Json:
        """Return an answer to a question of a call, mostly one that names both."""
        if mode % 8 == 7:
            self.values_sent.setdefault((case.number, each), []).append("no")
            return DECLINE
        self._attempts = (self._attempts + 1) % 100
        value = (case.number * 10 + each) * 100 + self._attempts
        self.values_sent.setdefault((case.number, each), []).append(str(value))
        return accept(value=value)

    async def act_answer(self, which: int, mode: int, who: int, again: int) -> None:
        """Answer a question that came as a request: an open one mostly, once mostly."""
        asked = pick((each for each in self.asked if each.is_open or again % 4 == 3), which)
        if asked is None:
            return
        asked.is_open = False
        for _ in range(2 if again % 8 == 1 else 1):
            asked.talk.answer({"id": asked.id}, self.value(asked.case, asked.each, mode))
        if who % 4 == 3:
            self.answer_as_stranger(asked)

    def answer_as_stranger(self, asked: Asked) -> None:
        """Somebody else sends an answer under the same id, which is none of its questions."""
        other = next((talk for talk in self.process.talks.values() if talk is not asked.talk), None)
        if other is not None and not any(each.talk is other and each.id == asked.id for each in self.asked):
            other.answer({"id": asked.id}, accept(value=666))

    async def act_leg(self, which: int, mode: int, who: int, again: int) -> None:
        """Carry a modern call on: with its newest state mostly, and as the one who has made it mostly."""
        round_ = pick(self.rounds, which % 3)
        if round_ is None:
            return
        stranger = who % 8 == 7 and CALLERS[round_.case.caller] is not None
        talk = await self.talk("modern", 2 if stranger and round_.case.caller != 2 else round_.case.caller)
        stranger = CALLERS[round_.case.caller] != talk.peer.principal
        for _ in range(2 if again % 4 == 3 else 1):
            self.send_leg(round_, talk, mode, is_stranger=stranger)

    def send_leg(self, round_: Round, talk: Talk, mode: int, *, is_stranger: bool) -> None:
        case = round_.case
        answers = {
            key: accept(value=666) if is_stranger else self.value(case, each, mode)
            for key, each in round_.questions.items()
        }
        params: Json = {"name": case.tool, "arguments": case.arguments, "requestState": round_.state}
        view = "unknown" if is_stranger else ""
        self.send(Sent(talk, "call", case, view=view), "tools/call", "modern", **params, inputResponses=answers)

    async def act_update(self, which: int, mode: int, who: int, again: int) -> None:
        """Answer questions of a task: open ones mostly, as its owner mostly."""
        task = pick((task for task in self.tasks.values() if task.known), which)
        if task is None:
            return
        questions = task.known if again % 4 == 3 else task.open
        talk = await self.talk_of(task, who)
        if not questions or talk is None:
            return
        for _ in range(2 if again % 8 == 1 else 1):
            self.send_update(task, talk, mode, questions)

    def send_update(self, task: Task, talk: Talk, mode: int, questions: Mapping[str, int]) -> None:
        sent = Sent(talk, "tasks/update", task=task, view=self.view(task, talk))
        if mode % 8 == 6:
            # Nothing is taken. An error while one of them is open, else an acknowledgement.
            sent.about = "malformed"
            answers: Json = {key: {"action": "maybe"} for key in questions}
        elif task.is_visible_to(talk):
            answers = {key: self.value(task.case, each, mode) for key, each in questions.items()}
            sent.values = {each: self.values_sent[task.case.number, each][-1] for each in questions.values()}
        else:
            answers = {key: accept(value=666) for key in questions}
        self.send(sent, "tasks/update", "modern", taskId=task.id, inputResponses=answers)

    # actions: tasks

    async def talk_of(self, task: Task, who: int, era: str = "modern") -> Talk | None:
        """Return a connection of the owner of a task, or now and then of somebody else."""
        if who % 8 == 7:
            return await self.talk(era, (task.case.caller + who // 8) % len(CALLERS))
        if task.has_session:
            is_open = any(talk is task.talk for talk in self.process.talks.values())
            return task.talk if is_open and era == "legacy" else None
        return await self.talk(era, task.case.caller)

    async def ask_about(self, method: str, which: int, who: int, era: str) -> Task | None:
        task = pick(self.tasks.values(), which)
        talk = None if task is None else await self.talk_of(task, who, era)
        if task is None or talk is None:
            return None
        if method == "tasks/cancel" and task.is_visible_to(talk):
            task.cancels = True
        self.send(Sent(talk, method, task=task, view=self.view(task, talk)), method, era, taskId=task.id)
        return task

    async def act_get(self, which: int, who: int, era: int, *_: int) -> None:
        await self.ask_about("tasks/get", which, who, ("modern", "modern", "legacy")[era % 3])

    async def act_result(self, which: int, who: int, *_: int) -> None:
        await self.ask_about("tasks/result", which, who, "legacy")

    async def act_cancel(self, which: int, who: int, era: int, *_: int) -> None:
        await self.ask_about("tasks/cancel", which, who, ("modern", "legacy")[era % 2])

    async def act_list(self, who: int, *_: int) -> None:
        talk = await self.talk("legacy", who % len(CALLERS))
        # What a store that hangs lists in the end may be older than what another connection hears meanwhile.
        view = "" if self.process.store.hang is None else "either"
        self.send(Sent(talk, "tasks/list", view=view), "tasks/list", "legacy")

    # actions: what happens

    async def act_release(self, which: int, *_: int) -> None:
        case = pick((case for case in self.cases if case.hold), which)
        if case is not None:
            self.world.release(case.number)

    async def act_pass(self, which: int, *_: int) -> None:
        """Time passes. A store that does not answer for so long would have failed, which is another story."""
        await self.act_unstall()
        await self.pass_time((0.3, 2.0, 29.0, 61.0, 101.0, 301.0, 601.0)[which % 7])

    async def pass_time(self, seconds: float) -> None:
        """Let time pass; what is late by then is made at its time."""
        end = trio.current_time() + seconds
        await wait_all_tasks_blocked()
        # What has been sent by now was sent at this time.
        self.collect()
        while not self.process.store.has_crashed and trio.current_time() < end:
            stops = [store.next_time() for store in (self.process.store, *self.elders)]
            # A little later: what waits for this very time goes on then.
            self.clock.jump(min(end, *(max(stop, trio.current_time()) + 0.001 for stop in stops)) - trio.current_time())
            self.process.store.make_due()
            await wait_all_tasks_blocked()

    async def act_lapse(self, which: int, *_: int) -> None:
        """So much time passes that a write may time out, or is made after all."""
        await self.act_unstall()
        await self.pass_time((0.6, 1.1, 2.5, 5.1)[which % 4])

    async def act_late(self, writes: int, by: int, *_: int) -> None:
        """The next writes time out, and are made later, or never."""
        self.process.store.be_late(1 + writes % 6, (0.0, 0.5, 3.0, MOST_LATE, NEVER)[by % 5])

    async def act_land(self, writes: int, which: int, *_: int) -> None:
        """Some late writes, of this process or an earlier one, are made now; what has not timed out yet was not late."""
        store = pick((store for store in (*self.elders, self.process.store) if store.late), which)
        if store is not None:
            store.make_late(sorted(store.late, key=lambda write: write.due)[: 1 + writes % 4])

    async def act_set_clock(self, which: int, *_: int) -> None:
        """The clock is set. A repeat that waits for the store would come later than it was sent."""
        await self.act_unstall()
        by = (-59.0, -5.0, 5.0, 59.0, 101.0, 601.0)[which % 6]
        if by > MOST_LATE and any(store.next_time() < NEVER for store in (self.process.store, *self.elders)):
            # No write is late by so much.
            await self.pass_time(MOST_LATE + TIMEOUT + 0.1)
        await wait_all_tasks_blocked()
        self.wall.offset += by

    async def act_stall(self, *_: int) -> None:
        if self.process.store.hang is None:
            self.process.store.hang = trio.Event()

    async def act_unstall(self, *_: int) -> None:
        hang, self.process.store.hang = self.process.store.hang, None
        if hang is not None:
            hang.set()

    async def act_crash(self, *_: int) -> None:
        self.process.store.crash()

    async def act_arm(self, writes: int, after: int, *_: int) -> None:
        self.process.store.arm(1 + writes % 6, after=bool(after % 2))

    async def act_restart(self, *_: int) -> None:
        """The server is shut down, and started again."""
        await self.act_unstall()
        await wait_all_tasks_blocked()
        if not self.process.store.has_crashed:
            await self.end_process()
            await self.boot()
