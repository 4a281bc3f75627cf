"""Two processes over HTTP that share a store, each reached by any request, and one of them killed."""

from __future__ import annotations

import base64
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
from serving import HttpClient, HttpProcess, http_client, http_process, retry
from task_talk import DECLARES
from wire_terms import IDEMPOTENCY_KEY, SERVER_BUSY

SERVER = Path(__file__).parent / "shared_server.py"
ADOPTED = 3.0
"""Seconds after which the task of a killed process goes on at the latest, besides what a loaded machine takes."""
LOADED = 10.0


@pytest.fixture(autouse=True, params=["sqlite", "redis", "postgres"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store that the processes of a test share; in a database, a namespace for each test."""
    if request.param != "sqlite":
        url = request.getfixturevalue(f"{request.param}_url")
        monkeypatch.setenv("SHARED_STORE", f"{url}?namespace={secrets.token_hex(8)}")


class Pair(NamedTuple):
    first: HttpProcess
    second: HttpProcess
    http: HttpClient
    home: Path

    def effects(self) -> list[str]:
        file = self.home / "effects"
        return file.read_text().splitlines() if file.exists() else []


@asynccontextmanager
async def pair(home: Path) -> AsyncIterator[Pair]:
    keys = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    environment = {"TRIO_MCP_KEYS": keys, "HOME_FOLDER": str(home)}
    async with (
        http_process(SERVER, **environment) as first,
        http_process(SERVER, **environment) as second,
        http_client() as http,
    ):
        yield Pair(first, second, http, home)


def text_of(message: Any) -> str:
    return str(message["result"]["content"][0]["text"])


async def test_a_leg_that_is_sent_to_both_runs_once(tmp_path: Path) -> None:
    async with pair(tmp_path) as (first, second, http, _):
        for _ in range(5):
            asked = await http.round(first.url, "order")
            replies: list[Any] = []
            async with trio.open_nursery() as nursery:

                async def send(process: HttpProcess, asked: Any = asked, replies: list[Any] = replies) -> None:
                    replies.append(await http.call(process.url, "order", **retry(asked, True)))

                for process in (first, second):
                    nursery.start_soon(send, process)
            refused = [reply["error"]["code"] for reply in replies if "error" in reply]
            assert (len(replies), refused) == (2, [SERVER_BUSY])
        assert Pair(first, second, http, tmp_path).effects() == ["ordered"] * 5


async def test_a_parked_call_ends_where_it_is_parked_and_is_lost_when_that_process_is_killed(tmp_path: Path) -> None:
    async with pair(tmp_path) as (first, second, http, _):
        asked, lost = [await http.round(first.url, "fill") for _ in range(2)]
        assert (await http.call(second.url, "fill", **retry(asked, True)))["error"]["code"] == SERVER_BUSY
        assert text_of(await http.call(first.url, "fill", **retry(asked, True))) == "accept"
        await first.kill()
        with trio.fail_after(ADOPTED + LOADED):
            # With leases it lives until its lease has lapsed.
            while "error" in (reply := await http.call(second.url, "fill", **retry(lost, True))):
                assert reply["error"]["code"] == SERVER_BUSY
                await trio.sleep(0.1)
        assert "lost" in text_of(reply)


async def test_a_repeat_waits_for_the_call_that_runs_in_the_other_process(tmp_path: Path) -> None:
    async with pair(tmp_path) as here, trio.open_nursery() as nursery:
        replies = []

        async def send(process: HttpProcess) -> None:
            replies.append(text_of(await here.http.call(process.url, "pay", meta={IDEMPOTENCY_KEY: "k"})))

        nursery.start_soon(send, here.first)
        while not here.effects():  # noqa: ASYNC110  another process makes it
            await trio.sleep(0.02)
        nursery.start_soon(send, here.second)
        await trio.sleep(0.2)
        (tmp_path / "go on").touch()
    assert replies == ["paid"] * 2
    assert here.effects() == ["paid"]


async def state_of(http: HttpClient, process: HttpProcess, task: str) -> Any:
    return (await http.ask(process.url, "tasks/get", DECLARES, taskId=task))["result"]


async def until(http: HttpClient, process: HttpProcess, task: str, status: str) -> Any:
    """Poll a task until it has this status."""
    with trio.fail_after(ADOPTED + LOADED):
        while (state := await state_of(http, process, task))["status"] != status:  # noqa: ASYNC110  another process changes it
            await trio.sleep(0.1)
        return state


async def publish(http: HttpClient, process: HttpProcess, state: Any) -> None:
    answers = {key: {"action": "accept", "content": {"value": True}} for key in state["inputRequests"]}
    reply = await http.ask(process.url, "tasks/update", DECLARES, taskId=state["taskId"], inputResponses=answers)
    assert "result" in reply, reply


async def test_a_task_is_answered_and_cancelled_at_the_other_process(tmp_path: Path) -> None:
    async with pair(tmp_path) as (first, second, http, _):
        for _ in range(2):
            task = (await http.call(first.url, "report", capabilities=DECLARES))["result"]["taskId"]
            asked = await until(http, second, task, "input_required")
            await publish(http, second, asked)
            ended = await until(http, second, task, "completed")
            assert ended["result"]["content"][0]["text"] == "accept"
        task = (await http.call(first.url, "report", capabilities=DECLARES))["result"]["taskId"]
        reply = await http.ask(second.url, "tasks/cancel", DECLARES, taskId=task)
        assert "result" in reply, reply
        assert (await state_of(http, first, task))["status"] == "cancelled"


async def test_the_task_of_a_killed_process_goes_on_in_the_one_that_lives(tmp_path: Path) -> None:
    async with pair(tmp_path) as (first, second, http, _):
        task = (await http.call(first.url, "report", capabilities=DECLARES))["result"]["taskId"]
        asked = await until(http, first, task, "input_required")
        await first.kill()
        # It is taken at once, and applied by the process that takes the task over.
        await publish(http, second, asked)
        ended = await until(http, second, task, "completed")
        assert ended["result"]["content"][0]["text"] == "accept"
        assert Pair(first, second, http, tmp_path).effects() == ["gathered"]
