"""A served contract server and the ways to connect to it: the argument of every rule."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from ...client import Client, ClientOptions, Handlers, OnElicit, OnRoots, OnSample
from ...client.changes import OnChange
from ...client.handlers import OnLog
from ...types import Implementation, JsonObject
from .makers import Endpoint, Maker
from .peer import EVERYTHING, Peer, opened
from .stage import BOUND, Stage


class Pair:
    """A served contract server, to which a rule connects as a client.

    Attributes:
        stage: where the tools of the server make marks and wait at gates.
        revision: the revision that connections use.
    """

    def __init__(self, maker: Maker, endpoint: Endpoint, stage: Stage, revision: str) -> None:
        self.maker = maker
        self.endpoint = endpoint
        self.stage = stage
        self.revision = revision

    @asynccontextmanager
    async def peer(self, capabilities: JsonObject = EVERYTHING) -> AsyncIterator[Peer]:
        """Connect, perform the handshake of a legacy revision, and give the rule a peer to send messages with."""
        async with self.endpoint.connect() as channel, opened(channel, self.revision, capabilities) as peer:
            yield peer

    @asynccontextmanager
    async def unopened(self, capabilities: JsonObject = EVERYTHING) -> AsyncIterator[Peer]:
        """Connect, and give the rule a peer that has sent nothing yet."""
        async with self.endpoint.connect() as channel:
            yield Peer(channel, self.revision, capabilities)

    @asynccontextmanager
    async def client(
        self,
        *,
        on_elicit: OnElicit | None = None,
        on_sample: OnSample | None = None,
        on_roots: OnRoots | None = None,
        on_log: OnLog | None = None,
        on_change: OnChange | None = None,
    ) -> AsyncIterator[Client]:
        """Connect the package's own client, in the revision of this pair."""
        options = ClientOptions(
            handlers=Handlers(on_elicit, on_sample, on_roots),
            on_log=on_log,
            on_change=on_change,
            log_level="debug",
            mode=self.revision,
            info=Implementation(name="contract", version="1"),
            probe_timeout=BOUND,
        )
        client = Client(self.endpoint.connect(), options)
        async with client:
            yield client

    async def refused(self, peer: Peer, data: bytes) -> JsonObject:
        """Send these bytes in place of a message, and return the error that answers them. Only with `Trait.TEXT`."""
        with trio.fail_after(BOUND):
            at_once = await self.endpoint.send_bytes(peer.channel, data)
        answer: JsonObject = json.loads(at_once) if at_once else await peer.first(lambda message: "error" in message)
        error = answer["error"]
        assert isinstance(error, dict)
        return error

    async def cut(self) -> None:
        """Break every open connection without closing it properly."""
        with trio.fail_after(BOUND):
            await self.endpoint.cut()

    async def stop(self, seconds: float) -> None:
        """Shut the server down; running calls have `seconds` to end."""
        with trio.fail_after(BOUND):
            await self.endpoint.stop(seconds)
