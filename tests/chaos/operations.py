"""What clients do in a chaos run, and what they were promised.

Each operation has two effects, `charge` and `ship`. Its client goes on until it has a result or an error. A request without an
answer is sent again where that is allowed: with an idempotency key, with a `requestState`, about a task, or for the rest of a
stream.

| what the client has at the end      | what the ledger has                                                          |
|-------------------------------------|------------------------------------------------------------------------------|
| the result                          | each effect once                                                             |
| an error, or that it is not known   | each effect at most once                                                     |
| that nothing was run                | none                                                                         |
| nothing, although all is well again | a broken promise, whatever the ledger has                                    |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from enum import Enum
from random import Random
from typing import Any, ClassVar, Final, NamedTuple

import httpx2
import trio
from peer import hello
from wire_terms import IDEMPOTENCY_KEY, NEWEST_LEGACY, OUTCOME_UNKNOWN, REPEAT_OF, TASKS_EXTENSION

from chaos.ledger import Effect, counted
from chaos.story import Story
from chaos.wire import Event, Json, Lost, Wire

FORM: Final[Json] = {"elicitation": {"form": {}}}
TASKS: Final[Json] = {**FORM, "extensions": {TASKS_EXTENSION: {}}}
YES: Final[Json] = {"action": "accept", "content": {"value": True}}
EFFECTS: Final = {"charge": 1, "ship": 1}

BUSY: Final = -32000
"""The error of a request that was refused, and may be sent again."""


class End(Enum):
    """What a client has at the end of an operation."""

    RESULT = "a result"
    ERROR = "an error"
    REFUSED = "that nothing was run"
    NOTHING = "nothing"


class Outcome(NamedTuple):
    end: End
    why: str = ""


class Place:
    """Which process the next request goes to: mostly the one before, now and then another.

    Args:
        ports: of the processes.
    """

    def __init__(self, ports: list[int], random: Random) -> None:
        self._ports, self._random = ports, random
        self._port = random.choice(ports)

    def next(self) -> int:
        if self._random.random() < 0.15:
            self._port = self._random.choice(self._ports)
        return self._port

    def lost(self) -> None:
        """Nothing came from there: go elsewhere as often as not."""
        if self._random.random() < 0.5:
            self._port = self._random.choice(self._ports)

    def refused(self) -> None:
        """The process there could not take it: go to the next one, as behind a balancer that takes turns."""
        self._port = self._ports[(self._ports.index(self._port) + 1) % len(self._ports)]


class Operation(ABC):
    """One operation of one client.

    Attributes:
        story: what was sent and what came.
        outcome: what the client has; NOTHING until its end.
    """

    kind: ClassVar[str]

    def __init__(self, name: str, client: httpx2.AsyncClient, ports: list[int], random: Random) -> None:
        self.name = f"{self.kind}-{name}"
        self.story = Story(self.name)
        self.outcome = Outcome(End.NOTHING)
        self.wire = Wire(client, self.story)
        self.random = random
        self.place = Place(ports, random)
        self.tool = ""
        self.key = self.random.randbytes(16).hex() if random.random() < 0.7 else ""

    async def run(self) -> None:
        """Do it; `outcome` says then what the client has."""
        self.outcome = await self.end()
        self.story.tell(f"ended with {self.outcome}")

    @abstractmethod
    async def end(self) -> Outcome:
        """Do it, and return what the client has then."""

    def broken_promise(self, effects: list[Effect]) -> str | None:
        """Return which promise the ledger breaks, or None."""
        counts = counted(effects)
        if self.outcome.end is End.NOTHING:
            return f"the client never got an answer; effects: {dict(counts)}"
        if any(count > 1 for count in counts.values()):
            return f"an effect was had twice: {dict(counts)}"
        if self.outcome.end is End.RESULT and counts != EFFECTS:
            return f"the client has a result, and the effects are {dict(counts)}"
        if self.outcome.end is End.REFUSED and counts:
            return f"the client learned that nothing was run, but the effects are {dict(counts)}"
        return None

    async def pause(self) -> None:
        await trio.sleep(self.random.uniform(0.1, 0.4))

    @property
    def call(self) -> Json:
        """The params of the call, without `_meta`."""
        return {"name": self.tool, "arguments": {"operation": self.name}}

    def ended(self, message: Json) -> Outcome:
        """Return what the client has when the response to its call is this."""
        if "error" in message:
            error = message["error"]
            unknown = isinstance(error.get("data"), dict) and error["data"].get(OUTCOME_UNKNOWN)
            return Outcome(End.ERROR, "outcome unknown" if unknown else f"{error['code']} {error['message']}")
        result = message["result"]
        text = result["content"][0]["text"]
        if result.get("isError"):
            return Outcome(End.ERROR, text)
        assert text == f"{self.name} accept", text
        return Outcome(End.RESULT)


def is_busy(message: Json) -> bool:
    return "error" in message and message["error"].get("code") == BUSY


class Rounds(Operation):
    """A modern call that asks in rounds, or does not ask."""

    kind = "rounds"
    capabilities = FORM

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tool = self.random.choice(("replayed", "replayed", "parked", "quick"))
        self._instance = ""

    async def end(self) -> Outcome:
        answer = await self.first_leg()
        while not isinstance(answer, Outcome) and answer.get("result", {}).get("resultType") == "input_required":
            answer = await self._next_leg(answer["result"])
        return answer if isinstance(answer, Outcome) else self.ended(answer)

    async def first_leg(self) -> Json | Outcome:
        """Send the call, again if it has a key; return the response, or the end."""
        is_repeat = False
        while True:
            port = self.place.next()
            try:
                meta = await self._meta(port, is_repeat=is_repeat) if self.key else {}
                answer = await self.wire.modern(port, "tools/call", self.call, self.capabilities, meta)
            except Lost as lost:
                if not self.key:
                    return Outcome(End.ERROR, f"no answer to the first leg: {lost}")
                is_repeat = True
                self.place.lost()
            else:
                if not is_busy(answer):
                    return answer
                if not self.key:
                    return Outcome(End.REFUSED, answer["error"]["message"])
                is_repeat = is_repeat or "repeats" in answer["error"]["message"]
                self.place.refused()
            await self.pause()

    async def _meta(self, port: int, *, is_repeat: bool) -> Json:
        """Return the key, and for a repeat the process that the first request was sent to."""
        if not self._instance:
            found = await self.wire.modern(port, "server/discover", {}, FORM)
            experimental = found["result"]["capabilities"].get("experimental", {})
            self._instance = experimental["io.trio-mcp/idempotency"]["instance"]
        return {IDEMPOTENCY_KEY: self.key, **({REPEAT_OF: self._instance} if is_repeat else {})}

    async def _next_leg(self, result: Json) -> Json:
        answers = dict.fromkeys(result["inputRequests"], YES)
        await self.pause()
        call = {**self.call, "requestState": result["requestState"], "inputResponses": answers}
        return await self.insist("tools/call", call)

    async def insist(self, method: str, params: Json) -> Json:
        """Send a request until it is answered."""
        while True:
            try:
                answer = await self.wire.modern(self.place.next(), method, params, self.capabilities)
                if not is_busy(answer):
                    return answer
                self.place.refused()
            except Lost:
                self.place.lost()
            await self.pause()


class Task(Rounds):
    """A modern call that becomes a task, whose client polls."""

    kind = "task"
    capabilities = TASKS

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tool = "job"

    async def end(self) -> Outcome:
        answer = await self.first_leg()
        if isinstance(answer, Outcome):
            return answer
        if "error" in answer or answer["result"].get("resultType") != "task":
            return self.ended(answer)
        task_id = answer["result"]["taskId"]
        while True:
            found = await self.insist("tasks/get", {"taskId": task_id})
            if "error" in found:
                # Its time is not over.
                return Outcome(End.NOTHING, f"the task is unknown: {found['error']}")
            task = found["result"]
            match task["status"]:
                case "input_required":
                    answers = dict.fromkeys(task["inputRequests"], YES)
                    await self.insist("tasks/update", {"taskId": task_id, "inputResponses": answers})
                case "completed":
                    return self.ended({"result": task["result"]})
                case "failed":
                    return self.ended({"error": task["error"]})
                case "cancelled":
                    return Outcome(End.ERROR, "the task was cancelled")
            await self.pause()


class SessionGone(Exception):
    """The session is unknown, or its stream cannot be resumed."""


class Legacy(Operation):
    """A call in a legacy session, whose response is a stream that is resumed when it breaks off."""

    kind = "legacy"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tool = self.random.choice(("replayed", "replayed", "parked", "quick"))
        self._headers: dict[str, str] = {}
        self._last_event = ""
        self._number = 0
        self._nursery: trio.Nursery | None = None

    async def end(self) -> Outcome:
        async with trio.open_nursery() as self._nursery:
            try:
                while True:
                    await self._open_session()
                    try:
                        answer = await self._answer()
                    except SessionGone as gone:
                        if not self.key:
                            return Outcome(End.ERROR, str(gone))
                    else:
                        return answer if isinstance(answer, Outcome) else self.ended(answer)
                    await self.pause()
            finally:
                self._nursery.cancel_scope.cancel()

    async def _open_session(self) -> None:
        self._headers = {}
        params = hello(NEWEST_LEGACY, {"elicitation": {}})
        opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        while "Mcp-Session-Id" not in self._headers:
            try:
                opened = await self.wire.post(self.place.next(), opening, {})
                if opened.status == 200:
                    session = opened.headers["mcp-session-id"]
                    self._headers = {"Mcp-Session-Id": session, "MCP-Protocol-Version": NEWEST_LEGACY}
            except Lost:
                self.place.lost()
            await self.pause()
        await self._deliver({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def _deliver(self, message: Json) -> None:
        """Send a message until it is accepted, or the session is gone."""
        while True:
            try:
                answer = await self.wire.post(self.place.next(), message, self._headers)
                if answer.status in (202, 404, 400):
                    return
                self.place.refused()
            except Lost:
                self.place.lost()
            await self.pause()

    async def _answer(self) -> Json | Outcome:
        """Return the response to the call, or the end. Raises `SessionGone`."""
        while True:
            self._last_event = ""
            self._number += 1
            meta: Json = {"progressToken": self._number}
            if self.key:
                meta[IDEMPOTENCY_KEY] = self.key
            params = {**self.call, "_meta": meta}
            message = {"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params}
            answer = await self._read(self.place.next(), "POST", self._headers, message)
            while answer is None and self._last_event:
                await self.pause()
                resumed = {**self._headers, "Last-Event-ID": self._last_event}
                answer = await self._read(self.place.next(), "GET", resumed)
            if answer is not None and not is_busy(answer):
                return answer
            if answer is not None and not self.key:
                return Outcome(End.REFUSED, answer["error"]["message"])
            if not self.key:
                return Outcome(End.ERROR, "the response broke off before its first event")
            await self.pause()

    async def _read(self, port: int, verb: str, headers: dict[str, str], message: Json | None = None) -> Json | None:
        """Read a stream; return the response to the call if it comes. Raises `SessionGone`."""
        try:
            async with self.wire.stream(port, verb, headers, message) as (status, events):
                if status in (400, 404):
                    raise SessionGone(f"{verb} was answered with {status} {[each async for each in events]}")
                if status == 503:
                    self.place.refused()
                if status == 503 and message is not None:
                    return {"error": {"code": BUSY, "message": "503"}}
                if status == 200:
                    return await self._response(events)
        except Lost:
            self.place.lost()
        return None

    async def _response(self, events: AsyncIterator[Event]) -> Json | None:
        async for event in events:
            self._last_event = event.id or self._last_event
            found = event.message
            if found is None:
                continue
            if found.get("method") == "elicitation/create":
                assert self._nursery is not None
                reply = {"jsonrpc": "2.0", "id": found["id"], "result": YES}
                self._nursery.start_soon(self._deliver, reply)
            elif "method" not in found and ("result" in found or "error" in found):
                return found
        return None


KINDS: Final[tuple[type[Operation], ...]] = (Rounds, Task, Legacy)
