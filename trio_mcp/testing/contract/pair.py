"""A served contract server and the ways to reach it, as a rule is given them."""

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
    """What a rule is held against.

    Attributes:
        stage: where the tools of the server make marks and wait at gates.
        revision: the one to speak.
    """

    def __init__(self, maker: Maker, endpoint: Endpoint, stage: Stage, revision: str) -> None:
        self.maker = maker
        self.endpoint = endpoint
        self.stage = stage
        self.revision = revision

    @asynccontextmanager
    async def peer(self, capabilities: JsonObject = EVERYTHING) -> AsyncIterator[Peer]:
        """A connection that says what the rule tells it to, after the handshake where there is one."""
        async with self.endpoint.connect() as channel, opened(channel, self.revision, capabilities) as peer:
            yield peer

    @asynccontextmanager
    async def unopened(self, capabilities: JsonObject = EVERYTHING) -> AsyncIterator[Peer]:
        """A connection on which nothing has been said yet."""
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
        """A connection of our own client, speaking the revision of this pair."""
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
        """The error that answers these bytes, sent in the place of a message. Only with `Trait.TEXT`."""
        with trio.fail_after(BOUND):
            at_once = await self.endpoint.send_bytes(peer.channel, data)
        answer: JsonObject = json.loads(at_once) if at_once else await peer.first(lambda message: "error" in message)
        error = answer["error"]
        assert isinstance(error, dict)
        return error

    async def cut(self) -> None:
        """Lose every connection without a word of farewell."""
        with trio.fail_after(BOUND):
            await self.endpoint.cut()

    async def stop(self, seconds: float) -> None:
        """Shut the server down in order; calls that run have so long to end."""
        with trio.fail_after(BOUND):
            await self.endpoint.stop(seconds)
