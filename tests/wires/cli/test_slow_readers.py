"""A call of one worker that reports 100,000 times, to a client of another worker that pauses."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio
from crew import Crew, serving
from store_servers import POSTGRES_VARIABLE, REDIS_VARIABLE
from talk import modern_meta
from test_workers_sessions import YES, Stream, client_of_another_worker, opened
from wire_terms import headers_of

pytestmark = [
    pytest.mark.long,
    # The streams are left before their end.
    pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning"),
]

SERVER = Path(__file__).with_name("progress_server.py")
EVENTS = 100_000
PAUSES = (1, EVENTS // 2)
"""After these events nothing is read for a while."""
WARM_UP = 3_000
MOST_GROWTH = 8 * 1024
"""KiB that a worker may have more than before; the events have 35,000 as text."""
BOUND = 900
TOKEN = {"progressToken": 1}


@pytest.fixture(params=["", REDIS_VARIABLE, POSTGRES_VARIABLE], ids=["links", "redis", "postgres"])
def store(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment that names a store; nothing for the temporary one of the workers."""
    if not request.param:
        return {}
    request.getfixturevalue("redis_url" if request.param == REDIS_VARIABLE else "postgres_url")
    return {
        "TRIO_MCP_STORE": f"{os.environ[request.param]}?namespace={secrets.token_hex(8)}",
        "TRIO_MCP_KEYS": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
    }


def memory_of(pid: int, name: str) -> int:
    """Return a line of the memory of a process, in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def number_in(file: Path) -> int:
    return int(file.read_text()) if file.exists() else 0


def forget_peak(pid: int) -> None:
    """Let `VmHWM` of a process begin again."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


async def stands_still(reached: Path) -> int:
    """Wait until the call goes on no more, as its reader has paused, and return how far it is."""
    before = -1
    while (now := number_in(reached)) != before:
        before = now
        await trio.sleep(1)
    return now


@asynccontextmanager
async def modern(crew: Crew, count: int) -> AsyncIterator[Stream]:
    """The stream of a call that is parked in one worker, at another one."""
    call = {"name": "tell", "arguments": {"count": count}}
    asked = (await crew.post("tools/call", **call))["result"]
    ((key, question),) = asked["inputRequests"].items()
    home = int(question["params"]["message"])
    async with client_of_another_worker(crew, home) as http:
        params = {**call, "requestState": asked["requestState"], "inputResponses": {key: YES}}
        params["_meta"] = modern_meta(more=TOKEN)
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {"accept": "application/json, text/event-stream", **headers_of("tools/call", params)}
        async with http.stream("POST", crew.url, json=message, headers=headers) as response:
            yield Stream(response)


@asynccontextmanager
async def legacy(crew: Crew, count: int) -> AsyncIterator[Stream]:
    """The stream of a call in a session of one worker, at another one."""
    session = await opened(crew)
    params = {"name": "tell", "arguments": {"count": count}, "_meta": TOKEN}
    message = {"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": params}
    home = int(await session.call("where"))
    async with client_of_another_worker(crew, home) as http, session.stream("POST", http, json=message) as stream:
        question = await stream.next()
        assert int(question["params"]["message"]) == home
        assert (await session.post({"id": question["id"], "result": YES})).status_code == 202
        yield stream


Call = Callable[[Crew, int], AbstractAsyncContextManager[Stream]]


@pytest.mark.parametrize("call", [modern, legacy])
async def test_a_reader_that_pauses_gets_every_event_and_the_memory_of_both_workers_is_bounded(
    call: Call, store: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    short = tmp_path_factory.mktemp("w")
    reached = tmp_path_factory.mktemp("r") / "reached"
    with trio.fail_after(BOUND):
        async with serving(short, workers=2, server=SERVER, REACHED=str(reached), **store) as crew:
            async with call(crew, WARM_UP) as stream:
                while (await stream.next()).get("method"):
                    pass
            reached.unlink()
            before = {pid: memory_of(pid, "VmRSS") for pid in crew.pids}
            for pid in before:
                forget_peak(pid)
            async with call(crew, EVENTS) as stream:
                for number in range(1, EVENTS + 1):
                    assert (await stream.next())["params"]["progress"] == number
                    if number in PAUSES:
                        assert await stands_still(reached) < number + EVENTS // 4
                assert (await stream.next())["result"]["content"][0]["text"] == "over"
            assert {*before} == crew.pids
            grown = {pid: memory_of(pid, "VmHWM") - size for pid, size in before.items()}
            assert max(grown.values()) < MOST_GROWTH, grown
