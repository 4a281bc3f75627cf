"""Legacy sessions and parked calls at a server with several workers: each request comes on a new connection."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path

import httpx2
import pytest
import trio
from crew import Crew, Json, kill, serving
from peer import hello
from serving import START
from talk import modern_meta
from waiting import until
from wire_terms import NEWEST_LEGACY, headers_of

# The streams are left before their end.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning")

YES = {"action": "accept", "content": {"value": True}}
RATE = 50
"""Calls a second."""
MANY = 12
"""Requests of which some reach each of two workers, but for once in two thousand times."""


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("w")


class Session:
    """A legacy session, each of whose requests is a new connection."""

    def __init__(self, crew: Crew, id: str) -> None:
        self.crew = crew
        self.headers = {"mcp-session-id": id, "mcp-protocol-version": NEWEST_LEGACY}
        self._count = 0

    async def post(self, message: Json) -> httpx2.Response:
        return await self.crew.send("POST", json={"jsonrpc": "2.0", **message}, headers=self.headers)

    async def call(self, tool: str, **arguments: object) -> str:
        self._count += 1
        params = {"name": tool, "arguments": arguments}
        response = await self.post({"id": self._count, "method": "tools/call", "params": params})
        assert response.status_code == 200, response.text
        text: str = messages(response.text)[-1]["result"]["content"][0]["text"]
        return text

    @asynccontextmanager
    async def stream(
        self, method: str, http: httpx2.AsyncClient | None = None, **request: object
    ) -> AsyncIterator[Stream]:
        accepting = {"accept": "application/json, text/event-stream", **self.headers}
        async with httpx2.AsyncClient(timeout=START) if http is None else nullcontext(http) as client:
            async with client.stream(method, self.crew.url, headers=accepting, **request) as response:
                yield Stream(response)


class Stream:
    """A stream of events, as they come."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.last = ""
        self._lines = response.aiter_lines()

    async def next(self) -> Json:
        """Return the next message."""
        with trio.fail_after(START):
            async for line in self._lines:
                if line.startswith("id:"):
                    self.last = line[3:].strip()
                if line.startswith("data:") and line[5:].strip():
                    message: Json = json.loads(line[5:])
                    return message
        raise AssertionError("the stream has ended")


def messages(text: str) -> list[Json]:
    """Return the messages in a response, of JSON or of events."""
    if text.startswith("{"):
        return [json.loads(text)]
    return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:") and line[5:].strip()]


async def opened(crew: Crew) -> Session:
    params = hello(NEWEST_LEGACY, {"elicitation": {}})
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    response = await crew.send("POST", json=message)
    session = Session(crew, response.headers["mcp-session-id"])
    assert (await session.post({"method": "notifications/initialized"})).status_code == 202
    return session


def calling(tool: str, id: int = 77) -> Json:
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": {}}}


async def test_a_session_is_in_one_worker_and_any_worker_serves_it(short: Path) -> None:
    async with serving(short, workers=2) as crew:
        sessions = [await opened(crew) for _ in range(4)]
        for session in sessions:
            assert len({await session.call("where") for _ in range(MANY)}) == 1


async def test_a_stream_that_was_left_is_resumed_at_any_worker(short: Path) -> None:
    async with serving(short, workers=2) as crew:
        session = await opened(crew)
        for number in range(MANY // 2):
            async with session.stream("POST", json=calling("order", 100 + number)) as stream:
                question = await stream.next()
            assert (await session.post({"id": question["id"], "result": YES})).status_code == 202
            session.headers["last-event-id"] = stream.last
            async with session.stream("GET") as resumed:
                assert resumed.response.status_code == 200
                assert (await resumed.next())["id"] == 100 + number
            del session.headers["last-event-id"]


async def test_a_session_has_one_stream_for_what_belongs_to_no_request_and_ends_with_delete(short: Path) -> None:
    async with serving(short, workers=2) as crew:
        session = await opened(crew)
        async with session.stream("GET") as stream:
            assert stream.response.status_code == 200
            for _ in range(MANY):
                assert (await crew.send("GET", headers=session.headers)).status_code == 409
        assert (await crew.send("DELETE", headers=session.headers)).status_code == 204
        for _ in range(MANY):
            assert (await session.post({"method": "notifications/initialized"})).status_code == 404


async def test_sessions_of_a_worker_that_was_killed_go_on_in_another(short: Path) -> None:
    async with serving(short, workers=2) as crew:
        sessions, homes = [], []
        # The kernel chooses the worker of each connection.
        while len(sessions) < 6 or (len({*homes}) < 2 and len(sessions) < 60):
            sessions.append(await opened(crew))
            homes.append(int(await sessions[-1].call("where")))
        assert len({*homes}) == 2
        await kill(homes[0])
        for session, home in zip(sessions, homes, strict=True):
            now = int(await session.call("where"))
            assert (now == home) is (home != homes[0])


async def test_a_frozen_worker_holds_its_sessions_up_until_its_parent_has_killed_it(short: Path) -> None:
    async with serving(short, workers=2) as crew:
        sessions = [await opened(crew) for _ in range(6)]
        homes = [int(await each.call("where")) for each in sessions]
        os.kill(homes[0], signal.SIGSTOP)
        await crew.hear("is killed: its event loop")
        await until(lambda: len(crew.pids) == 2)
        for session in sessions:
            assert int(await session.call("where")) != homes[0]


def calling_where() -> tuple[Json, dict[str, str]]:
    """A modern call that says which worker serves it, and its headers."""
    params = {"name": "where", "arguments": {}, "_meta": modern_meta()}
    headers = {"accept": "application/json, text/event-stream", **headers_of("tools/call", params)}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers


async def worker_of(crew: Crew, http: httpx2.AsyncClient) -> int:
    """Return the worker at the connection of this client, which it keeps."""
    message, headers = calling_where()
    response = await http.post(crew.url, json=message, headers=headers)
    return int(response.json()["result"]["content"][0]["text"])


@asynccontextmanager
async def client_of(crew: Crew, fits: Callable[[int], bool]) -> AsyncIterator[httpx2.AsyncClient]:
    """A client whose connection is one to a worker that fits."""
    async with AsyncExitStack() as stack:
        with trio.fail_after(START):
            while True:
                http = await stack.enter_async_context(httpx2.AsyncClient(timeout=START))
                if fits(await worker_of(crew, http)):
                    break
        yield http


def client_of_another_worker(crew: Crew, home: int) -> AbstractAsyncContextManager[httpx2.AsyncClient]:
    """A client whose connection is one to another worker than this."""
    return client_of(crew, lambda pid: pid != home)


async def test_a_worker_that_freezes_while_it_passes_a_stream_on_holds_nothing_up(short: Path) -> None:
    async with serving(short, workers=2) as crew:
        session = await opened(crew)
        home = int(await session.call("where"))
        (front,) = crew.pids - {home}
        async with (
            client_of_another_worker(crew, home) as http,
            session.stream("POST", http, json=calling("order")) as stream,
        ):
            question = await stream.next()
            os.kill(front, signal.SIGSTOP)
            # Nothing else accepts connections now.
            resuming = Session(crew, session.headers["mcp-session-id"])
            resuming.headers["last-event-id"] = stream.last
            async with resuming.stream("GET") as resumed:
                assert (await session.post({"id": question["id"], "result": YES})).status_code == 202
                assert (await resumed.next())["id"] == 77
        assert front in crew.pids
        await crew.hear("is killed: its event loop")


async def test_a_session_whose_worker_was_killed_can_be_deleted_while_others_take_it_over(short: Path) -> None:
    async with serving(short) as crew:
        for _ in range(2):
            session = await opened(crew)
            await kill(int(await session.call("where")))
            statuses = list[int]()

            async def send(method: str, session: Session = session, statuses: list[int] = statuses) -> None:
                body = calling("where", len(statuses)) if method == "POST" else None
                statuses.append((await crew.send(method, json=body, headers=session.headers)).status_code)

            async with trio.open_nursery() as nursery:
                for method in ("POST", "DELETE") * 4:
                    nursery.start_soon(send, method)
            assert {*statuses} <= {200, 204, 404, 503}
            while (deleted := (await crew.send("DELETE", headers=session.headers)).status_code) == 503:
                pass
            assert deleted in (204, 404)
            for _ in range(MANY):
                assert (await session.post({"method": "notifications/initialized"})).status_code == 404
            await until(lambda: len(crew.pids) == 3)


async def test_calls_of_both_eras_end_well_while_all_workers_are_replaced_at_50_calls_a_second(short: Path) -> None:
    async with serving(short, "--drain", "3") as crew:
        before, served, refused = crew.pids, set[int](), list[int]()
        sessions = [await opened(crew) for _ in range(5)]
        message, headers = calling_where()

        async def send(number: int) -> httpx2.Response:
            if number % 2:
                return await sessions[number % 5].post(calling("where", number))
            return await crew.send("POST", json=message, headers=headers)

        async def call(number: int) -> None:
            response = await send(number)
            # Its worker has closed the port since it accepted the connection, and got the request too late.
            while response.status_code == 503 and "retry-after" in response.headers:
                refused.append(number)
                response = await send(number)
            assert response.status_code == 200, response.text
            served.add(int(messages(response.text)[-1]["result"]["content"][0]["text"]))

        count = 0
        async with trio.open_nursery() as nursery:
            began = trio.current_time()
            crew.process.send_signal(signal.SIGHUP)
            while before & crew.pids:
                assert count < 60 * RATE
                nursery.start_soon(call, count)
                count += 1
                await trio.sleep_until(began + count / RATE)
        assert served <= before | crew.pids
        assert served & crew.pids
        assert len(refused) <= count / 10


async def test_a_session_at_rest_goes_on_in_another_worker_while_the_one_that_is_replaced_lets_a_call_end(
    short: Path,
) -> None:
    async with serving(short, "--drain", "30", workers=2) as crew:
        busy = await opened(crew)
        home, at_rest = int(await busy.call("where")), await opened(crew)
        while int(await at_rest.call("where")) != home:
            at_rest = await opened(crew)
        # Else the worker that passes the stream on might be replaced first, and wait for its end.
        at_home = client_of(crew, lambda pid: pid == home)
        async with at_home as http, busy.stream("POST", http, json=calling("order")) as stream:
            question = await stream.next()
            crew.process.send_signal(signal.SIGHUP)
            with trio.fail_after(START):
                while int(await at_rest.call("where")) == home:  # noqa: ASYNC110  nothing notifies of it
                    await trio.sleep(0.05)
            assert home in crew.pids
            assert (await busy.post({"id": question["id"], "result": YES})).status_code == 202
            assert (await stream.next())["result"]["content"][0]["text"] == f"accept {home} {home}"


async def test_a_worker_that_blocks_for_a_while_is_slow_and_stays(short: Path) -> None:
    async with serving(short, workers=2) as crew:
        session = await opened(crew)
        before = crew.pids
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(session.call, "block", seconds=3))
            for _ in range(MANY):
                assert int(await crew.call("where")) in before
        home = int(await session.call("where"))
        assert home in before
        assert crew.pids == before
