"""Rules of the checklist that a client keeps in every conversation."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from scripted import as_legacy, as_modern, conversation, initialized, opening_client, said
from trio.testing import MockClock

from trio_mcp.types import Root

SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}


@pytest.fixture(params=[as_legacy, as_modern], ids=["legacy", "modern"])
def opening(request: pytest.FixtureRequest) -> Any:
    return request.param


# opening


async def test_nothing_but_initialize_is_sent_before_its_answer(autojump_clock: MockClock) -> None:
    async with opening_client(mode="legacy", on_log=lambda _params: None) as (_client, wire, opened):
        request = await wire.request("initialize")
        await wire.silence(5)
        await wire.respond(request, initialized())
        await wire.notification("notifications/initialized")
        await opened.result()


# what a server may ask


async def test_a_server_may_ping_before_it_answers_initialize() -> None:
    async with opening_client(mode="legacy") as (_client, wire, opened):
        request = await wire.request("initialize")
        await wire.ask("p", "ping", {})
        assert (await wire.reply("p"))["result"] == {}
        await wire.respond(request, initialized())
        await wire.notification("notifications/initialized")
        await opened.result()


@pytest.mark.parametrize("method", ["ping", "roots/list", "sampling/createMessage", "no/such/method"])
async def test_a_request_of_a_modern_server_is_not_answered(autojump_clock: MockClock, method: str) -> None:
    async with conversation(as_modern, on_roots=list, on_sample=lambda _params: "x") as (client, wire, start):
        await wire.ask("q", method, SAMPLE)
        await wire.silence()
        call = start(client.call_tool, "book")
        await wire.respond(await wire.request("tools/call"), said("fine"))
        assert (await call.result()).text == "fine"


@pytest.mark.parametrize("uri", ["https://example.com/", "/srv", "", "file:", "files:///srv"])
async def test_a_root_that_is_no_file_is_refused_before_it_is_sent(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        async with conversation(as_legacy, on_roots=lambda: [Root(uri=uri)]) as (_client, wire, _start):
            await wire.ask("q", "roots/list", {})
            assert "error" in await wire.reply("q")
    assert "file://" in caplog.text


# waiting


# what a server answers
