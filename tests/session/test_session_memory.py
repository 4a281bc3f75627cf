"""What a session holds for its client draws from the memory budget, and is refused where that has no room."""

from __future__ import annotations

import gc
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import Any

import pytest
import trio
from peer import hello
from talk import Talk, offering, session_with, talk_to
from trio.testing import wait_all_tasks_blocked
from wire_terms import NEWEST_LEGACY, SERVER_BUSY

from trio_mcp import CancelReason
from trio_mcp.errors import LimitExceeded
from trio_mcp.server import Context, Server
from trio_mcp.session import Call, MemoryBudget, ServerSession, ServiceOptions
from trio_mcp.session.calls.directory import CallDirectory
from trio_mcp.session.envelope import CALL_SIZE, OUTCOME_SIZE, SUBSCRIPTION_SIZE
from trio_mcp.session.session_state import SessionState

LARGE = 200_000
VALUES = 5_000


class Desk:
    """Tools that wait, ask, and return much."""

    def __init__(self) -> None:
        self.go_on = trio.Event()
        self.refused: list[str] = []

    async def wait(self, text: str = "", numbers: list[int] | None = None) -> str:
        await self.go_on.wait()
        return text[:3]

    async def ask(self, ctx: Context, text: str = "") -> str:
        answer = await ctx.elicit("Go on?", bool)
        return f"{answer} {text[:3]}"

    async def much(self, size: int = LARGE) -> str:
        return "x" * size

    async def report(self, ctx: Context, size: int = LARGE) -> str:
        try:
            await ctx.log("info", "x" * size)
        except LimitExceeded as error:
            self.refused.append(str(error))
        return "done"

    def server(self, total: int, **options: Any) -> Server:
        return offering(self.wait, self.ask, self.much, self.report, memory=MemoryBudget(total), **options)


def drawn(talk: Talk) -> int:
    """What is drawn now."""
    return talk.service.statistics().memory.drawn


@pytest.fixture
def desk() -> Desk:
    return Desk()


@asynccontextmanager
async def client_of(desk: Desk, total: int = 10**9, **options: Any) -> AsyncIterator[Talk]:
    """A modern client; at its end nothing may be drawn."""
    server = desk.server(total, **options)
    async with talk_to(server) as talk:
        yield talk
    assert server.options.memory.statistics().drawn == 0


ARGUMENTS: dict[str, Callable[[], tuple[dict[str, Any], int]]] = {
    "text draws its bytes": lambda: ({"text": "x" * LARGE}, LARGE),
    "escaped characters draw three times their bytes": lambda: ({"text": "ä" * LARGE}, 3 * 6 * LARGE),
    "an escaped emoji makes text draw five times its bytes": lambda: ({"text": "x" * LARGE + "😀"}, 5 * LARGE),
    "numbers draw what a value takes": lambda: ({"numbers": [7] * VALUES}, 120 * VALUES),
}


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
async def test_a_running_call_draws_what_its_request_takes(
    desk: Desk, arguments: Callable[[], tuple[dict[str, Any], int]]
) -> None:
    given, least = arguments()
    async with client_of(desk) as talk:
        call = talk.leg("wait", given)
        await wait_all_tasks_blocked()
        assert CALL_SIZE + least < drawn(talk) < CALL_SIZE + 1.6 * least
        desk.go_on.set()
        await talk.text(call)
        assert drawn(talk) < 2 * OUTCOME_SIZE


async def test_a_call_without_room_is_rejected_and_its_body_does_not_run(desk: Desk) -> None:
    async with client_of(desk, 3 * LARGE) as talk:
        talk.leg("wait", {"text": "x" * LARGE})
        error = await talk.error(talk.leg("wait", {"text": "x" * LARGE}))
        assert (error["code"], "memory budget" in error["message"]) == (SERVER_BUSY, True)
        assert talk.service.statistics().actors.started == 1
        assert talk.service.statistics().memory.refused == 1
        desk.go_on.set()


async def test_a_parked_call_draws_until_it_ends_and_more_with_each_leg(desk: Desk) -> None:
    async with client_of(desk) as talk:
        asked = await talk.round(talk.leg("ask", {"text": "x" * LARGE}))
        assert drawn(talk) > CALL_SIZE + LARGE
        assert "xxx" in await talk.text(asked.retry(True))
        assert drawn(talk) < LARGE


async def test_a_retry_without_room_leaves_the_call_parked(desk: Desk) -> None:
    async with client_of(desk, 4 * LARGE) as talk:
        asked = await talk.round(talk.leg("ask"))
        talk.leg("wait", {"text": "x" * int(1.7 * LARGE)})
        error = await talk.error(asked.retry(True, meta={"com.example/note": "x" * LARGE}))
        assert (error["code"], "memory budget" in error["message"]) == (SERVER_BUSY, True)
        desk.go_on.set()
        await talk.receive()
        assert await talk.text(asked.retry(True))


@pytest.mark.parametrize("modern", [True, False], ids=["modern", "legacy"])
async def test_a_result_without_room_becomes_an_error_that_names_the_budget(desk: Desk, modern: bool) -> None:
    async with session_with(desk.server(3 * LARGE)) as talk:
        call = talk.leg if modern else talk.call
        wait = call("wait", {"text": "x" * int(1.2 * LARGE)})
        error = await talk.error(call("much"))
        assert (error["code"], "memory budget" in error["message"]) == (SERVER_BUSY, True)
        desk.go_on.set()
        await talk.text(wait)
        assert len(await talk.text(call("much"))) == LARGE


async def test_a_notification_without_room_fails_in_the_tool_that_sends_it(desk: Desk) -> None:
    async with session_with(desk.server(3 * LARGE)) as talk:
        talk.call("wait", {"text": "x" * int(1.2 * LARGE)})
        assert await talk.text(talk.call("report")) == "done"
        assert len(desk.refused) == 1
        assert "memory budget" in desk.refused[0]


async def test_what_waits_for_a_reader_is_counted(desk: Desk) -> None:
    async with client_of(desk) as talk:
        talk.leg("much")
        talk.leg("much")
        await wait_all_tasks_blocked()
        assert 2 * LARGE < drawn(talk) < 3 * LARGE
        assert len(talk.waiting()) == 2
        talk.outbox.written()
        assert drawn(talk) < LARGE


async def test_the_answers_of_a_batch_are_counted_until_it_is_sent(desk: Desk) -> None:
    async with session_with(desk.server(10**9), "2025-03-26") as talk:
        calls = [
            {"id": number, "method": "tools/call", "params": {"name": name, "arguments": {}}}
            for number, name in ((70, "much"), (71, "wait"))
        ]
        talk.send_batch(*calls)
        await wait_all_tasks_blocked()
        assert drawn(talk) > LARGE
        desk.go_on.set()
        await talk.receive()
        talk.outbox.written()
        assert drawn(talk) == 0


# What is kept of calls that have ended


def calls() -> set[int]:
    """The calls that are in memory, by their addresses."""
    return {id(each) for each in gc.get_objects() if isinstance(each, Call)}


async def test_of_a_call_that_has_ended_only_its_outcomes_are_kept(desk: Desk) -> None:
    async with client_of(desk) as talk:
        gc.collect()
        before = calls()
        asked = await talk.round(talk.leg("ask", {"text": "x" * LARGE}))
        answer = await talk.text(asked.retry(True))
        gc.collect()
        assert calls() <= before
        talk.outbox.written()
        assert OUTCOME_SIZE < drawn(talk) < 2 * OUTCOME_SIZE + 4096
        assert await talk.text(asked.retry(True)) == answer


async def test_kept_outcomes_are_evicted_by_a_clock(desk: Desk) -> None:
    async with client_of(desk, outcome_grace=60) as talk:
        asked = await talk.round(talk.leg("ask"))
        await talk.text(asked.retry(True))
        talk.outbox.written()
        await trio.sleep(59)
        assert drawn(talk) > 0
        await trio.sleep(2)
        assert drawn(talk) == 0


def test_where_the_budget_has_no_room_the_oldest_outcomes_go_first() -> None:
    async def main() -> list[object]:
        budget = MemoryBudget(10 * OUTCOME_SIZE)
        with closing(CallDirectory[str, str](60.0, budget)) as directory:
            names = [directory.add("call") for _ in range(8)]
            for name in names:
                directory.finish(name, f"ended {name}", 0)
            found = [directory.find(name) is not None for name in names]
        assert budget.statistics().drawn == 0
        return [found.index(True), all(found[found.index(True) :])]

    first, rest_is_kept = trio.run(main)
    assert (first, rest_is_kept) == (3, True)


# What a session keeps


@asynccontextmanager
async def counted_session(total: int) -> AsyncIterator[Talk]:
    """A legacy session that keeps its notifications, as one of a channel does."""
    server = offering(memory=MemoryBudget(total))
    server.resource("config://app")(lambda: "{}")
    async with server.open_service() as service:
        with service.options.memory.open() as account:
            talk = Talk(service, account=account)
            with talk.outbox:
                yield talk


async def test_what_a_client_declares_is_counted_for_its_session() -> None:
    declared = {"experimental": {"com.example/many": {"values": [[]] * 1000}}}
    async with counted_session(10**9) as talk:
        await talk.initialize(capabilities=declared)
        assert talk.account.drawn > 120_000


async def test_a_client_that_declares_more_than_the_budget_has_room_for_gets_no_session() -> None:
    declared = {"experimental": {"com.example/many": {"values": [[]] * 1000}}}
    async with counted_session(100_000) as talk:
        error = await talk.error(talk.request("initialize", hello(NEWEST_LEGACY, declared)))
        assert (error["code"], "memory budget" in error["message"]) == (SERVER_BUSY, True)
        assert (talk.account.drawn, talk.session.initialized) == (0, False)


async def test_a_subscription_is_counted_once_and_until_it_ends() -> None:
    async with counted_session(10**9) as talk:
        await talk.initialize()
        before = talk.account.drawn
        for _ in range(2):
            await talk.result(talk.request("resources/subscribe", {"uri": "config://app"}))
        assert talk.account.drawn == before + SUBSCRIPTION_SIZE + len("config://app")
        for _ in range(2):
            await talk.result(talk.request("resources/unsubscribe", {"uri": "config://app"}))
        assert talk.account.drawn == before


# `_meta`


async def test_the_meta_of_a_request_is_whole_and_held_as_its_bytes() -> None:
    extra = {"com.example/nested": [[[]]] * 20_000, "com.example/number": 1.5, "com.example/text": "ä"}
    seen: list[dict[str, Any]] = []
    sizes: list[int] = []

    async def look(ctx: Context) -> str:
        gc.collect()
        sizes.append(sum(1 for each in gc.get_objects() if isinstance(each, list) and len(each) == 1 and each == [[]]))
        seen.append(dict(ctx.request.meta))
        return "seen"

    async with talk_to(offering(look)) as talk:
        assert await talk.text(talk.leg("look", meta=extra)) == "seen"
    assert json.dumps(extra) == json.dumps({name: seen[0][name] for name in extra})
    assert sizes[0] < 100


def test_the_budget_is_an_option_of_its_type() -> None:
    with pytest.raises(TypeError, match="memory"):
        replace(ServiceOptions(), memory=64)  # type: ignore[arg-type]


def session_states() -> int:
    return sum(isinstance(each, SessionState) for each in gc.get_objects())


async def test_a_session_that_has_ended_is_freed_without_the_garbage_collector(desk: Desk) -> None:
    async with client_of(desk) as talk:
        gc.collect()
        before = session_states()
        gc.disable()
        try:
            session = ServerSession(talk.service)
            session.close(CancelReason.DISCONNECT)
            del session
            assert session_states() == before
        finally:
            gc.enable()
