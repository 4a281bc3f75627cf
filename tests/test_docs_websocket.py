"""The code of docs/websocket.md does what the page says, and its numbers are those of the code."""

from __future__ import annotations

import re
from dataclasses import fields
from inspect import signature

import trio
from pages import Page
from serving import served

from trio_mcp.session import ServiceOptions
from trio_mcp_transports.http import HttpLimits
from trio_mcp_transports.hypercorn.config import DEFAULT_CONNECTION_LIMITS, guarded_config
from trio_mcp_transports.hypercorn.connection import MAX_RECV
from trio_mcp_transports.websocket.client import INBOX, connect
from trio_mcp_transports.websocket.handshake import MAX_HANDSHAKE

PAGE = Page("websocket")
BOUND = 20.0
MIB = 1024 * 1024


async def test_the_clock_of_the_page_counts_over_a_websocket() -> None:
    page = PAGE.run()
    with trio.fail_after(BOUND):
        async with served(page["server"]) as url:
            assert await page["visit"](url.replace("http:", "ws:"), "token") == "counted to 3"


def said(what: str) -> str:
    """The limit in the row of the table that begins with these words."""
    (found,) = re.findall(rf"^\| {re.escape(what)} \| ([^|]*) \|", PAGE.text, re.MULTILINE)
    return found


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    limits = {field.name: field.default for field in fields(HttpLimits)}
    options = {name: parameter.default for name, parameter in signature(connect).parameters.items()}
    assert said("a message to the server") == f"{limits['body'] // MIB} MiB"
    assert said("a message to our client") == f"{options['max_message'] // MIB} MiB"
    assert said("open WebSockets") == f"{limits['websockets']:,}"
    assert (
        said("time without data from the peer")
        == f"{options['ping_interval']:g} s"
        == f"{guarded_config().websocket_ping_interval:g} s"
    )
    assert (
        said("time for one write")
        == f"{options['write_deadline']:g} s"
        == f"{DEFAULT_CONNECTION_LIMITS.send_timeout:g} s"
    )
    assert said("time from the first byte of a message to its last").startswith(
        f"{DEFAULT_CONNECTION_LIMITS.message_timeout:g} s,"
    )
    assert said("messages for a client that does not read") == str(ServiceOptions().outbox)
    assert said("messages from a client that does not read its answers") == f"those of one read, {MAX_RECV // 1024} KiB"
    assert said("messages that wait for a slow receiver in our client") == f"{INBOX}, or one `max_message`"
    assert said("what a server may send before our client's connection is open") == f"{MAX_HANDSHAKE // 1024} KiB"
    defaults = [f"`{name}` ({options[name]:g}" for name in ("connect_timeout", "write_deadline", "ping_interval")]
    assert [each for each in defaults if each not in PAGE.prose] == []
