"""Random programs of keyed calls over a store whose writes are late, in any order, or never made, and what must hold in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import trio
from crashing_store import Change, Disk
from late_store import NEVER, LateStore
from peer import EVERYTHING, Json
from talk import Talk, talk_to
from task_talk import DECLARES
from wire_terms import IDEMPOTENCY_KEY, OUTCOME_UNKNOWN, SERVER_BUSY

from trio_mcp import Server, ServiceOptions
from trio_mcp.session import KeyRing
from trio_mcp.stores import Put

KEYS = 3
PROCESSES = 2
STEPS = 25
SETTLED = 120.0
"""Seconds after which everything is settled when the store is in time again."""


@dataclass(eq=False)
class Living:
    """One process, while it lives."""

    talk: Talk
    store: LateStore
    stop: trio.Event = field(default_factory=trio.Event)
    stopped: trio.Event = field(default_factory=trio.Event)


class Program:
    """One program.

    Attributes:
        runs: how often the body of each key ran.
        answers: what was answered for each key, without what says that the server is busy.
    """

    def __init__(self, seed: int, tool: str) -> None:
        self.random = Random(seed)
        self.tool = tool
        self.disk = Disk()
        self.is_late = True
        self.grace = self.random.choice((0.0, 1.0, 60.0))
        self.runs: Counter[str] = Counter()
        self.answers: dict[str, list[Json]] = {f"key {number}": [] for number in range(KEYS)}
        self.sent: list[tuple[str, Talk, int]] = []
        self.living: list[Living] = []

    # the server

    def server(self, store: LateStore) -> Server:
        server = Server(
            "shop", options=ServiceOptions(store=store, keys=KeyRing([bytes(32)]), outcome_grace=self.grace)
        )
        server.tool(self.pay)
        server.tool(name="report", task=True)(self.pay)
        return server

    async def pay(self, key: str, seconds: float) -> str:
        self.runs[key] += 1
        await trio.sleep(seconds)
        return f"{key} {self.runs[key]}"

    def lateness(self, changes: Sequence[Change]) -> float | None:
        # What a call records in its log is not what this is about.
        if not self.is_late or not any(isinstance(change, Put) for change in changes) or self.random.random() < 0.5:
            return None
        return NEVER if self.random.random() < 0.2 else self.random.uniform(0, 10)

    async def live(self, task_status: trio.TaskStatus[None]) -> None:
        store = LateStore(self.disk, self.lateness, any_order_of=("record", "log"))
        async with talk_to(self.server(store)) as talk:
            living = Living(talk, store)
            self.living.append(living)
            task_status.started()
            await living.stop.wait()
            store.crash()
        # What was on its way is made later, if ever.
        await trio.sleep(self.random.uniform(0, 10))
        store.make_late()
        living.stopped.set()

    # the clients

    def send(self, process: Living, key: str) -> None:
        seconds = {"key 0": 0.0, "key 1": 0.5, "key 2": 8.0}[key]
        capabilities = DECLARES if self.tool == "report" else EVERYTHING
        arguments = {"key": key, "seconds": seconds}
        request_id = process.talk.leg(self.tool, arguments, meta={IDEMPOTENCY_KEY: key}, capabilities=capabilities)
        assert isinstance(request_id, int)
        self.sent.append((key, process.talk, request_id))

    def hang_up(self) -> None:
        """Let the client of a random request go."""
        _, talk, request_id = self.random.choice(self.sent)
        listener = talk.listeners[request_id]
        if not listener.finished:
            talk.session.disconnect(listener)

    def collect(self) -> None:
        for process in self.living:
            messages = {message.get("id"): message for message in process.talk.waiting()}
            for key, talk, request_id in self.sent:
                if talk is process.talk and request_id in messages:
                    self.note(key, messages[request_id])

    def note(self, key: str, answer: Json) -> None:
        if answer.get("error", {}).get("code") != SERVER_BUSY:
            self.answers[key].append(answer.get("result") or answer["error"])

    # the program

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(PROCESSES):
                await nursery.start(self.live)
            for _ in range(STEPS):
                await self.step(nursery)
            self.is_late = False
            await trio.sleep(SETTLED)
            self.collect()
            await self.check_no_key_is_blocked()
            for process in self.living:
                settling = process.talk.service.calls.settling
                assert not len(settling), settling
            nursery.cancel_scope.cancel()

    async def step(self, nursery: trio.Nursery) -> None:
        match self.random.randrange(8):
            case 0 | 1 | 2 | 3:
                self.send(self.random.choice(self.living), f"key {self.random.randrange(KEYS)}")
            case 4 if self.sent:
                self.hang_up()
            case 5 if self.random.random() < 0.5:
                process = self.living.pop(self.random.randrange(PROCESSES))
                process.stop.set()
                await nursery.start(self.live)
            case _:
                await trio.sleep(self.random.choice((0.1, 1.0, 3.0, 8.0)))
        self.collect()
        self.check()

    async def check_no_key_is_blocked(self) -> None:
        for key, answers in self.answers.items():
            before = len(answers)
            for process in self.living:
                self.send(process, key)
                await trio.sleep(20)
                self.collect()
            self.check()
            assert len(answers) == before + len(self.living), (key, self.runs[key], answers)

    def check(self) -> None:
        for key, answers in self.answers.items():
            assert self.runs[key] <= 1, f"{key} ran {self.runs[key]} times"
            for answer in answers:
                # Lost only if it ran, or if its process ended before it could be known that it did not.
                is_lost = answer.get("data") == {OUTCOME_UNKNOWN: True}
                assert is_lost or "taskId" in answer or text_of(answer) == f"{key} 1", answer


def text_of(answer: Json) -> Any:
    content = answer.get("content")
    return content[0]["text"] if content else None
