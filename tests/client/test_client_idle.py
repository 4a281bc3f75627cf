"""`idle_timeout`: a call that reports progress may go on, up to its `timeout`; one that is silent is given up."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
from naming import naming
from scripted import Wire, as_legacy, as_modern, conversation, said
from trio.testing import MockClock

from trio_mcp.client import accept
from trio_mcp.errors import RequestTimeout
from trio_mcp.protocol.meta import CLIENT_CAPABILITIES
from trio_mcp.types import ProgressNotificationParams

FORM = {"mode": "form", "message": "Which?", "requestedSchema": {"type": "object", "properties": {}}}


@pytest.fixture(params=[as_legacy, as_modern], ids=["legacy", "modern"])
def opening(request: pytest.FixtureRequest) -> Any:
    return request.param


async def report(wire: Wire, request: dict[str, Any], progress: float) -> None:
    token = request["params"]["_meta"]["progressToken"]
    await wire.notify("notifications/progress", {"progressToken": token, "progress": progress})


async def test_a_silent_server_is_given_up_and_told_so(opening: Any, autojump_clock: MockClock) -> None:
    async with conversation(opening) as (client, wire, start):
        began = trio.current_time()
        call = start(client.call_tool, "book", idle_timeout=5)
        request = await wire.request("tools/call")
        with pytest.raises(RequestTimeout, match=naming("progress", "tools/call", "5 seconds")):
            await call.result()
        assert trio.current_time() - began == 5
        assert (await wire.notification("notifications/cancelled"))["requestId"] == request["id"]


async def test_each_report_starts_the_time_anew_and_reaches_the_caller(opening: Any, autojump_clock: MockClock) -> None:
    reports: list[float] = []

    def heard(params: ProgressNotificationParams) -> None:
        reports.append(params.progress)

    async with conversation(opening) as (client, wire, start):
        call = start(client.call_tool, "book", idle_timeout=5, on_progress=heard)
        request = await wire.request("tools/call")
        for progress in (1, 2, 3):
            await trio.sleep(4)
            await report(wire, request, progress)
        await trio.sleep(4)
        await wire.respond(request, said("booked"))
        assert (await call.result()).text == "booked"
    assert reports == [1, 2, 3]


async def test_progress_for_ever_does_not_move_the_timeout_of_the_call(opening: Any, autojump_clock: MockClock) -> None:
    async with conversation(opening) as (client, wire, start):
        began = trio.current_time()
        call = start(client.call_tool, "book", idle_timeout=5, timeout=12)
        request = await wire.request("tools/call")
        for progress in range(3):
            await trio.sleep(4 if progress else 3)
            await report(wire, request, progress)
        with pytest.raises(RequestTimeout, match=naming("book", "12 seconds")):
            await call.result()
        assert trio.current_time() - began == 12


@pytest.mark.parametrize(("timeout", "idle", "named"), [(3, 5, "book"), (5, 3, "progress")])
async def test_the_shorter_of_the_two_counts_and_the_error_says_which(
    opening: Any, autojump_clock: MockClock, timeout: float, idle: float, named: str
) -> None:
    async with conversation(opening) as (client, wire, start):
        call = start(client.call_tool, "book", timeout=timeout, idle_timeout=idle)
        await wire.request("tools/call")
        with pytest.raises(RequestTimeout, match=naming(named, "3 seconds")):
            await call.result()


async def test_the_progress_of_another_call_is_no_sign_of_life_of_this_one(
    opening: Any, autojump_clock: MockClock
) -> None:
    async with conversation(opening) as (client, wire, start):
        silent, talking = start(client.call_tool, "a", idle_timeout=5), start(client.call_tool, "b", idle_timeout=5)
        requests = {request["params"]["name"]: request for request in [await wire.request("tools/call") for _ in "ab"]}
        await trio.sleep(4)
        await report(wire, requests["b"], 1)
        with pytest.raises(RequestTimeout):
            await silent.result()
        await wire.notification("notifications/cancelled")
        await trio.sleep(2)
        await wire.respond(requests["b"], said("done"))
        assert (await talking.result()).text == "done"


async def test_the_time_in_which_a_live_question_is_answered_here_is_not_the_servers_silence(
    autojump_clock: MockClock,
) -> None:
    async def takes_its_time(_question: object) -> Any:
        await trio.sleep(40)
        return accept()

    async with conversation(as_legacy, on_elicit=takes_its_time) as (client, wire, start):
        call = start(client.call_tool, "book", idle_timeout=7)
        request = await wire.request("tools/call")
        await wire.ask("q", "elicitation/create", FORM)
        await wire.reply("q")
        await wire.respond(request, said("booked"))
        assert (await call.result()).text == "booked"


async def test_the_time_in_which_a_round_is_answered_here_is_not_the_servers_silence(
    autojump_clock: MockClock,
) -> None:
    async def takes_its_time(_question: object) -> Any:
        await trio.sleep(40)
        return accept()

    async with conversation(as_modern, on_elicit=takes_its_time) as (client, wire, start):
        call = start(client.call_tool, "book", idle_timeout=5)
        request = await wire.request("tools/call")
        assert request["params"]["_meta"][CLIENT_CAPABILITIES]
        asked = {"q": {"method": "elicitation/create", "params": FORM}}
        await wire.respond(request, {"resultType": "input_required", "inputRequests": asked, "requestState": "s"})
        await wire.respond(await wire.request("tools/call"), said("booked"))
        assert (await call.result()).text == "booked"


@pytest.mark.parametrize("wrong", [0, -1, math.nan, "5", None])
async def test_what_is_no_time_to_wait_is_refused(opening: Any, wrong: Any) -> None:
    async with conversation(opening) as (client, _wire, _start):
        with pytest.raises((TypeError, ValueError), match="idle_timeout"):
            await client.call_tool("book", idle_timeout=wrong)
