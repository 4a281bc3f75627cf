"""Requests and notifications that no revision has, between a host and a server of different eras: one route passes them on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from conversing import Talk
from far_wire import FarWire
from proxied_conversations import Conversation, opening
from recorded import begun
from relaying import SECONDS, Json, initialized, modern, relayed
from test_relay_eras import translated
from wire_terms import METHOD_NOT_FOUND

two_eras = pytest.mark.parametrize(("host", "server"), [("legacy", "modern"), ("modern", "legacy")])


@asynccontextmanager
async def talking(host: str, server: str, **more: Any) -> AsyncIterator[tuple[Talk, FarWire]]:
    async with begun(Conversation("unknown methods", opening, host, server, **more)) as pair:
        yield pair


def sent(far: FarWire, method: str) -> list[Json]:
    """Return the params of the messages of this method that the server has received."""
    return [message["params"] for message in far.received if message.get("method") == method]


@two_eras
async def test_a_cancel_of_the_host_cancels_the_request_at_the_server(host: str, server: str) -> None:
    async with talking(host, server) as (talk, far):
        message = talk.message("x/hold", {})
        await talk.send(message)
        with trio.fail_after(SECONDS):
            await far.holds.wait()
            await talk.notify("notifications/cancelled", {"requestId": message["id"]})
            await far.cancelled.wait()


async def test_a_request_of_a_legacy_server_is_rejected_for_a_modern_host() -> None:
    async with talking("modern", "legacy") as (talk, _):
        (given,) = (await talk.call("ask_unknown"))["result"]["structuredContent"]["given"]
        assert given["error"]["code"] == METHOD_NOT_FOUND


@pytest.mark.parametrize(
    ("host", "server", "method"),
    [("modern", "legacy", "resources/subscribe"), ("modern", "legacy", "ping"), ("legacy", "modern", "tasks/update")],
)
async def test_a_method_that_only_the_servers_revision_has_does_not_pass(host: str, server: str, method: str) -> None:
    async with talking(host, server) as (talk, far):
        assert (await talk.request(method, {"uri": "note://one", "taskId": "t"}))["error"]["code"] == METHOD_NOT_FOUND
        assert sent(far, method) == []


async def test_notifications_for_a_server_that_reads_nothing_are_dropped() -> None:
    answers: dict[str, Json] = {"initialize": {**initialized(), "capabilities": {}}}
    async with relayed(reads=False) as proxy:
        await translated(proxy, modern(1, "x/echo", {}), {"code": -32601, "message": "what?"}, answers)
        for number in range(2000):
            await proxy.host.send({"jsonrpc": "2.0", "method": "notifications/x", "params": {"number": number}})
        await trio.testing.wait_all_tasks_blocked()
        read = 0
        with trio.move_on_after(0.2):
            while True:
                read += (await proxy.server.receive())["method"] == "notifications/x"
        assert 0 < read < 2000
