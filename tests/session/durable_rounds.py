"""Calls in rounds whose states reach two processes on one disk, and whose store may be late: what clients do and hear.

The tools are those of the machine of tasks, called without tasks. What holds whatever the store does: no step is taken twice, no
tool runs twice that must not, a result is that of what was done, and once the store works each call can go on in one of the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import trio
from crashing_store import Disk
from late_store import MOST_LATE, NEVER
from peer import EVERYTHING, text_of
from talk import DECLINE, Talk, accept
from tasks_model import HOLDS, TOOLS, Case, Host, Json, Work, World, make_server
from tasks_process import KEYS, MortalStore, Process, WallClock
from tasks_records import Round
from tasks_rules import SURELY_KNOWN, pick
from trio.testing import MockClock, wait_all_tasks_blocked
from wire_terms import IDEMPOTENCY_KEY, INTERNAL_ERROR, INVALID_PARAMS, OUTCOME_UNKNOWN, REPEAT_OF, SERVER_BUSY

from trio_mcp import CancelReason
from trio_mcp.session import Limits, MemoryBudget, ServiceOptions
from trio_mcp.session.calls.directory import NOT_REACHED
from trio_mcp.types import RequestId

PARK_TTL = 600.0
OPTIONS = ServiceOptions(keys=KEYS, actors=Limits(park_ttl=PARK_TTL))
LOSSES = ("lost", "may have run", "store of this server")
"""What the error of a call names that cannot go on."""


class Life(World):
    """The world as one life of a process acts on it: after a crash what still unwinds there happens nowhere."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.works, self.failures, self._world = world.works, world.failures, world

    async def gate(self, number: int, place: int) -> None:
        await self._world.gate(number, place)


HOSTS = (Host(), Host())
SERVERS = tuple(make_server(host) for host in HOSTS)


@dataclass(eq=False)
class Sent:
    """A request, and what it got: "" for nothing yet."""

    talk: Talk
    case: Case
    is_repeat: bool = False
    got: str = ""


@dataclass
class Known:
    """What is known of a call from what its client did: when and where it was first made."""

    at: float
    wall: float
    node: str


@dataclass(eq=False)
class Machine:
    """Runs actions, and checks what they lead to. Every number that an action is given is taken modulo what there is."""

    clock: MockClock
    nursery: trio.Nursery
    wall: WallClock = field(default_factory=WallClock)
    world: World = field(default_factory=World)
    disk: Disk = field(default_factory=Disk)
    processes: list[Process] = field(default_factory=list)
    stores: list[MortalStore] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    keyed: dict[Case, Known] = field(default_factory=dict)
    repeated: set[Case] = field(default_factory=set)
    rounds: list[Round] = field(default_factory=list)
    sent: dict[tuple[Talk, RequestId], Sent] = field(default_factory=dict)
    lateness: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    _attempts: int = 0

    # processes

    async def open(self) -> None:
        self.processes = [await self.boot(slot) for slot in (0, 1)]

    async def boot(self, slot: int) -> Process:
        HOSTS[slot].world = Life(self.world)
        process: Process = await self.nursery.start(self._serve, slot)
        await wait_all_tasks_blocked()
        return process

    async def _serve(self, slot: int, *, task_status: trio.TaskStatus[Process]) -> None:
        life = HOSTS[slot].world
        store = MortalStore(self.disk, lambda: self._die(process, life), self.stores, self.lateness[slot])
        budget = MemoryBudget(2**26)
        self.stores.append(store)
        async with SERVERS[slot]._open_service(replace(OPTIONS, store=store, memory=budget)) as service:  # noqa: SLF001
            process = Process(service, store, budget)
            process.talks["modern", 0] = Talk(service, principal="ana")
            task_status.started(process)
            await process.stop.wait()
        process.stopped.set()

    def _die(self, process: Process, life: World) -> None:
        try:
            self._collect(process)
        except AssertionError as error:
            # Raised here it would become an error of the store.
            self.world.failures.append(str(error))
        life.is_dead = True

    async def restart(self, slot: int) -> None:
        """Tear down a process, or shut it down, and start another one."""
        process = self.processes[slot]
        if process.store.hang is not None:
            process.store.hang.set()
        # What cannot be written any more is given up in time.
        self.clock.autojump_threshold = 0
        process.stop.set()
        await process.stopped.wait()
        self.clock.autojump_threshold = float("inf")
        if not process.store.has_crashed:
            self._collect(process)
            await process.store.aclose()
        talk = process.talks["modern", 0]
        talk.outbox.__exit__(None, None, None)
        talk.session.close(CancelReason.DISCONNECT)
        self.sent = {place: sent for place, sent in self.sent.items() if sent.talk is not talk}
        assert process.budget.drawn == 0, process.budget
        self.processes[slot] = await self.boot(slot)

    async def after_each(self) -> None:
        await wait_all_tasks_blocked()
        for slot, process in enumerate(self.processes):
            if process.store.has_crashed:
                await self.restart(slot)
        for process in self.processes:
            self._collect(process)
        assert not self.world.failures, self.world.failures

    # what clients hear

    def _collect(self, process: Process) -> None:
        talk = process.talks["modern", 0]
        for message in talk.waiting():
            sent = self.sent.pop((talk, message["id"]))
            assert not sent.got, f"two replies to {sent}"
            if "error" in message:
                self._hear_error(sent, message["error"])
            elif message["result"]["resultType"] == "input_required":
                sent.got = "a round"
                questions = {
                    key: self._number(sent.case, asked) for key, asked in message["result"]["inputRequests"].items()
                }
                self.rounds.append(Round(sent.case, message["result"]["requestState"], questions))
            else:
                sent.got = "a result"
                self._check_result(sent.case, message["result"])

    def _hear_error(self, sent: Sent, error: Json) -> None:
        is_elsewhere = error["message"] == NOT_REACHED
        sent.got = "busy" if error["code"] == SERVER_BUSY or is_elsewhere else "an error"
        if error.get("data") == {OUTCOME_UNKNOWN: True}:
            # A repeat may have come first, and its process may have ended.
            assert sent.case in self.repeated or "shutting down" in error["message"], (
                f"the outcome of a first call is not known: {sent}"
            )
        elif error["code"] == INTERNAL_ERROR:
            assert is_elsewhere or "cancelled" in error["message"], error
        else:
            assert error["code"] in (SERVER_BUSY, INVALID_PARAMS), error

    def _number(self, case: Case, question: Json) -> int:
        number, each = question["params"]["message"].split("\n")[0].rstrip("?").split(":")
        assert int(number) == case.number, f"{case} asks {question}"
        return int(each)

    def _check_result(self, case: Case, result: Json) -> None:
        text, work = text_of(result), self.world.work(case.number)
        if result.get("isError"):
            assert any(loss in text for loss in LOSSES), (case, text)
            return
        if work.may_run_again or case.hold == "stubborn":
            return
        assert text in work.returned, (case, text, work)
        names = {"end"} if case.tool == "quick" else {"end", *(f"step {each + 1}" for each in range(case.n))}
        assert work.steps == dict.fromkeys(names, 1), (case, work)
        self._check_made_with(case, work, text.split())

    def _check_made_with(self, case: Case, work: Work, values: list[str]) -> None:
        """A step was taken with the answers of the result: those of two clients do not mix."""
        for name, made_with in work.made_with.items():
            count = len(values) if name == "end" else 0 if case.tool == "fan" else int(name.split()[1]) - 1
            assert made_with == values[:count], (case, name, work)

    # what clients do

    async def act_wait(self, *_: int) -> None:
        """Nothing is done, and nothing happens."""

    async def act_start(self, tool: int, n: int, flags: int, slot: int) -> None:
        number = len(self.cases)
        hold = HOLDS[n // 2 % len(HOLDS)]
        key = f"key-{number}" if flags % 3 else None
        name = TOOLS[tool % len(TOOLS)]
        case = Case(number, name, 1 + n % 2, hold, "modern", 0, as_task=False, key=key)
        self.cases.append(case)
        if key is not None:
            node = self.processes[slot % 2].service.calls.node
            self.keyed[case] = Known(trio.current_time(), self.wall.now(), node)
        self.call(case, slot)

    def call(self, case: Case, slot: int, *, is_repeat: bool = False) -> Sent:
        meta: Json = {}
        if case.key is not None:
            meta[IDEMPOTENCY_KEY] = case.key
            known = self.keyed[case]
            if is_repeat:
                meta[REPEAT_OF] = known.node
            if max(trio.current_time() - known.at, self.wall.now() - known.wall) > SURELY_KNOWN:
                self.world.work(case.number).may_run_again = True
        if is_repeat:
            self.repeated.add(case)
        return self._send(case, slot, {}, meta, is_repeat=is_repeat)

    def _send(self, case: Case, slot: int, more: Json, meta: Json | None, *, is_repeat: bool = False) -> Sent:
        talk = self.processes[slot % 2].talks["modern", 0]
        sent = Sent(talk, case, is_repeat)
        request_id = talk.ask("tools/call", EVERYTHING, meta, name=case.tool, arguments=case.arguments, **more)
        self.sent[talk, request_id] = sent
        return sent

    async def act_repeat(self, which: int, slot: int, *_: int) -> None:
        case = pick(self.keyed, which)
        if case is not None:
            self.call(case, slot, is_repeat=True)

    async def act_leg(self, which: int, mode: int, slot: int, again: int) -> None:
        """Carry a call on, mostly with its newest state; now and then in both processes at once."""
        round_ = pick(self.rounds, which % 4)
        if round_ is None:
            return
        self.send_leg(round_, slot, mode)
        if again % 4 == 3:
            self.send_leg(round_, slot + again // 4, mode)

    def send_leg(self, round_: Round, slot: int, mode: int = 0) -> Sent:
        # Some clients leave a question open: then an older state leads further than this one, in another process.
        answered = list(round_.questions.items())[: 1 if mode % 8 == 6 else None]
        answers = {key: self._value(round_.case, each, mode) for key, each in answered}
        return self._send(round_.case, slot, {"requestState": round_.state, "inputResponses": answers}, None)

    def _value(self, case: Case, each: int, mode: int) -> Json:
        if mode % 8 == 7:
            return DECLINE
        self._attempts = (self._attempts + 1) % 100
        return accept(value=(case.number * 10 + each) * 100 + self._attempts)

    async def act_disconnect(self, which: int, how: int, *_: int) -> None:
        found = pick(self.sent, which)
        if found is not None:
            talk, request_id = found
            del self.sent[found]
            if how % 2:
                talk.cancel(request_id)
            else:
                talk.session.disconnect(talk.listeners[request_id])

    # what happens

    async def act_release(self, which: int, *_: int) -> None:
        case = pick((case for case in self.cases if case.hold), which)
        if case is not None:
            self.world.release(case.number)

    async def act_lapse(self, which: int, *_: int) -> None:
        await self.pass_time((0.3, 0.6, 1.1, 2.5, 5.1, 29.0)[which % 6])

    async def pass_time(self, seconds: float) -> None:
        """Let time pass; what is late by then is made at its time."""
        await self.act_unstall()
        end = trio.current_time() + seconds
        await wait_all_tasks_blocked()
        while not self._has_crashed() and trio.current_time() < end:
            stops = [store.next_time() for store in self.stores]
            # A little later: what waits for this very time goes on then.
            self.clock.jump(min(end, *(max(stop, trio.current_time()) + 0.001 for stop in stops)) - trio.current_time())
            self.stores[-1].make_due()
            await wait_all_tasks_blocked()

    def _has_crashed(self) -> bool:
        return any(process.store.has_crashed for process in self.processes)

    async def act_late(self, writes: int, by: int, slot: int, _: int) -> None:
        """The next writes of a process time out, and are made later, or never."""
        self.processes[slot % 2].store.be_late(1 + writes % 6, (0.0, 0.5, 3.0, MOST_LATE, NEVER)[by % 5])

    async def act_land(self, writes: int, which: int, *_: int) -> None:
        """Some late writes, of whichever process, are made now."""
        store = pick((store for store in self.stores if store.late), which)
        if store is not None:
            store.make_late(sorted(store.late, key=lambda write: write.due)[: 1 + writes % 4])

    async def act_stall(self, slot: int, *_: int) -> None:
        store = self.processes[slot % 2].store
        if store.hang is None:
            store.hang = trio.Event()

    async def act_unstall(self, *_: int) -> None:
        for process in self.processes:
            hang, process.store.hang = process.store.hang, None
            if hang is not None:
                hang.set()

    async def act_crash(self, slot: int, *_: int) -> None:
        self.processes[slot % 2].store.crash()

    async def act_arm(self, writes: int, after: int, slot: int, _: int) -> None:
        self.processes[slot % 2].store.arm(1 + writes % 6, after=bool(after % 2))

    async def act_restart(self, slot: int, *_: int) -> None:
        await self.act_unstall()
        await wait_all_tasks_blocked()
        if not self._has_crashed():
            await self.restart(slot % 2)

    # the end

    async def finish(self) -> None:
        """Let everything go on: each call can end in one of the processes, and then nothing is left."""
        await self.act_unstall()
        for process in self.processes:
            process.store.arm(0, after=False)
            process.store.be_late(0, NEVER)
        self.world.release_all()
        await self.after_each()
        await self.settle()
        for case in self.cases:
            await self.bring_to_its_end(case)
        self.clock.jump(2 * PARK_TTL)
        await self.after_each()
        for slot, process in enumerate(self.processes):
            assert process.service.supervisor.actors == (), process.service
            assert not len(process.service.calls.settling), process.service.calls.settling
            await self.restart(slot)

    async def settle(self) -> None:
        """Let the store work until every write is known."""
        while any(store.next_time() < NEVER for store in self.stores) or any(
            len(process.service.calls.settling) for process in self.processes
        ):
            await self.pass_time(5)
            await self.after_each()

    async def bring_to_its_end(self, case: Case) -> None:
        """Carry a call on with the answers that it wants, in whichever process it can go on."""
        for _ in range(case.n + 1):
            round_ = next((each for each in reversed(self.rounds) if each.case is case), None)
            if round_ is not None:
                newest = round_
                got = await self._one_of(self.send_leg(newest, slot) for slot in (0, 1))
            elif case.key is not None:
                got = await self._one_of(self.call(case, slot, is_repeat=True) for slot in (0, 1))
            else:
                return
            assert got != "busy", f"{case} is blocked in both processes"
            if got != "a round":
                return

    async def _one_of(self, attempts: Iterable[Sent]) -> str:
        """Return what the first of them gets that is not refused as busy."""
        got = "busy"
        for sent in attempts:
            for _ in range(5):
                await self.after_each()
                if not sent.got:
                    await self.pass_time(1)
            assert sent.got, f"no reply to {sent}"
            got = sent.got
            if got != "busy":
                break
        return got
