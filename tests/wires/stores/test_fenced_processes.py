"""A process that is stopped for longer than its lease, at real stores: others go on with what it had, and it begins again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import trio
from chaos.ledger import Ledger, counted
from chaos.operations import FORM, TASKS, YES
from chaos.story import Story
from chaos.wire import Json, Lost, Wire
from orders import BOUND, message, two_processes
from peer import hello
from serving import START, HttpProcess
from waiting import until
from wire_terms import NEWEST_LEGACY

NAME = "order-1"
CALL: Json = {"name": "order", "arguments": {"name": NAME}}


class Two:
    """Two processes on one store, and a client that sends to either."""

    def __init__(self, folder: Path, processes: tuple[HttpProcess, HttpProcess], client: httpx2.AsyncClient) -> None:
        self.folder, self.client = folder, client
        self.frozen, self.living = processes
        self.ledger = Ledger(folder / "ledger")
        self.wire = Wire(client, Story("orders"))

    async def until(self, effect: str, times: int = 1) -> None:
        await until(lambda: counted(self.ledger.of(NAME))[effect] >= times)

    async def session(self) -> Json:
        """Open a legacy session at the process that will be stopped; return its headers."""
        opened = await self.wire.post(self.frozen.port, message("initialize", hello(NEWEST_LEGACY, FORM), 0), {})
        return {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": NEWEST_LEGACY}

    def go(self) -> None:
        (self.folder / "go").touch()

    async def modern(self, process: HttpProcess, method: str, capabilities: Json, **params: object) -> Json:
        """Send a modern request, again while the process does not take it."""
        while True:
            answer = await self.wire.modern(process.port, method, params, capabilities)
            if "error" not in answer or answer["error"]["code"] != -32000:
                return answer
            await trio.sleep(0.2)

    async def instance(self, process: HttpProcess) -> str:
        found = await self.modern(process, "server/discover", FORM)
        return str(found["result"]["capabilities"]["experimental"]["io.trio-mcp/idempotency"]["instance"])

    async def ready_again(self, before: str) -> None:
        """Wait until the process that was stopped has another name, and is ready."""
        while await self.instance(self.frozen) == before:  # noqa: ASYNC110  other processes do it
            await trio.sleep(0.05)
        probe = self.frozen.url.replace("/mcp", "/ready")
        while (await self.client.get(probe)).status_code != 200:  # noqa: ASYNC110  other processes do it
            await trio.sleep(0.05)

    async def ended(self, process: HttpProcess, task: str) -> Json:
        """Return what a process shows of a task when it is over."""
        while True:
            found: Json = (await self.modern(process, "tasks/get", TASKS, taskId=task))["result"]
            if found["status"] != "working":
                return found
            await trio.sleep(0.05)

    async def order_again(self) -> None:
        """Check that the process that was stopped takes and keeps orders as before."""
        call = {**CALL, "arguments": {"name": "after"}}
        asked = (await self.modern(self.frozen, "tools/call", FORM, **call))["result"]
        done = await self.modern(self.living, "tools/call", FORM, **call, **carried(asked))
        assert done["result"]["content"][0]["text"] == "after accept"


def carried(asked: Json) -> Json:
    return {"requestState": asked["requestState"], "inputResponses": dict.fromkeys(asked["inputRequests"], YES)}


@asynccontextmanager
async def two(namespace: str, folder: Path) -> AsyncIterator[Two]:
    with trio.fail_after(BOUND):
        async with two_processes(namespace, folder) as processes, httpx2.AsyncClient(timeout=START) as client:
            yield Two(folder, processes, client)


async def test_a_call_that_went_on_elsewhere_runs_no_step_here_and_its_client_gets_nothing(
    namespace: str, tmp_path: Path
) -> None:
    async with two(namespace, tmp_path) as both:
        before = await both.instance(both.frozen)
        asked = (await both.modern(both.frozen, "tools/call", FORM, **CALL))["result"]
        results: list[Json] = []

        async def at_the_frozen_one() -> None:
            with pytest.raises(Lost):
                await both.wire.modern(both.frozen.port, "tools/call", {**CALL, **carried(asked)}, FORM)

        async def elsewhere() -> None:
            results.append(await both.modern(both.living, "tools/call", FORM, **CALL, **carried(asked)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(at_the_frozen_one)
            await both.until("answered")
            with both.frozen.stopped():
                nursery.start_soon(elsewhere)
                await both.until("answered", 2)
                both.go()
                await both.until("ship")
        assert results[0]["result"]["content"][0]["text"] == f"{NAME} accept"
        await both.ready_again(before)
        assert counted(both.ledger.of(NAME)) == {"charge": 1, "answered": 2, "ship": 1}
        await both.order_again()


async def test_a_task_that_went_on_elsewhere_runs_no_step_here_and_is_shown_as_it_is(
    namespace: str, tmp_path: Path
) -> None:
    async with two(namespace, tmp_path) as both:
        before = await both.instance(both.frozen)
        task = (await both.modern(both.frozen, "tools/call", TASKS, **CALL))["result"]["taskId"]
        await both.until("charge")
        answers: Json = {}
        while not answers:
            found = (await both.modern(both.frozen, "tasks/get", TASKS, taskId=task))["result"]
            answers = dict.fromkeys(found.get("inputRequests", ()), YES)
        await both.modern(both.frozen, "tasks/update", TASKS, taskId=task, inputResponses=answers)
        await both.until("answered")
        with both.frozen.stopped():
            await both.until("answered", 2)
            both.go()
            await both.until("ship")
        await both.ready_again(before)
        for process in (both.frozen, both.living):
            found = await both.ended(process, task)
            assert found["result"]["content"][0]["text"] == f"{NAME} accept"
        assert counted(both.ledger.of(NAME)) == {"charge": 1, "answered": 2, "ship": 1}
        await both.order_again()


async def test_a_session_that_went_on_elsewhere_is_left_here_and_its_stream_ends_without_an_answer(
    namespace: str, tmp_path: Path
) -> None:
    async with two(namespace, tmp_path) as both:
        before = await both.instance(both.frozen)
        headers = await both.session()
        await both.wire.post(both.frozen.port, message("notifications/initialized", {}), headers)
        last, question = "", 0
        async with both.wire.stream(both.frozen.port, "POST", headers, message("tools/call", CALL, 1)) as (_, events):
            async for event in events:
                last = event.id
                if event.message is not None:
                    question = event.message["id"]
                    break
            with both.frozen.stopped():
                await answered(both, headers, question)
                both.go()
                resumed = {**headers, "Last-Event-ID": last}
                async with both.wire.stream(both.living.port, "GET", resumed) as (_, rest):
                    found = [event.message async for event in rest if event.message is not None]
                assert [each["result"]["content"][0]["text"] for each in found] == [f"{NAME} accept"]
            assert [event.message async for event in events if event.message is not None] == []
        await both.ready_again(before)
        assert counted(both.ledger.of(NAME)) == {"charge": 1, "answered": 1, "ship": 1}
        # It belongs to the other process.
        assert (await both.wire.post(both.frozen.port, message("ping", {}, 2), headers)).status == 503
        assert (await both.wire.post(both.living.port, message("ping", {}, 3), headers)).status == 200
        await both.order_again()


async def test_a_process_that_goes_on_refuses_no_request(namespace: str, tmp_path: Path) -> None:
    async with two(namespace, tmp_path) as both:
        before = await both.instance(both.frozen)
        headers = await both.session()
        with both.frozen.stopped():
            # It takes the session over as soon as it has buried the other process.
            while (await both.wire.post(both.living.port, message("ping", {}, 1), headers)).status != 200:  # noqa: ASYNC110
                await trio.sleep(0.1)
        assert (
            await both.wire.post(both.frozen.port, message("initialize", hello(NEWEST_LEGACY, FORM), 0), {})
        ).status == 200
        assert await both.instance(both.frozen) != before


async def answered(both: Two, headers: Json, question: int) -> None:
    """Bring the living process the answer to a question, which it takes when it has taken over the session."""
    reply = {"jsonrpc": "2.0", "id": question, "result": YES}
    while (await both.wire.post(both.living.port, reply, headers)).status != 202:  # noqa: ASYNC110  other processes do it
        await trio.sleep(0.1)
