"""The answers that callers of the machine of tasks received, and a check that they do not contradict each other."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import trio
from crashing_store import Disk
from peer import text_of
from talk import Talk
from tasks_model import IN_SPITE, REPLAYED, Case, Json, World
from tasks_process import Process, WallClock, opened_task
from tasks_records import Asked, Round, Sent, Task
from wire_terms import INTERNAL_ERROR, INVALID_PARAMS, OUTCOME_UNKNOWN, RELATED_TASK, SERVER_BUSY

from trio_mcp.session.tasks.mail import MAIL_KIND, Letter
from trio_mcp.session.tasks.record import TaskRecord, storage_key
from trio_mcp.types import RequestId

ENDS = {"completed": "done", "failed": "failed", "cancelled": "cancelled"}
ROUNDING = 0.002
"""Seconds: the times that callers receive are in milliseconds."""


class Told:
    """What all callers of one program know."""

    def __init__(self) -> None:
        self.world = World()
        self.wall = WallClock()
        self.disk = Disk()
        self.process: Process
        self.reboots = 0
        self.is_ending = False
        self._reading: Talk | None = None
        """Whose messages are read now."""
        self._ended: dict[str, Talk | None] = {}
        """The tasks whose end was heard among what is read now, by their ids, and where."""
        self.is_forgiven = False
        """A process has ended that had a late store."""
        """The process shuts down: requests that still wait may get any error."""
        self.unknown: Json = {}
        """The error for an id that was never issued."""
        self.cases: list[Case] = []
        self.must_answer: Case | None = None
        """A call that nothing may block now."""
        self.tasks: dict[str, Task] = {}
        self.sent: dict[tuple[Talk, RequestId], Sent] = {}
        self.asked: list[Asked] = []
        self.rounds: list[Round] = []
        self.finals: dict[int, tuple[bool, str]] = {}
        self.values_sent: dict[tuple[int, int], list[str]] = {}

    def task_of(self, case: Case) -> Task | None:
        return next((task for task in self.tasks.values() if task.case is case), None)

    # time

    def times(self) -> tuple[float, float]:
        """Return what the clock of the process and the clock of the machine show."""
        return self.process.service.tasks.clock(), self.wall.now()

    def view(self, task: Task, talk: Talk) -> str:
        """Return whether a caller must find a task, must not, or may: when the clocks do not agree whether it is over."""
        times = self.times()
        task.high = max(task.high, *times)
        if not task.is_visible_to(talk) or min(times) > task.expires + ROUNDING:
            return "unknown"
        return "known" if task.high < task.expires - ROUNDING else "either"

    # a store that is late

    @property
    def is_late(self) -> bool:
        """Whether a write has timed out in this process."""
        return self.process.store.given_up > 0

    def forgive(self) -> None:
        """The process has ended, and its store was late: what it showed from memory is known no more.

        An answer counts as long as it is recorded, and a step is never taken twice: only what was said of it may have been lost.
        """
        for task in self.tasks.values():
            stored = self.stored_task(task)
            if stored is None or stored.outcome is None:
                task.end, task.is_over = None, False
                task.stage = min(task.stage, int((stored and stored.message) or 0))
                task.answered.clear()
        for work in self.world.works.values():
            work.expected.clear()
        self.is_forgiven = True

    def stored_task(self, task: Task) -> TaskRecord | None:
        """Return the record of a task as the disk has it."""
        record = self.disk.records.get(("task", storage_key(task.id) or ""))
        return None if record is None else opened_task(record)

    # messages

    def collect(self) -> None:
        """Read everything that has come."""
        for task in self.tasks.values():
            task.high = max(task.high, *self.times())
        received = [(talk, talk.waiting()) for talk in self.process.talks.values()]
        self._ended = {}
        # The order of messages on several connections is unknown: a notification may be older than another one's answer.
        for talk, messages in sorted(received, key=lambda each: not any("method" in message for message in each[1])):
            self._reading = talk
            for message in messages:
                self._hear(talk, message)
        self._note_taken()

    def _hear(self, talk: Talk, message: Json) -> None:
        match message:
            case {"method": "elicitation/create"}:
                self._hear_question(talk, message)
            case {"method": "notifications/cancelled", "params": {"requestId": request_id}}:
                for asked in self.asked:
                    asked.is_open = asked.is_open and (asked.talk is not talk or asked.id != request_id)
            case {"method": "notifications/tasks/status", "params": state}:
                # It may come before the answer to the request that creates the task.
                if (task := self.tasks.get(state["taskId"])) is not None:
                    assert task.is_visible_to(talk), "news of somebody else's task"
                    self._see(task, talk, state)
            case {"method": method}:
                raise AssertionError(f"an unexpected {method}")
            case _:
                sent = self.sent.pop((talk, message["id"]), None)
                assert sent is not None, f"two replies: {message}"
                self._hear_reply(sent, message)

    def _hear_reply(self, sent: Sent, reply: Json) -> None:
        error, result = reply.get("error"), reply.get("result")
        if sent.about == "create":
            self._hear_created(sent, result, error)
        elif sent.about == "call":
            self._hear_call(sent, result, error)
        elif sent.about == "tasks/list":
            self._hear_list(sent, reply)
        elif sent.about == "malformed":
            assert error is None or error["code"] in (INVALID_PARAMS, SERVER_BUSY), error
        else:
            self._hear_about(sent, result, error)

    # calls

    def _hear_created(self, sent: Sent, result: Json | None, error: Json | None) -> None:
        case = sent.case
        assert case is not None
        if result is None:
            assert error is not None
            self._check_refusal(sent, error)
            return
        state = result["task"] if case.era == "legacy" else result
        assert case.era == "legacy" or result["resultType"] == "task", result
        ttl = state["ttl"] if "ttl" in state else state["ttlMs"]
        expires = datetime.fromisoformat(state["createdAt"]).timestamp() + ttl / 1000
        before = self.task_of(case)
        if before is not None and not self.world.work(case.number).may_run_again:
            assert before.id == state["taskId"], f"two tasks for {case}"
        if state["taskId"] not in self.tasks:
            task = Task(state["taskId"], case, sent.talk, expires, max(self.times()))
            self.tasks[task.id] = task
            if self.view(task, sent.talk) == "known":
                assert ("task", storage_key(task.id)) in self.disk.records, "a task was shown before it was stored"

    def _check_refusal(self, sent: Sent, error: Json) -> None:
        """A call that was not run, or whose outcome is not known."""
        case = sent.case
        assert case is not None
        is_lost = error.get("data") == {OUTCOME_UNKNOWN: True}
        busy = error["code"] == SERVER_BUSY and case is not self.must_answer
        assert self.is_ending or busy or (is_lost and sent.is_repeat), (case, error)

    def _hear_call(self, sent: Sent, result: Json | None, error: Json | None) -> None:
        case = sent.case
        assert case is not None
        if result is None:
            if error.get("data") == {OUTCOME_UNKNOWN: True} and not self.is_ending:
                known = case.number in self.finals or any(round_.case is case for round_ in self.rounds)
                known = known and not self.is_forgiven and not self.is_late
                assert not known or self.world.work(case.number).may_run_again, f"the outcome of {case} was known"
            # A state that is used up or not this caller's, or a call that was cancelled while a repeat joined it.
            if error["code"] not in (INVALID_PARAMS, INTERNAL_ERROR):
                self._check_refusal(sent, error)
            return
        assert sent.view != "unknown", f"a stranger carried {case} on"
        if result.get("resultType") == "input_required":
            questions = {key: self._number(case, asked) for key, asked in result["inputRequests"].items()}
            self.rounds.append(Round(case, result["requestState"], questions))
            return
        final = bool(result.get("isError")), text_of(result)
        if final[0]:
            self._check_failed(case, final[1])
        else:
            self._check_done(case, final[1])
            if not self.world.work(case.number).may_run_again and final[1] != IN_SPITE:
                assert self.finals.setdefault(case.number, final) == final

    def _number(self, case: Case, question: Json) -> int:
        """Return the number of a question; it has to be one of this call."""
        number, each = question["params"]["message"].split("\n")[0].rstrip("?").split(":")
        assert int(number) == case.number, f"{case} asks {question}"
        return int(each)

    def _hear_question(self, talk: Talk, message: Json) -> None:
        number = int(message["params"]["message"].split(":")[0])
        case = self.cases[number]
        related = message["params"].get("_meta", {}).get(RELATED_TASK)
        if related is not None:
            task = self.tasks[related["taskId"]]
            assert task.case is case, "a question of another task"
            # Where its ttl ends while a write is late, the question and the end may come in one jump of the clock.
            is_known = task.is_visible_to(talk) if self.is_late else self.view(task, talk) != "unknown"
            assert is_known, "somebody else is asked"
        else:
            assert any(
                sent.talk is talk and sent.case is case and sent.about == "call" for sent in self.sent.values()
            ), f"{case} asks where it was not called"
        self.asked.append(Asked(talk, message["id"], case, self._number(case, message)))

    # tasks

    def _hear_about(self, sent: Sent, result: Json | None, error: Json | None) -> None:
        task = sent.task
        assert task is not None
        view = self.view(task, sent.talk)
        view = view if view == sent.view else "either"
        if view == "unknown":
            assert error == self.unknown, (sent, result, error)
        elif view == "known" and not self.is_ending:
            assert error != self.unknown, f"a task was forgotten: {task}"
            self._hear_of(sent, task, result, error)

    def _hear_of(self, sent: Sent, task: Task, result: Json | None, error: Json | None) -> None:
        if error is not None and error["code"] == SERVER_BUSY and self.is_late and self.reboots:
            # It has not been taken over yet.
            return
        task.is_over = task.is_over or sent.about == "tasks/cancel"
        if sent.about == "tasks/result":
            self._hear_outcome(task, result, error)
        elif sent.about == "tasks/cancel" and result is None:
            # It was over already, which is an error in 2025-11-25.
            assert error["code"] == INVALID_PARAMS, error
        elif result is None:
            assert error is not None
            # To a question that a restarted server has not asked again in time, or whose answer the store has not recorded.
            may_fail = self.reboots or self.is_late
            busy = sent.about == "tasks/update" and may_fail and error["code"] == SERVER_BUSY
            assert busy, f"{sent.about} failed: {error}"
        elif sent.about == "tasks/update":
            self._note_acknowledged(task, sent.values)
            for each, value in sent.values.items():
                # Of several that were on their way at once any may count.
                if self.values_sent[task.case.number, each] == [value]:
                    self.world.work(task.case.number).expected[each] = value
        elif "status" in result:
            self._see(task, sent.talk, result)
        else:
            assert sent.about == "tasks/cancel", (sent, result)

    def _note_acknowledged(self, task: Task, numbers: Iterable[int]) -> None:
        """Note which answers the store has for the process that works on the task; all others are taken."""
        for key, number in task.known.items():
            if number in numbers and self.has_letter(task, key):
                task.posted[key] = number
        task.answered.update(set(numbers) - set(task.posted.values()))

    def _note_taken(self) -> None:
        """Note which answers were taken since the last look: their questions are not asked again from now on."""
        for task in self.tasks.values():
            for key in [key for key in task.posted if not self.has_letter(task, key)]:
                task.answered.add(task.posted.pop(key))

    def has_letter(self, task: Task, key: str) -> bool:
        """Return whether the disk has an answer to a question that the process of the task has not taken yet."""
        return (MAIL_KIND, Letter(storage_key(task.id) or "", key).key) in self.disk.records

    def _hear_outcome(self, task: Task, result: Json | None, error: Json | None) -> None:
        if result is not None:
            assert result["_meta"][RELATED_TASK]["taskId"] == task.id
            self._see_end(task, "failed" if result.get("isError") else "done", text_of(result))
        else:
            is_cancel = error["code"] == INTERNAL_ERROR and error["message"] == "the task was cancelled"
            self._see_end(task, *(("cancelled", None) if is_cancel else ("failed", error["message"])))

    def _hear_list(self, sent: Sent, reply: Json) -> None:
        for state in reply["result"]["tasks"]:
            task = self.tasks.get(state["taskId"])
            if task is not None:
                assert task.is_visible_to(sent.talk), "somebody else's task is listed"
                if sent.view != "either" and self.view(task, sent.talk) == "known":
                    self._see(task, sent.talk, state)

    def _see(self, task: Task, talk: Talk, state: Json) -> None:
        """Take note of the state of a task as a caller sees it."""
        assert state["taskId"] == task.id
        if self.view(task, talk) != "known":
            return
        status, message = state["status"], state.get("statusMessage")
        if status in ENDS:
            text = text_of(state["result"]) if "result" in state else None
            end = ENDS[status]
            if "result" in state and state["result"].get("isError"):
                end = "failed"
            elif status == "failed":
                text = state["error"]["message"] if "error" in state else message
            self._see_end(task, end, text)
            return
        if self._ended.get(task.id, talk) is not talk:
            # Another connection has said that it ended, perhaps later than this one said that it works.
            return
        assert task.end is None, f"{task} is {status} again"
        assert not task.is_over, f"{task} is {status}, and was said to be over"
        if message is not None:
            assert int(message) >= task.stage, f"{task} is back at {message}"
            task.stage = int(message)
        if "inputRequests" in state:
            task.open = {key: self._number(task.case, asked) for key, asked in state["inputRequests"].items()}
            task.known.update(task.open)
            assert not task.answered & set(task.open.values()), f"{task} asks again what was answered"

    def _see_end(self, task: Task, end: str, text: str | None) -> None:
        before = task.end
        if before is None:
            self._ended[task.id] = self._reading
        else:
            assert before[0] == end, f"{task} has ended otherwise: {end} {text}"
            assert None in (before[1], text) or before[1] == text, f"{task} has ended otherwise: {text}"
        task.end = (end, before[1] if before is not None and text is None else text)
        if end == "cancelled":
            assert task.cancels, f"no caller has cancelled {task}"
        elif end == "done" and text is not None:
            self._check_done(task.case, text)
        elif end == "failed" and text is not None:
            assert self.reboots or self.is_late, f"{task} has failed: {text}"
            self._check_failed(task.case, text)

    # what a call did

    def _check_done(self, case: Case, text: str) -> None:
        """A result fits what was done for it."""
        work = self.world.work(case.number)
        if text == IN_SPITE and not case.as_task:
            return
        assert text in work.returned, (case, text, work)
        if work.may_run_again:
            return
        values = text.split()
        names = {"end"} if case.tool == "quick" else {"end", *(f"step {each + 1}" for each in range(case.n))}
        assert work.steps == dict.fromkeys(names, 1), (case, work)
        for name, made_with in work.made_with.items():
            count = len(values) if name == "end" else 0 if case.tool == "fan" else int(name.split()[1]) - 1
            assert made_with == values[:count], (case, name, work)

    def _check_failed(self, case: Case, text: str) -> None:
        """A call says that a step may have run if one may, and that it was lost if it must not be replayed."""
        work = self.world.work(case.number)
        if "store of this server" in text or "what it had recorded" in text:
            assert self.is_late or self.is_forgiven, (case, text)
        elif "may have run" in text:
            # What became of it may not have been recorded.
            unsure = self.is_forgiven or self.is_late or any(f"'{name}'" in text for name in work.unsure | work.begun)
            assert unsure, (case, text, work)
        else:
            assert case.tool not in REPLAYED, (case, text)
            assert "lost" in text, (case, text)

    def now(self) -> float:
        return trio.current_time()
