"""`idle_timeout`: a call that reports progress may go on, up to its `timeout`; one that is silent is given up."""

from __future__ import annotations

from typing import Any

import trio
from naming import naming
from scripted import FORM_QUESTION, as_legacy, asking, calling, conversation, said

from trio_mcp.client import accept
from trio_mcp.errors import RequestTimeout
from trio_mcp.types import ProgressNotificationParams


async def test_a_call_to_a_silent_server_is_given_up_and_cancelled_there(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        began = trio.current_time()
        call = start(client.call_tool, "book", idle_timeout=5)
        request = await wire.request("tools/call")
        await call.fails(RequestTimeout, naming("progress", "tools/call", "5 seconds"))
        assert trio.current_time() - began == 5
        assert (await wire.notification("notifications/cancelled"))["requestId"] == request["id"]


async def test_each_report_restarts_the_time_and_reaches_the_caller(opening: Any) -> None:
    reports: list[ProgressNotificationParams] = []
    async with calling(opening, idle_timeout=5, on_progress=reports.append) as (wire, call, request):
        for progress in (1, 2, 3):
            await trio.sleep(4)
            await wire.report(request, progress)
        await trio.sleep(4)
        await wire.respond(request, said("booked"))
        assert (await call.result()).text == "booked"
    assert [report.progress for report in reports] == [1, 2, 3]


async def test_endless_progress_does_not_move_the_timeout_of_the_call(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        began = trio.current_time()
        call = start(client.call_tool, "book", idle_timeout=5, timeout=12)
        request = await wire.request("tools/call")
        for progress in range(3):
            await trio.sleep(4 if progress else 3)
            await wire.report(request, progress)
        await call.fails(RequestTimeout, naming("book", "12 seconds"))
        assert trio.current_time() - began == 12


async def test_the_progress_of_another_call_is_no_sign_of_life_of_this_one(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        silent, talking = start(client.call_tool, "a", idle_timeout=5), start(client.call_tool, "b", idle_timeout=5)
        requests = {request["params"]["name"]: request for request in [await wire.request("tools/call") for _ in "ab"]}
        await trio.sleep(4)
        await wire.report(requests["b"], 1)
        await silent.fails(RequestTimeout)
        await wire.notification("notifications/cancelled")
        await trio.sleep(2)
        await wire.respond(requests["b"], said("done"))
        assert (await talking.result()).text == "done"


async def takes_its_time(_question: object) -> Any:
    await trio.sleep(40)
    return accept()


async def test_the_time_in_which_a_question_is_answered_here_is_not_the_servers_silence(opening: Any) -> None:
    async with calling(opening, {"on_elicit": takes_its_time}, idle_timeout=7) as (wire, call, request):
        if opening is as_legacy:
            await wire.answer_to(FORM_QUESTION)
            await wire.respond(request, said("booked"))
        else:
            await wire.respond(request, asking("q", state="s"))
            await wire.reply("tools/call", said("booked"))
        assert (await call.result()).text == "booked"
