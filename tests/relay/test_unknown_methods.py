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

from trio_mcp.protocol.jsonrpc import METHOD_NOT_FOUND

two_eras = pytest.mark.parametrize(("host", "server"), [("legacy", "modern"), ("modern", "legacy")])


@asynccontextmanager
async def talking(host: str, server: str, **more: Any) -> AsyncIterator[tuple[Talk, FarWire]]:
    async with begun(Conversation("unknown methods", opening, host, server, **more)) as pair:
        yield pair


def sent(far: FarWire, method: str) -> list[Json]:
    """Return the params of the messages of this method that the server has received."""
    return [message["params"] for message in far.received if message.get("method") == method]


@two_eras
@pytest.mark.parametrize("wire", ["pipe", "http"])
async def test_a_request_passes_with_its_members_and_so_does_its_answer(host: str, server: str, wire: str) -> None:
    async with talking(host, server, wire=wire) as (talk, far):
        result = (await talk.request("x/echo", {"a": [1.5, None], "b": None, "_meta": {"x/y": {"z": 1}}}))["result"]
        assert result["echo"] == {"a": [1.5, None], "b": None}
        assert result["x-kept"] == [1.5, None]
        (params,) = sent(far, "x/echo")
        assert params["_meta"]["x/y"] == {"z": 1}
        assert "progressToken" not in params["_meta"]


@two_eras
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "look", "arguments": {}}),
        ("prompts/get", {"name": "greet", "arguments": {"who": "Bob"}}),
        ("resources/read", {"uri": "note://one"}),
        ("tools/list", {"cursor": "c"}),
    ],
)
async def test_unknown_members_of_a_known_request_pass(host: str, server: str, method: str, params: Json) -> None:
    async with talking(host, server) as (talk, far):
        await talk.request(method, {**params, "x-own": {"a": [1.5, None]}})
        assert {"a": [1.5, None]} in [each.get("x-own") for each in sent(far, method)]


@two_eras
async def test_an_error_passes_with_its_code_and_data(host: str, server: str) -> None:
    async with talking(host, server) as (talk, _):
        error = (await talk.request("x/fail", {}))["error"]
        assert error == {"code": 7, "message": "x", "data": {"x": None}}
        assert (await talk.request("x/none", {}))["error"]["code"] == METHOD_NOT_FOUND


@two_eras
async def test_a_cancel_of_the_host_cancels_the_request_at_the_server(host: str, server: str) -> None:
    async with talking(host, server) as (talk, far):
        message = talk.message("x/hold", {})
        await talk.send(message)
        with trio.fail_after(SECONDS):
            await far.holds.wait()
            await talk.notify("notifications/cancelled", {"requestId": message["id"]})
            await far.cancelled.wait()


@two_eras
async def test_notifications_pass_in_a_call_and_without_one(host: str, server: str) -> None:
    note = {"a": [1.5, None], "b": None, "_meta": {"m": 1}}
    async with talking(host, server) as (talk, far):
        await talk.call("note")
        (*_, noted, _) = talk.heard[""]
        assert noted == {"jsonrpc": "2.0", "method": "notifications/x-note", "params": note}
        await talk.notify("notifications/x-call", note)
        await talk.heard_of("x-echo")
        assert sent(far, "notifications/x-call") == [note]
        assert talk.heard[""][-1] == {"jsonrpc": "2.0", "method": "notifications/x-echo", "params": note}


async def test_a_request_of_a_legacy_server_is_rejected_for_a_modern_host() -> None:
    async with talking("modern", "legacy") as (talk, _):
        (given,) = (await talk.call("ask_unknown"))["result"]["structuredContent"]["given"]
        assert given["error"]["code"] == METHOD_NOT_FOUND


@pytest.mark.parametrize(
    ("host", "server", "method"),
    [("modern", "legacy", "resources/subscribe"), ("modern", "legacy", "ping"), ("legacy", "modern", "tasks/update")],
)
async def test_a_method_that_only_the_revision_of_the_server_has_does_not_pass(
    host: str, server: str, method: str
) -> None:
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


@two_eras
async def test_unknown_members_of_reports_pass_and_the_task_that_they_name_does_not(host: str, server: str) -> None:
    async with talking(host, server) as (talk, _):
        await talk.call("progress", {"count": 2}, _meta={"progressToken": "t"})
        reports = [each["params"] for each in talk.heard[""] if each.get("method") == "notifications/progress"]
        assert [(report["progressToken"], report["x-progress"]) for report in reports] == [("t", [0]), ("t", [1])]
        assert [report["_meta"] for report in reports] == [{"m": 1}, {"m": 1}]
