"""What holds after every action of the machine of tasks, and at its end."""

from __future__ import annotations

from collections import Counter

from late_store import NEVER
from task_talk import DECLARES
from tasks_model import Case
from tasks_process import opened_task
from tasks_records import Sent, Task
from tasks_rules import OPEN, OPEN_PER_OWNER, Rules
from tasks_told import ROUNDING
from trio.testing import wait_all_tasks_blocked

from trio_mcp.session.tasks.elsewhere import CANCEL_SECONDS
from trio_mcp.session.tasks.mail import WAIT_SECONDS
from trio_mcp.session.tasks.record import TaskRecord

PROMPT = ("tasks/get", "tasks/cancel", "tasks/list", "create")
"""Requests that are answered at once; so are answers, but to questions that a restarted server has not asked again yet, and
cancels, but of tasks that it has not taken over yet."""
ANSWERS = ("tasks/update", "malformed")


class Machine(Rules):
    """Runs actions and checks what they lead to."""

    async def open(self) -> None:
        await self.boot()
        talk = await self.talk("modern", 0)
        self.unknown = await talk.error(talk.ask("tasks/get", DECLARES, taskId="made up"))

    async def after_each(self) -> None:
        await wait_all_tasks_blocked()
        self.check_world()
        while self.process.store.has_crashed:
            await self.end_process()
            await self.boot()
        self.collect()
        self.check_world()
        self.note_taken_over()
        if self.process.store.hang is None and not self.process.store.is_waiting:
            prompt = PROMPT if self.reboots else PROMPT + ANSWERS
            late = [sent for sent in self.sent.values() if sent.about in prompt and self.now() > sent.due]
            assert not late, f"no reply to {late}"
            self.check_tasks()

    def send(self, sent: Sent, method: str, era: str, **params: object) -> Sent:
        """Send a request. The cancel of a task that no process works on waits until one does, and is refused after a while."""
        if sent.about == "tasks/cancel" and sent.view != "unknown" and self.is_left(sent.task):
            sent.due = self.now() + CANCEL_SECONDS + WAIT_SECONDS
        return super().send(sent, method, era, **params)

    def note_taken_over(self) -> None:
        """Let a cancel be answered at the next look at its task, now that the process works on the task, or it is over."""
        for sent in self.sent.values():
            if sent.about == "tasks/cancel" and not self.is_left(sent.task):
                sent.due = min(sent.due, self.now() + WAIT_SECONDS)

    def is_left(self, task: Task | None) -> bool:
        return task is not None and any(left.id == task.id for left in self.left_tasks())

    def check_world(self) -> None:
        assert not self.world.failures, self.world.failures

    def check_tasks(self) -> None:
        service = self.process.service
        open_tasks = list(service.tasks)
        assert len(open_tasks) <= OPEN, open_tasks
        owners = Counter(task.record.owner for task in open_tasks)
        assert all(count <= OPEN_PER_OWNER for owner, count in owners.items() if owner), owners
        clock = service.tasks.clock()
        for task in self.tasks.values():
            if clock > task.expires + 1 and not self.world.work(task.case.number).may_run_again:
                assert not self.world.work(task.case.number).running, f"{task} works after its time"

    async def finish(self) -> None:
        """Let everything go on: every task that a caller knows comes to its end, and then nothing is left."""
        await self.act_unstall()
        self.process.store.arm(0, after=False)
        self.process.store.be_late(0, NEVER)
        self.world.release_all()
        await self.after_each()
        await self.settle()
        for task in list(self.tasks.values()):
            if not task.has_session:
                await self.bring_to_its_end(task)
        self.clock.jump(1_000)
        await self.after_each()
        assert len(self.process.service.tasks) == 0
        while self.process.talks:
            await self.act_close(0)
        await self.after_each()
        await self.end_process()

    async def settle(self) -> None:
        """Let the store work until every write is known, if one was late; then some process works on each open task."""
        stores = (self.process.store, *self.elders)
        if not any(store.given_up for store in stores):
            return
        services = self.process.service.calls
        for _ in range(50):
            if (
                min(store.next_time() for store in stores) == NEVER
                and not len(services.settling)
                and not any(task.is_saving for task in self.process.service.tasks)
                and not self.left_tasks()
                and not self.unread()
                and not any(sent.about == "tasks/cancel" for sent in self.sent.values())
            ):
                break
            await self.pass_time(1)
            await self.after_each()
        left = [stored for stored in self.left_tasks() if stored.node == services.node]
        assert not left, f"no process works on {left}"
        assert not self.unread(), f"no process takes the answers to {self.unread()}"
        if self.left_tasks():
            # What a dead process was late with is taken over by the next one that starts.
            await self.act_restart()
            await self.after_each()
            assert not self.left_tasks(), f"no process works on {self.left_tasks()}"
        for case in self.first_sent:
            await self.repeat_settled(case)

    def left_tasks(self) -> list[TaskRecord]:
        """Return the tasks that are not over, and that the process does not work on."""
        works = {task.record.id for task in self.process.service.tasks if task.version}
        records = [opened_task(record) for (kind, _), record in self.disk.records.items() if kind == "task"]
        now = max(self.times()) + ROUNDING
        return [each for each in records if each.outcome is None and each.expires_at > now and each.id not in works]

    def unread(self) -> list[Task]:
        """Return the tasks that the process works on, and whose answers it has not taken yet."""
        works = {task.record.id for task in self.process.service.tasks if task.version and not task.is_over}
        now = max(self.times())
        # By the clock of the store, what was stored for a task may be gone before its time is over here.
        return [task for task in self.tasks.values() if task.posted and task.id in works and task.expires > now]

    async def repeat_settled(self, case: Case) -> None:
        """No key is blocked now: a repeat runs, joins, or hears the outcome or that it is not known."""
        tasks = self.process.service.tasks
        has_room = len(tasks) < min(OPEN, OPEN_PER_OWNER)
        self.must_answer = case if has_room else None
        self.note_repeat(case)
        await self.call(case, 0, repeat=True)
        await self.after_each()
        self.must_answer = None

    async def bring_to_its_end(self, task: Task) -> None:
        """Ask for a task, and answer what it asks, as its owner."""
        talk = await self.talk("modern", task.case.caller)
        for _ in range(1 + task.case.n):
            self.send(
                Sent(talk, "tasks/get", task=task, view=self.view(task, talk)), "tasks/get", "modern", taskId=task.id
            )
            await self.after_each()
            if task.end is not None or self.view(task, talk) != "known":
                return
            assert task.open, f"{task} does nothing"
            self.send_update(task, talk, 0, task.open)
            await self.after_each()
        self.send(Sent(talk, "tasks/get", task=task, view=self.view(task, talk)), "tasks/get", "modern", taskId=task.id)
        await self.after_each()
        assert task.end is not None, f"{task} does not end"
