"""Steps of a call with a durable store: none runs twice, and a crash in the middle of one is not hidden."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from crashing_store import Change, CrashingStore, Disk
from log_limits import new_records
from peer import Json, text_of
from talk import DECLINE, Round, Talk, accept, talk_to
from task_process import KEYS
from trio.testing import wait_all_tasks_blocked
from wire_terms import IDEMPOTENCY_KEY

from trio_mcp import Context, Server
from trio_mcp.errors import StepMayHaveRun
from trio_mcp.runtime import Journal
from trio_mcp.session import ServiceOptions
from trio_mcp.session.calls.memory import CallMemory
from trio_mcp.session.calls.previous_run import earlier_run, read_log
from trio_mcp.session.recovery.stored_journal import CallLog
from trio_mcp.stores import Append, StoreError
from trio_mcp.types import ToolAnnotations

YES = accept(value=True)
Tool = Callable[..., Coroutine[Any, Any, object]]


class Process:
    """One process of a server with one tool, `tool`."""

    def __init__(self, disk: Disk, tool: Tool, **options: Any) -> None:
        self.store = CrashingStore(disk)
        self.server = Server("tester", options=ServiceOptions(keys=KEYS, store=self.store))
        self.server.tool(**{"resume": "replay", "name": "tool", **options})(tool)

    @asynccontextmanager
    async def talk(self) -> AsyncIterator[Talk]:
        async with talk_to(self.server) as talk:
            yield talk
            self.store.crash()


async def first_round(disk: Disk, tool: Tool, **options: Any) -> Round:
    """The first round of a call whose process ends then."""
    async with Process(disk, tool, **options).talk() as talk:
        return await talk.round(talk.leg("tool"))


class Work:
    """A tool that asks, and charges then."""

    def __init__(self) -> None:
        self.charged = 0
        self.started = trio.Event()
        self.go_on = trio.Event()

    async def tool(self, ctx: Context) -> str:
        await ctx.elicit("Sure?", bool)
        receipt = await ctx.step("charge", self.charge)
        await self.wait()
        return f"receipt {receipt}"

    def charge(self) -> int:
        self.charged += 1
        return self.charged

    async def wait(self) -> None:
        self.started.set()
        await self.go_on.wait()


@asynccontextmanager
async def interrupted(asked: Round, process: Process, work: Work) -> AsyncIterator[None]:
    """The next leg, in a process that is killed when the tool has come to where it waits."""
    async with process.talk() as talk:
        asked.leg({asked.key: YES}, talk=talk)
        with trio.fail_after(5):
            await work.started.wait()
        process.store.crash()
        yield
    work.go_on.set()


async def after_crash(work: Work, answer: Json = YES, **options: Any) -> Json:
    """Return the reply to a leg that comes again, with an answer, since its process was killed in it."""
    disk = Disk()
    asked = await first_round(disk, work.tool, **options)
    async with interrupted(asked, Process(disk, work.tool, **options), work):
        pass
    async with Process(disk, work.tool, **options).talk() as talk:
        return await talk.result(asked.leg({asked.key: answer}, talk=talk))


async def test_a_step_of_a_leg_that_a_crash_interrupted_is_not_run_twice() -> None:
    work = Work()
    assert text_of(await after_crash(work)) == "receipt 1"
    assert work.charged == 1


class Careful(Work):
    """It does what its user says."""

    async def tool(self, ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", bool)
        await ctx.step("note", self.charge)
        await self.wait()
        return answer.action


async def test_the_answers_count_with_which_an_earlier_process_has_begun() -> None:
    work = Careful()
    assert text_of(await after_crash(work, DECLINE)) == "accept"
    assert work.charged == 1


class Slow(Work):
    """The process ends in the middle of the step."""

    async def tool(self, ctx: Context) -> str:
        await ctx.elicit("Sure?", bool)
        return f"receipt {await ctx.step('charge', self.slowly)}"

    async def slowly(self) -> int:
        self.charge()
        await self.wait()
        return self.charged


async def test_a_crash_in_the_middle_of_a_step_ends_the_call() -> None:
    work = Slow()
    result = await after_crash(work)
    assert result["isError"]
    assert "step 'charge' may have run" in text_of(result)
    assert work.charged == 1


@pytest.mark.parametrize(
    "hints", [ToolAnnotations(idempotent_hint=True), ToolAnnotations(read_only_hint=True)], ids=["idempotent", "reads"]
)
async def test_a_harmless_tool_runs_such_a_step_again(hints: ToolAnnotations) -> None:
    assert text_of(await after_crash(Slow(), annotations=hints)) == "receipt 2"


class Aside(Slow):
    """One branch asks while another one charges."""

    async def tool(self, ctx: Context) -> str:
        async def ask(branch: Context) -> str:
            return (await branch.elicit("Sure?", bool)).action

        async def charge(branch: Context) -> int:
            return await branch.step("charge", self.slowly)

        return " ".join(map(str, await ctx.branch_all(ask, charge)))


@pytest.mark.parametrize("meta", [None, {IDEMPOTENCY_KEY: "key"}], ids=["", "key"])
@pytest.mark.parametrize("ends", [False, True], ids=["in the step", "after the step"])
async def test_a_step_that_runs_while_the_call_waits_for_its_client_does_not_run_twice(
    ends: bool, meta: dict[str, str] | None
) -> None:
    disk, work = Disk(), Aside()
    process = Process(disk, work.tool)
    async with process.talk() as talk:
        asked = await talk.round(talk.leg("tool", meta=meta))
        if ends:
            work.go_on.set()
            await wait_all_tasks_blocked()
    work.go_on.set()
    async with Process(disk, work.tool).talk() as talk:
        again = asked.leg({asked.key: YES}, talk=talk)
        assert (await talk.text(again) if ends else await talk.failure(again)) == (
            "accept 1" if ends else str(StepMayHaveRun("charge"))
        )
    assert work.charged == 1


async def test_a_step_that_runs_and_could_not_be_recorded_does_not_run_twice() -> None:
    disk, work = Disk(), Aside()
    process = Process(disk, work.tool)
    async with process.talk() as talk:
        process.store.failing = True
        asked = await talk.round(talk.leg("tool"))
    work.go_on.set()
    async with Process(disk, work.tool).talk() as talk:
        assert "was lost" in await talk.failure(asked.leg({asked.key: YES}, talk=talk))
    assert work.charged == 1


class Impatient(Slow):
    """It charges when its user has not answered for a minute, and waits for the next answer."""

    async def tool(self, ctx: Context) -> str:
        with trio.move_on_after(60):
            await ctx.elicit("Sure?", bool)
        receipt = await ctx.step("charge", self.charge)
        await ctx.elicit("Really?", bool)
        return f"receipt {receipt}"


async def test_a_step_that_follows_a_question_without_an_answer_does_not_run_twice() -> None:
    disk, work = Disk(), Impatient()
    async with Process(disk, work.tool).talk() as talk:
        asked = await talk.round(talk.leg("tool"))
        await trio.sleep(61)
        assert work.charged == 1
    async with Process(disk, work.tool).talk() as talk:
        await talk.round(asked.leg({}, talk=talk))
        await trio.sleep(61)
    assert work.charged == 1


class Idempotent(Slow):
    """The step may run twice."""

    async def tool(self, ctx: Context) -> str:
        await ctx.elicit("Sure?", bool)
        return f"receipt {await ctx.step('charge', self.slowly, idempotent=True)}"


async def test_an_idempotent_step_of_any_tool_runs_again() -> None:
    assert text_of(await after_crash(Idempotent())) == "receipt 2"


async def test_a_step_that_failed_was_not_done() -> None:
    class Failing(Slow):
        async def tool(self, ctx: Context) -> str:
            await ctx.elicit("Sure?", bool)
            try:
                await ctx.step("charge", self.fail)
            except ValueError:
                await ctx.step("note", lambda: "failed")
            await self.wait()
            return f"charged {self.charged}"

        def fail(self) -> None:
            self.charge()
            raise ValueError

    assert text_of(await after_crash(Failing())) == "charged 2"


async def test_a_step_that_its_body_gave_up_was_not_done() -> None:
    class Hasty(Slow):
        async def tool(self, ctx: Context) -> str:
            await ctx.elicit("Sure?", bool)
            with trio.CancelScope() as scope:
                await ctx.step("probe", self.probe, scope)
            await ctx.step("note", lambda: "probed")
            await self.wait()
            return "done"

        async def probe(self, scope: trio.CancelScope) -> None:
            scope.cancel()
            await trio.lowlevel.checkpoint()

    assert text_of(await after_crash(Hasty())) == "done"


def records_something(changes: Sequence[Change]) -> bool:
    """Return whether the log of a call is written, not only its claim."""
    return any(isinstance(change, Append) for change in changes)


async def test_a_step_whose_intent_was_not_recorded_does_not_run() -> None:
    disk, work = Disk(), Work()
    asked = await first_round(disk, work.tool)
    process = Process(disk, work.tool)

    def fail(changes: Sequence[Change]) -> None:
        if records_something(changes):
            raise StoreError("the disk is full")

    process.store.on_write = fail
    async with process.talk() as talk:
        await talk.failure(asked.leg({asked.key: YES}, talk=talk))
    assert work.charged == 0


async def test_a_step_does_not_run_while_the_store_hangs() -> None:
    disk, work = Disk(), Work()
    asked = await first_round(disk, work.tool)
    process = Process(disk, work.tool)
    process.store.on_write = lambda changes: process.store.crash() if records_something(changes) else None
    async with process.talk() as talk:
        await talk.failure(asked.leg({asked.key: YES}, talk=talk))
    assert work.charged == 0


async def test_the_last_phase_of_a_handoff_does_not_run_twice() -> None:
    work = Work()

    async def before() -> int:
        return 1

    async def client(value: int, ctx: Context) -> str:
        return (await ctx.elicit("Sure?", bool)).action

    async def after(value: int, answer: str, ctx: Context) -> str:
        work.charge()
        await work.wait()
        return answer

    disk = Disk()

    def process() -> Process:
        new = Process(disk, work.tool, name="other")
        new.server.handoff_tool(client=client, after=after, name="tool")(before)
        return new

    async with process().talk() as talk:
        asked = await talk.round(talk.leg("tool"))
    async with interrupted(asked, process(), work):
        pass
    async with process().talk() as talk:
        text = await talk.failure(asked.leg({asked.key: YES}, talk=talk))
    assert "step 'after' may have run" in text
    assert work.charged == 1


async def test_a_journal_that_is_too_large_to_travel_is_kept_in_the_store() -> None:
    disk = Disk()

    async def tool(ctx: Context) -> int:
        text = await ctx.step("read", lambda: "x" * 100_000)
        await ctx.elicit("Sure?", bool)
        return len(text)

    asked = await first_round(disk, tool)
    assert [kind for kind, _ in disk.records] == ["journal"]
    async with Process(disk, tool).talk() as talk:
        assert await talk.text(asked.leg({asked.key: YES}, talk=talk)) == "100000"


async def test_a_process_has_a_new_name_at_each_start() -> None:
    names = []
    for _ in range(2):
        async with talk_to(Server("tester", options=ServiceOptions(node="web-1"))) as talk:
            names.append(talk.service.calls.node)
    assert len(set(names)) == 2
    assert all(name.startswith("web-1-") for name in names)


async def test_a_first_leg_writes_nothing() -> None:
    """No state names it yet, so that nothing could come back for it."""
    disk, work = Disk(), Work()

    async def tool(ctx: Context) -> str:
        await ctx.step("charge", work.charge)
        return "done"

    async with Process(disk, tool).talk() as talk:
        assert await talk.text(talk.leg("tool")) == "done"
    assert disk.writes == []


async def test_a_tool_that_is_not_replayed_writes_nothing() -> None:
    disk, work = Disk(), Work()
    work.go_on.set()
    async with Process(disk, work.tool, resume="parked").talk() as talk:
        asked = await talk.round(talk.leg("tool"))
        assert await talk.text(asked.leg({asked.key: YES})) == "receipt 1"
    assert disk.writes == []


async def test_a_step_that_was_given_up_with_its_call_is_begun_in_a_log_that_is_opened_later() -> None:
    """The call goes on in another process, which must not run the step again: it may have been done."""
    store = CrashingStore(Disk())
    records = new_records("trio_mcp.session")
    memory = CallMemory(Journal(), "tool", lambda _what: None, is_durable=True)
    await memory.begin_step("charge")
    memory.fail_step("charge", was_given_up=True)
    log = CallLog(store, "call", lambda: math.inf, records)
    memory.keep_in(log)
    await log.commit()
    assert earlier_run(await read_log(store, "call")).begun == ("charge",)
