"""One call as a task, in either era: what a test of tasks says to the server and reads of the answers."""

from __future__ import annotations

from typing import Any

from peer import EVERYTHING, Json
from talk import Talk
from trio.testing import wait_all_tasks_blocked
from wire_terms import TASKS_EXTENSION

from trio_mcp.types import RequestId

DECLARES: Json = {**EVERYTHING, "extensions": {TASKS_EXTENSION: {}}}
"""The capabilities of a modern client that takes tasks."""


class LegacyTask:
    """A task of a client of 2025-11-25, whose session is open."""

    era = "legacy"
    terminal = ("completed", "failed", "cancelled")

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.id = ""

    async def open(self) -> None:
        await self.talk.initialize()

    def request(self, method: str, **params: Any) -> RequestId:
        return self.talk.request(method, params)

    def about(self, method: str) -> RequestId:
        """Send a request about the task."""
        return self.request(method, taskId=self.id)

    def create(self, name: str, arguments: Json | None = None, ttl: int | None = None) -> RequestId:
        task = {} if ttl is None else {"ttl": ttl}
        return self.request("tools/call", name=name, arguments=arguments or {}, task=task)

    async def start(self, name: str, arguments: Json | None = None, ttl: int | None = None) -> Json:
        """Create a task; return what is shown of it."""
        task = self.created(await self.reply(self.create(name, arguments, ttl)))
        self.id = task["taskId"]
        return task

    def created(self, reply: Json) -> Json:
        return reply["result"]["task"]

    async def reply(self, request_id: RequestId) -> Json:
        """Return the reply to a request, and drop the news that come before it."""
        while True:
            message = await self.talk.receive()
            if message.get("id") == request_id and "method" not in message:
                return message

    async def get(self) -> Json:
        return (await self.reply(self.about("tasks/get")))["result"]

    async def status(self) -> str:
        await wait_all_tasks_blocked()
        return str((await self.get())["status"])

    async def answer(self, value: object) -> None:
        """Answer the one open question; the task then goes on as far as it can."""
        result = self.about("tasks/result")
        await wait_all_tasks_blocked()
        (question,) = [each for each in self.talk.waiting() if each.get("method") == "elicitation/create"]
        self.talk.answer(question, {"action": "accept", "content": {"value": value}})
        await wait_all_tasks_blocked()
        del result

    async def outcome(self) -> Json:
        """Wait until the task is over; return the result of its call."""
        return await self.reply(self.about("tasks/result"))

    async def result(self) -> Json:
        return (await self.outcome())["result"]


class ModernTask(LegacyTask):
    """A task of a client of the extension."""

    era = "modern"

    def update(self, answers: Json) -> RequestId:
        """Answer questions, by their keys."""
        return self.request("tasks/update", taskId=self.id, inputResponses=answers)

    async def open(self) -> None:
        """Nothing is opened."""

    def request(self, method: str, **params: Any) -> RequestId:
        return self.talk.ask(method, DECLARES, **params)

    def create(self, name: str, arguments: Json | None = None, ttl: int | None = None) -> RequestId:
        return self.request("tools/call", name=name, arguments=arguments or {})

    def created(self, reply: Json) -> Json:
        assert reply["result"]["resultType"] == "task", reply
        return reply["result"]

    async def answer(self, value: object) -> None:
        await wait_all_tasks_blocked()
        (key,) = (await self.get())["inputRequests"]
        reply = await self.reply(self.update({key: {"action": "accept", "content": {"value": value}}}))
        assert "result" in reply, reply
        await wait_all_tasks_blocked()

    async def outcome(self) -> Json:
        await wait_all_tasks_blocked()
        return await self.get()

    async def result(self) -> Json:
        return (await self.outcome())["result"]


TASK_ERAS = (LegacyTask, ModernTask)
