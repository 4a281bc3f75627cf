"""Speaking to a host and a server of different eras: a session for the host, whose routes call the server as a client.

What passes is what the messages mean: lists, calls, prompts, resources, completion, progress, log messages, changes, and the
questions of the server. Unknown members survive as in any model. Requests of the host that no revision has are forwarded as they
are, and such notifications of either side; such a request of the server is rejected, since a modern host takes none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Final

import trio

from ..protocol.codec.models import validated
from ..protocol.jsonrpc import INVALID_REQUEST, ErrorDetail, ErrorResponse, Request, Unanswered
from ..runtime import Outbox
from ..session import Envelope, MessageChannel, Received, Sent, ServerSession, make_session, open_service
from ..session.calls.services import CallOffers
from ..session.channel import OVER_PIPE
from ..session.service import Offers
from ..types import ClientCapabilities, Implementation, JsonValue
from .answers import Answers
from .bindings import Bindings
from .host_links import Followed
from .offers import host_of
from .questions import Questions
from .server_client import ServerClient

MAX_EARLY: Final = 100
"""Messages of a server that are kept until its host has sent something."""
MAX_EARLY_BYTES: Final = 1024 * 1024
EXIT_NEWS: Final = 1.0
"""Seconds in which the system tells how a server's process has ended, for the error."""


@asynccontextmanager
async def open_translation(
    channel: WatchedChannel,
    last_id: int,
    mode: str,
    answers: Answers,
    caller: Hashable | None,
    bindings: Bindings,
    capabilities: JsonValue,
    info: JsonValue,
    *,
    shared_channel: bool,
    name: str,
) -> AsyncIterator[ServerSession]:
    """Open a session for a host over a connection to a server of the other era; the channel stays open at the end.

    Args:
        caller: what answers to questions of no known call count for, see `Quota`.
        last_id: of the requests that found out the server's era, whose answers may still come.
        mode: the server's era, as `Client.connect` takes it.
        capabilities, info: what the host declared, and who it is.
        name: what errors call the server.

    Raises:
        McpError: the server did not open a session, or the host's declarations are malformed.
    """
    host = host_of(capabilities)
    questions = Questions(answers, host, caller, several_hosts=not shared_channel)
    added = answers.backfill.offers.added_to(capabilities, host)
    declared = validated(ClientCapabilities, capabilities if added is None else added, "capabilities")
    known = validated(Implementation, info, "clientInfo") if info else None
    client = ServerClient(
        nullcontext(channel),
        questions,
        declared,
        known,
        bindings,
        mode=mode,
        name=name,
        passes_unknown=True,
        last_id=last_id,
    )
    link = client.link
    await link.open()
    try:
        facts = link.facts
        offers = Offers(
            CallOffers(client.routes()),
            identity=facts.info or Implementation(name="unnamed", version="0"),
            capabilities=facts.capabilities,
            instructions=facts.instructions,
            followers=[Followed(lambda: [client])],
            unknown=client.unknown,
        )
        async with open_service(offers) as service:
            client.announce = service.subscriptions.announce
            client.watch_lists()
            session = make_session(service, shared_channel=shared_channel)
            # Hosts that share a session over HTTP have no stream outside of their calls: there it is dropped.
            client.notify_host = session.notify
            yield session
    finally:
        await link.aclose()  # noqa: ASYNC102  it is shielded and bounded itself


def too_early(request: Request) -> ErrorResponse:
    """Return the answer to a request of a server before its session is open."""
    why = f"{request.method} came while no session is open"
    return ErrorResponse(request.id, ErrorDetail(INVALID_REQUEST, why))


class WatchedChannel(MessageChannel):
    """The connection to a server, as the links of one host use it one after the other: it stays open when one closes it.

    Args:
        reader: the channel of the host, if it has only one: while it is full, nothing is read.

    Attributes:
        lost: set when nothing more comes.
        why: the reason.
    """

    def __init__(self, channel: MessageChannel, reader: Outbox[Envelope] | None) -> None:
        self._channel = channel
        self._reader = reader
        self._early: list[Envelope[Received]] = []
        """What the server has sent before its first request."""
        self._early_bytes = 0
        self.has_session = False
        """A session is open that ends with the connection."""
        self.lost = trio.Event()
        self.why: str | None = None
        self.network, self.in_process = channel.network, channel.in_process
        self.raised = channel.raised

    @property
    def is_private(self) -> bool:
        """Whether it leads to a process, or a server in this one, that serves nothing else."""
        return self.in_process or self.network == OVER_PIPE

    async def read_early(self, scope: trio.CancelScope) -> None:
        """Read what comes before the server has got anything, until the connection ends; then cancel the scope."""
        try:
            while True:
                for envelope in await self._received():
                    if isinstance(envelope.message, Request):
                        await self.send(Envelope(too_early(envelope.message)))
                    elif len(self._early) < MAX_EARLY and self._early_bytes + envelope.size <= MAX_EARLY_BYTES:
                        self._early.append(envelope)
                        self._early_bytes += envelope.size
        except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError):
            scope.cancel()

    async def send(self, value: Envelope[Sent]) -> None:
        await self._channel.send(value)

    async def send_many(self, values: Sequence[Envelope[Sent]]) -> None:
        await self._channel.send_many(values)

    async def receive(self) -> Envelope[Received]:
        raise NotImplementedError("a session uses receive_many")

    async def receive_many(self) -> Iterable[Envelope[Received]]:
        early, self._early, self._early_bytes = self._early, [], 0
        if early:
            await trio.lowlevel.checkpoint()
            return early
        if self._reader is not None and self._reader.is_full:
            await self._reader.wait_not_full()
        return await self._received()

    async def _received(self) -> Iterable[Envelope[Received]]:
        try:
            received = await self._channel.receive_many()
        except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            await self._wait_news()  # noqa: ASYNC120  a cancel ends the relay, as this error does
            broke = None if isinstance(error, trio.EndOfChannel) else f"the connection broke: {error}"
            self.end(self._channel.close_reason or broke or "it closed the connection")
            raise
        return self._watched(received) if self.has_session else received

    def _watched(self, received: Iterable[Envelope[Received]]) -> Iterator[Envelope[Received]]:
        for envelope in received:
            match envelope.message:
                case Unanswered(None, why) as news if news.session_lost or news.connection_lost:
                    self.end(why)
                case _:
                    yield envelope

    async def _wait_news(self) -> None:
        """The end of a pipe comes before the news how its process has ended."""
        with trio.move_on_after(EXIT_NEWS):
            while self._channel.close_reason is None and self.network == OVER_PIPE:  # noqa: ASYNC110
                await trio.sleep(0.01)

    def end(self, why: str) -> None:
        """Note that the connection has ended, or the session that lasts as long."""
        self.why = self.why or why
        self.lost.set()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    @property
    def close_reason(self) -> str | None:
        return self._channel.close_reason
