"""Message middleware: sees each request and notification of a client before it is acted on, and may reject it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
from connected import connected
from talk import talk_to
from wire_terms import INTERNAL_ERROR, SERVER_BUSY

from trio_mcp import PeerError, Server, ServiceOptions
from trio_mcp.errors import LimitExceeded, ProtocolError
from trio_mcp.session import MessageFacts
from trio_mcp.types import CallToolRequestParams, CancelledNotificationParams


def watched(*rejected: Exception, method: str = "tools/call") -> tuple[Server, list[MessageFacts]]:
    """A server with a tool, and the messages that its middleware sees; those of the method are rejected with the error."""
    seen: list[MessageFacts] = []
    server = Server("tester", options=ServiceOptions(tell_errors=False))

    @server.message_middleware
    def watch(message: MessageFacts) -> None:
        seen.append(message)
        if rejected and message.method == method:
            raise rejected[0]

    @server.tool
    async def tool() -> None:
        await trio.sleep_forever()

    return server, seen


async def test_it_sees_each_request_and_notification_with_its_sender() -> None:
    server, seen = watched()
    async with talk_to(server, principal="ann") as talk:
        await talk.initialize()
        request = talk.call("tool", {}, id=7)
        talk.cancel(7, "enough")
        await talk.silence()
        assert request == 7
    assert [message.method for message in seen] == [
        "initialize",
        "notifications/initialized",
        "tools/call",
        "notifications/cancelled",
    ]
    assert [message.id for message in seen[1:]] == [None, 7, None]
    assert {message.peer.principal for message in seen} == {"ann"}
    assert isinstance(seen[2].params, CallToolRequestParams)
    assert seen[2].size > 0
    assert seen[3].params == CancelledNotificationParams(request_id=7, reason="enough")


async def test_it_sees_each_message_of_a_batch() -> None:
    server, seen = watched()
    async with talk_to(server) as talk:
        await talk.initialize("2025-03-26")
        talk.send_batch({"id": 1, "method": "ping"}, {"method": "notifications/roots/list_changed"})
        await talk.receive()
    assert [message.method for message in seen[2:]] == ["ping", "notifications/roots/list_changed"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProtocolError("not today", code=-32050), -32050),
        (LimitExceeded("not today"), SERVER_BUSY),
        (OSError("secret"), INTERNAL_ERROR),
    ],
)
async def test_a_rejected_request_is_answered_with_the_error(mode: Any, error: Exception, code: int) -> None:
    server, _seen = watched(error)
    async with connected(server, mode=mode) as client:
        with pytest.raises(PeerError) as caught:
            await client.call_tool("tool")
        assert caught.value.code == code
        assert ("secret" in caught.value.message) is False
        assert len(await client.list_tools()) == 1
        assert server.services[0].statistics().actors.started == 0


async def test_a_rejected_notification_is_dropped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    server, _seen = watched(ProtocolError("not today"), method="notifications/cancelled")
    async with talk_to(server) as talk:
        await talk.initialize()
        talk.cancel(talk.call("tool"))
        await talk.silence()
        assert server.services[0].statistics().actors.running == 1
    assert [record.levelno for record in caplog.records if "not today" in record.getMessage()] == [logging.WARNING]


async def test_the_first_one_that_rejects_ends_the_message() -> None:
    seen: list[str] = []

    def first(message: MessageFacts) -> None:
        seen.append("first")
        raise ProtocolError("no")

    def second(message: MessageFacts) -> None:
        seen.append("second")

    async with talk_to(Server("tester", message_middleware=[first, second])) as talk:
        await talk.error(talk.ask("tools/list"))
    assert seen == ["first"]


def test_an_async_function_is_refused() -> None:
    async def middleware(message: MessageFacts) -> None: ...

    with pytest.raises(TypeError, match="plain function"):
        Server("tester", message_middleware=[middleware])  # type: ignore[list-item]
