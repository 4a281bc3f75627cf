"""Clients of the official SDKs at a server with several processes, which are killed, frozen and replaced meanwhile.

Each request comes on a new connection, so at any process: of the workers of one command, or of three commands behind a balancer.
"""

from __future__ import annotations

import base64
import os
import secrets
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from balanced import Balanced, balanced
from crew import Crew, serving
from store_servers import PostgresServer, RedisServer, postgres_server, redis_server

pytest.importorskip("mcp", reason="the official SDK is not installed")

from official_clients import CALLS, FEW_CALLS, KINDS, Job, Kind, Run, run

pytestmark = [
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    # the SDK leaves the iterators of its event streams to the garbage collector
    pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning"),
]

ANYWHERE = ("pay", "book", "look")
"""Tools whose calls any process carries on, of modern clients."""
EVERYTHING = (*ANYWHERE, "order")
PAUSE = 0.1
"""Seconds between two calls of a client, so that a disturbance comes in their midst."""
FROZEN = 4.0
"""Seconds: more than a lease has."""
AWAY = 1.0
WORKERS = 3

long = pytest.mark.long


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short name: sockets are in it."""
    return tmp_path_factory.mktemp("w")


@pytest.fixture(scope="module")
def redis_that_keeps() -> Iterator[RedisServer]:
    with redis_server("--appendonly", "yes") as server:
        yield server


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


class Shared:
    """The store that the processes of a test share.

    Attributes:
        url: empty for the temporary one of workers.
        server: None for a file.
    """

    def __init__(self, url: str, server: RedisServer | PostgresServer | None) -> None:
        self.url = url
        self.server = server


@pytest.fixture
def shared(request: pytest.FixtureRequest, short: Path) -> Shared:
    if request.param == "temporary":
        return Shared("", None)
    if request.param == "sqlite":
        return Shared(str(short / "state.db"), None)
    server = request.getfixturevalue("redis_that_keeps" if request.param == "redis" else "postgres")
    return Shared(f"{server.url}?namespace={secrets.token_hex(8)}", server)


class Runs:
    """What becomes of the calls of all clients.

    Args:
        effects: the file with the effects of the calls.
    """

    def __init__(self, effects: Path, folder: Path) -> None:
        self.effects = effects
        self.runs: dict[Kind, Run] = {}
        self._jobs: dict[Kind, Job] = {}
        self._folder = folder

    async def make(self, url: str, job: Job) -> None:
        self._jobs[job.kind] = job
        self.runs[job.kind] = await run(url, job, self._folder)

    def check(self, *, lost: int = 0, is_disturbed: bool = True) -> None:
        """Check that each call had one end, that no user was asked twice, and that a call with a key had its effect once.

        Args:
            lost: how many calls of a client may be lost.
            is_disturbed: others may have been refused for a moment.
        """
        for kind, each in self.runs.items():
            print(f"{kind}: {each}")
        effects = Counter(self.effects.read_text().splitlines())
        assert [item for item, times in effects.items() if times > 1] == []
        for kind, each in self.runs.items():
            job = self._jobs[kind]
            assert (kind, each.number) == (kind, job.calls)
            assert (kind, each.asked_again) == (kind, [])
            assert len(each.lost) <= lost, each.lost
            assert is_disturbed or (kind, each.errors) == (kind, [])
            if not each.errors:
                assert (kind, len(each.asked)) == (kind, job.questions)


def tools_of(kind: Kind) -> tuple[str, ...]:
    if kind.era == "tasks":
        return ("bake",)
    return EVERYTHING if kind.era == "legacy" else ANYWHERE


@asynccontextmanager
async def calling(shared: Shared, runs: Runs, pause: float = 0.0, calls: int = CALLS) -> AsyncIterator[Balanced]:
    """Let all clients call in the block, at three processes; a legacy one is sent to the same as long as that accepts it."""
    async with balanced(shared.url, EFFECTS=str(runs.effects)) as processes, trio.open_nursery() as nursery:
        for kind in KINDS:
            url = await processes.url(is_affine=kind.era != "auto")
            nursery.start_soon(runs.make, url, Job(kind, tools_of(kind), pause, calls=calls))
        yield processes


@pytest.mark.parametrize("shared", ["sqlite", "redis", "postgres"], indirect=True)
async def test_every_call_at_three_processes_ends_well(short: Path, shared: Shared, node_folder: Path) -> None:
    runs = Runs(short / "effects", node_folder)
    async with calling(shared, runs, calls=FEW_CALLS):
        pass
    runs.check(is_disturbed=False)
    assert all(len(each.ended) == 3 for kind, each in runs.runs.items() if kind.era == "auto")


@pytest.mark.parametrize(
    "shared", [pytest.param("sqlite", marks=long), "redis", pytest.param("postgres", marks=long)], indirect=True
)
async def test_a_process_that_is_killed_takes_at_most_what_it_was_doing_with_it(
    short: Path, shared: Shared, node_folder: Path
) -> None:
    runs = Runs(short / "effects", node_folder)
    async with calling(shared, runs, PAUSE, FEW_CALLS) as processes:
        for number in range(2):
            await trio.sleep(1)
            await processes.kill(number)
    # For each of two kills the call that was running, and a task that ran.
    runs.check(lost=4)


@pytest.mark.parametrize("shared", [pytest.param("redis", marks=long), "postgres"], indirect=True)
async def test_what_a_process_that_stands_still_had_goes_on_and_nothing_is_done_twice(
    short: Path, shared: Shared, node_folder: Path
) -> None:
    runs = Runs(short / "effects", node_folder)
    async with calling(shared, runs, PAUSE) as processes:
        for number in range(2):
            await trio.sleep(1)
            await processes.freeze(number, FROZEN)
    runs.check(lost=2)


@pytest.mark.parametrize("shared", ["redis", pytest.param("postgres", marks=long)], indirect=True)
async def test_calls_are_refused_while_their_store_is_away_and_go_on_when_it_is_back(
    short: Path, shared: Shared, node_folder: Path
) -> None:
    runs = Runs(short / "effects", node_folder)
    server = shared.server
    assert server is not None
    async with calling(shared, runs, PAUSE):
        for _ in range(2):
            await trio.sleep(2)
            await trio.to_thread.run_sync(server.stop)
            await trio.sleep(AWAY)
            await trio.to_thread.run_sync(server.start)
    runs.check()


# workers


@pytest.fixture
def environment(shared: Shared) -> dict[str, str]:
    """The variables that name the store of workers; none for the temporary one."""
    keys = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    return {"TRIO_MCP_STORE": shared.url, "TRIO_MCP_KEYS": keys} if shared.url else {}


async def call_workers(
    crew: Crew, runs: Runs, pause: float = 0.0, *, keep_alive: bool = False, calls: int = CALLS
) -> None:
    """Let all clients call, and return when they have."""
    async with trio.open_nursery() as nursery:
        for kind in KINDS:
            tools = ("bake",) if kind.era == "tasks" else EVERYTHING
            nursery.start_soon(runs.make, crew.url, Job(kind, tools, pause, keep_alive, calls))


@pytest.mark.parametrize("shared", ["temporary", "redis", pytest.param("postgres", marks=long)], indirect=True)
async def test_every_call_at_three_workers_ends_well(
    short: Path, environment: dict[str, str], node_folder: Path
) -> None:
    runs = Runs(short / "effects", node_folder)
    async with serving(short, EFFECTS=str(runs.effects), **environment) as crew:
        await call_workers(crew, runs, calls=FEW_CALLS)
    runs.check(is_disturbed=False)
    # A legacy client is served by the worker that has its session, and a modern one by any.
    assert all((len(each.ended) > 1) is (kind.era == "auto") for kind, each in runs.runs.items())


async def replaced(short: Path, environment: dict[str, str], runs: Runs, *, keep_alive: bool) -> None:
    """Let all clients call while all workers are replaced."""
    async with serving(short, "--drain", "3", EFFECTS=str(runs.effects), **environment) as crew:
        before = crew.pids
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(call_workers, crew, runs, PAUSE / 2, keep_alive=keep_alive))
            await trio.sleep(1)
            crew.process.send_signal(signal.SIGHUP)
        assert not before & crew.pids


@pytest.mark.parametrize(
    "shared", ["temporary", pytest.param("redis", marks=long), pytest.param("postgres", marks=long)], indirect=True
)
async def test_no_call_fails_while_all_workers_are_replaced(
    short: Path, environment: dict[str, str], node_folder: Path
) -> None:
    runs = Runs(short / "effects", node_folder)
    await replaced(short, environment, runs, keep_alive=False)
    runs.check(is_disturbed=False)


@long
@pytest.mark.parametrize("shared", ["temporary", "redis", "postgres"], indirect=True)
async def test_a_client_that_sends_as_its_idle_connection_is_closed_fails_once_for_each_worker_at_most(
    short: Path, environment: dict[str, str], node_folder: Path
) -> None:
    runs = Runs(short / "effects", node_folder)
    await replaced(short, environment, runs, keep_alive=True)
    # A busy client may not have noticed that the connection was closed, and does not try again.
    runs.check(lost=WORKERS)


@pytest.mark.parametrize(
    "shared", [pytest.param("temporary", marks=long), "redis", pytest.param("postgres", marks=long)], indirect=True
)
async def test_a_worker_that_is_killed_takes_at_most_what_it_was_doing_with_it(
    short: Path, environment: dict[str, str], node_folder: Path
) -> None:
    runs = Runs(short / "effects", node_folder)
    async with serving(short, EFFECTS=str(runs.effects), **environment) as crew, trio.open_nursery() as nursery:
        nursery.start_soon(call_workers, crew, runs, PAUSE)
        for pid in sorted(crew.pids)[:2]:
            await trio.sleep(2)
            os.kill(pid, signal.SIGKILL)
    # For each of two kills the call that was running, and a task that ran.
    runs.check(lost=4)
