"""`trio-mcp serve --workers`: one server in several processes."""

from __future__ import annotations

import base64
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
import trio
from crew import SERVER, Crew, crew, files, gone, kill, serving
from serving import START
from waiting import until
from wire_terms import IDEMPOTENCY_KEY

from trio_mcp import Client

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc for the workers")

YES = {"action": "accept", "content": {"value": True}}


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short name: sockets are in it."""
    return tmp_path_factory.mktemp("w")


async def asked(crew: Crew, tool: str) -> dict[str, object]:
    """Call a tool that asks; return what its next leg brings."""
    result = (await crew.post("tools/call", name=tool, arguments={}))["result"]
    assert result["resultType"] == "input_required"
    return {"requestState": result["requestState"], "inputResponses": dict.fromkeys(result["inputRequests"], YES)}


async def test_every_worker_serves_and_the_url_is_printed_once(short: Path) -> None:
    async with serving(short) as crew:
        found: set[str] = set()
        with trio.fail_after(START):
            while len(found) < 3:
                found.add(await crew.call("where"))
        assert set(map(int, found)) == crew.pids
        assert sum("serves MCP at" in line for line in crew.said) == 1


async def test_a_call_that_can_be_replayed_goes_on_at_any_worker(short: Path) -> None:
    async with serving(short, workers=2) as crew:
        ended = set()
        for _ in range(20):
            ended.add(await crew.call("book", **await asked(crew, "book")))
        assert len(ended) > 1
        assert all(text.startswith("accept ") for text in ended)


async def test_a_key_gives_the_outcome_of_the_first_run_at_any_worker(short: Path) -> None:
    async with serving(short, workers=2) as crew:
        for key in range(5):
            meta = {IDEMPOTENCY_KEY: f"k{key}"}
            assert len({await crew.call("where", meta) for _ in range(6)}) == 1


async def test_a_worker_that_is_killed_is_replaced_and_its_calls_go_on_elsewhere(short: Path) -> None:
    async with serving(short) as crew:
        before = crew.pids
        rest = [await asked(crew, "book") for _ in range(9)]
        victim = min(before)
        await kill(victim)
        assert [(await crew.call("book", **each)).split()[0] for each in rest] == ["accept"] * 9
        await crew.hear("another one starts")
        await until(lambda: len(crew.pids) == 3)
        assert before - crew.pids == {victim}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_all_workers_and_leaves_no_folder(short: Path, number: signal.Signals) -> None:
    async with serving(short, workers=2) as crew:
        workers = crew.pids
        assert [*files(short).values()] == [0o700]
        assert await crew.end(number) == 0
        await gone(workers)
        assert files(short) == {}


async def test_workers_end_when_their_parent_is_killed_and_leave_no_folder(short: Path) -> None:
    async with serving(short, "--drain", "1", workers=2) as crew:
        workers = crew.pids
        crew.process.kill()
        await crew.hear("SIGTERM: draining", times=2, seconds=2)
        await gone(workers)
        assert files(short) == {}


async def test_a_start_removes_what_a_parent_and_workers_left_that_were_all_killed(short: Path) -> None:
    async with serving(short, workers=2) as crew:
        workers = crew.pids
        crew.process.kill()
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        await gone(workers)
        (left,) = files(short)
    async with serving(short, workers=2):
        assert left not in files(short)


async def test_a_worker_whose_event_loop_does_not_turn_is_killed_and_replaced(short: Path) -> None:
    async with serving(short, workers=2) as crew:
        async with trio.open_nursery() as nursery:

            async def hang() -> None:
                with suppress(httpx2.RemoteProtocolError):  # the connection ends with its worker
                    await crew.call("block", arguments={"seconds": 60})

            before = crew.pids
            nursery.start_soon(hang)
            await crew.hear("is killed: its event loop", seconds=40)
            nursery.cancel_scope.cancel()
        await crew.hear("another one starts")
        assert len(before & crew.pids) == 1


async def test_a_file_that_cannot_be_loaded_ends_the_parent_with_its_error(short: Path) -> None:
    file = short / "broken.py"
    file.write_text("raise ValueError('no plan')")
    async with crew(short, server=file) as started:
        with trio.fail_after(START):
            assert await started.process.wait() == 3
        await started.hear("no plan", times=4)
        assert [*files(short)] == ["broken.py"]


async def test_a_new_version_that_cannot_be_loaded_leaves_the_workers_as_they_are(short: Path) -> None:
    file = short / "app.py"
    file.write_text(SERVER.read_text())
    async with serving(short, server=file, workers=2) as crew:
        before = crew.pids
        file.write_text("raise ValueError('no plan')")
        crew.process.send_signal(signal.SIGHUP)
        await crew.hear("the others stay")
        assert int(await crew.call("where")) in before
        assert crew.pids == before


async def test_a_new_version_that_hangs_is_given_up_for_the_next(short: Path) -> None:
    file = short / "app.py"
    file.write_text(SERVER.read_text())
    async with serving(short, server=file, workers=2) as crew:
        before = crew.pids
        file.write_text(f"import pathlib, time\npathlib.Path({str(short / 'begun')!r}).touch()\ntime.sleep(1000)")
        crew.process.send_signal(signal.SIGHUP)
        await until((short / "begun").exists)
        assert int(await crew.call("where")) in before
        file.write_text(SERVER.read_text())
        crew.process.send_signal(signal.SIGHUP)
        await until(lambda: not before & crew.pids)
        assert len(crew.pids) == 2
        assert int(await crew.call("where")) in crew.pids


async def test_a_store_of_the_file_still_needs_its_own_keys(short: Path) -> None:
    file = short / "app.py"
    file.write_text(SERVER.read_text().replace("ServiceOptions(", f'ServiceOptions(store="{short / "s.db"}", '))
    async with crew(short, server=file, workers=2) as started:
        with trio.fail_after(START):
            assert await started.process.wait() == 3
        await started.hear("TRIO_MCP_KEYS")


async def test_more_workers_than_processors_are_warned_of(short: Path) -> None:
    many = len(os.sched_getaffinity(0)) + 1
    async with crew(short, workers=many) as started:
        await started.hear("more workers than processors")


async def test_a_task_is_shown_and_gives_its_result_at_any_worker(short: Path) -> None:
    async with serving(short, workers=2) as crew:
        async with Client.connect(crew.url) as client:
            started = await client.start_tool("bake")
        results = set()
        for _ in range(8):
            async with Client.connect(crew.url) as another:
                with trio.fail_after(START):
                    results.add((await another.task(started.id).result()).text)
        assert len(results) == 1
        assert results.pop().startswith("baked ")


async def test_a_task_of_a_worker_that_was_killed_has_an_end_within_seconds(short: Path) -> None:
    async with serving(short, workers=2) as crew:
        async with Client.connect(crew.url) as client:
            started = await client.start_tool("stew")
        await crew.hear("stewing in ")
        await kill(next(int(line.split()[-1]) for line in crew.said if "stewing in" in line))
        async with Client.connect(crew.url) as another:
            with trio.fail_after(START):
                assert (await another.task(started.id).result()).text.startswith("stewed ")


def links(short: Path) -> set[str]:
    """Return the sockets on which the workers listen for links."""
    return {each.name for each in short.glob("trio-mcp-*/l*") if each.is_socket()}


async def test_a_worker_that_was_taken_for_dead_is_found_under_its_new_name(short: Path, redis_url: str) -> None:
    key = base64.urlsafe_b64encode(bytes(32)).decode()
    store = f"{redis_url}?namespace=workers"
    async with serving(short, workers=2, TRIO_MCP_STORE=store, TRIO_MCP_KEYS=key) as crew:
        before, victim = links(short), min(crew.pids)
        os.kill(victim, signal.SIGSTOP)
        try:
            # The other one looks once a second whether it lives. Nothing notifies of that.
            await trio.sleep(4)
        finally:
            os.kill(victim, signal.SIGCONT)
        await until(lambda: len(before & links(short)) == 1 and len(links(short)) == 2)
        served = set[str]()
        for _ in range(20):
            answer, began, here = (await crew.call("order", **await asked(crew, "order"))).split()
            assert (answer, began) == ("accept", here)
            served.add(here)
        assert len(served) == 2
