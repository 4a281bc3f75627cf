"""What crosses the wire between a client and a server of ours, written down on the way."""

from __future__ import annotations

import json
from typing import Any, Literal

import trio

from trio_mcp import Server
from trio_mcp.protocol.jsonrpc import Malformed, dump
from trio_mcp.session import Envelope

Sender = Literal["client", "server"]
Traffic = list[tuple[Sender, dict[str, Any]]]
"""Who sent a message, and the message as JSON, in the order in which the server saw them."""


class Recorder(trio.abc.Channel[Envelope]):
    """The server's end of a connection, with a copy of every message."""

    def __init__(self, channel: trio.abc.Channel[Envelope], traffic: Traffic) -> None:
        self._channel = channel
        self._traffic = traffic

    async def send(self, value: Envelope) -> None:
        await self._channel.send(value)
        self._note("server", value)

    async def receive(self) -> Envelope:
        envelope = await self._channel.receive()
        self._note("client", envelope)
        return envelope

    async def aclose(self) -> None:
        await self._channel.aclose()

    def _note(self, sender: Sender, envelope: Envelope) -> None:
        assert not isinstance(envelope.message, Malformed), envelope
        self._traffic.append((sender, json.loads(dump(envelope.message))))


class Recorded:
    """A server whose connections are recorded; connect to it as to the server itself."""

    def __init__(self, server: Server) -> None:
        self.traffic: Traffic = []
        self._server = server

    async def serve_channel(self, channel: trio.abc.Channel[Envelope]) -> None:
        await self._server.serve_channel(Recorder(channel, self.traffic))
