"""What holds after every action of a machine of rounds, and at its end."""

from __future__ import annotations

from rounds_calls import GRACE, TTL
from rounds_records import Process
from rounds_rules import Rules
from trio.testing import wait_all_tasks_blocked


class Machine(Rules):
    """Runs actions and checks what they lead to."""

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
