"""What a program of a machine of rounds consists of: what clients do, good and bad, and what happens to their server."""

from __future__ import annotations

from dataclasses import replace

import trio
from rounds_calls import GRACE, HOST, SETTLE, TTL, Calls
from rounds_model import AUDIENCE, TOOLS, Case, Json, make_server
from rounds_records import Process, Retry, made_answers, refused
from talk import Talk
from trio.testing import wait_all_tasks_blocked

from trio_mcp import CancelReason
from trio_mcp.protocol.sealing.request_state import Sealer
from trio_mcp.session import KeyRing, Limits, ServiceOptions

KEYS = (KeyRing.random(), KeyRing.random())
PRINCIPALS = ("ana", "ben", None)

OPTIONS = ServiceOptions(
    actors=Limits(park_ttl=TTL), settle=SETTLE, outcome_grace=GRACE, keys=KEYS[0], max_state=8000, store=HOST
)
SERVERS = tuple(make_server(HOST, slot, OPTIONS) for slot in (0, 1))


class Rules(Calls):
    """Runs actions. Every number that an action is given is taken modulo what there is."""

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
