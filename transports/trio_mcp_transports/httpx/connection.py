"""One server as a client reaches it: what is posted to it, and the messages that it sends."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import httpx2
import trio

from trio_mcp.printable import shown_url
from trio_mcp.protocol.jsonrpc import RequestId, dump
from trio_mcp.protocol.strict_json import JsonLimits
from trio_mcp.session import Envelope, Received, Sent

from .limits import INBOX, ClientLimits
from .requests import read_body

LEFTOVER_SECONDS: Final = 1.0
"""Seconds that the body may take of a response that answers nothing."""


class ServerConnection:
    """The endpoint of one server, as one channel uses it.

    Attributes:
        shown: its URL in errors.
        inbox: messages of the server, whichever response brought them; `arrived` is its other end.
    """

    def __init__(self, url: str, http: httpx2.AsyncClient, limits: ClientLimits) -> None:
        self.url, self.shown = url, shown_url(url)
        self.http = http
        self.limits = limits
        self.arrived, self.inbox = trio.open_memory_channel[Envelope[Received]](INBOX)
        self.json_limits = JsonLimits(max_bytes=limits.message, max_values=limits.values)

    async def deliver(self, message: Received, about: RequestId | None = None) -> None:
        """Hand a message to the task that receives; one that comes after the channel was closed is dropped.

        Args:
            about: the request on whose response it came.
        """
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self.arrived.send(Envelope(message, about))

    async def post_message(
        self, url: str, message: Sent, headers: Mapping[str, str], seconds: float
    ) -> tuple[int, bytes]:
        """Post a message that has no answer; return the status and the body, which need not end nor be well formed.

        Raises:
            httpx2.HTTPError: it did not arrive, or the server did not answer within so many seconds.
        """
        status, body = 0, b""
        with trio.move_on_after(seconds):
            async with self.http.stream("POST", url, content=dump(message), headers=headers) as response:
                status = response.status_code
                # Read to its end, so that its connection can carry the next message; a body without end costs the connection.
                # That of an error may hold its reason, and has all the time there is.
                rest = LEFTOVER_SECONDS if response.is_success else seconds
                with trio.move_on_after(rest), suppress(httpx2.HTTPError):
                    body = await read_body(response, self.limits.message)
        if not status:
            raise httpx2.ReadTimeout(f"it did not say within {seconds:g} seconds whether it took it")
        return status, body
