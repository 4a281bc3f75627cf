"""Speaking to a host and a server of different eras: a session for the host, whose routes call the server as a client.

What passes is what the messages mean: lists, calls, prompts, resources, completion, progress, log messages, changes, and the
questions of the server. Unknown members survive as in any model. Requests of the host that no revision has are forwarded as they
are, and such notifications of either side; such a request of the server is rejected, since a modern host takes none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass

import trio

from ..protocol.codec.models import validated
from ..protocol.jsonrpc import ErrorResponse, RequestId, Response
from ..session import (
    Envelope,
    MessageChannel,
    Received,
    Sent,
    ServerSession,
    make_session,
    open_service,
)
from ..session.pump import CLEAN_UP
from ..session.service import Offers
from ..types import (
    ClientCapabilities,
    Implementation,
    JsonValue,
)
from .answers import Answers
from .bindings import Bindings
from .host_links import Followed
from .offers import host_of
from .questions import Questions
from .server_client import ServerClient


@dataclass(eq=False)
class Translation:
    """A host's session, and the client of the server behind it.

    Attributes:
        session: the host's.
    """

    session: ServerSession
    _channel: WatchedChannel

    async def wait_lost(self) -> None:
        """Wait until the server has gone, and the requests that ran there have their errors."""
        await self._channel.lost.wait()
        with trio.move_on_after(CLEAN_UP):
            await self.session.requests.wait_none_left()


@asynccontextmanager
async def open_translation(
    channel: MessageChannel,
    is_late: Callable[[RequestId | None], bool],
    mode: str,
    answers: Answers,
    caller: Hashable | None,
    bindings: Bindings,
    capabilities: JsonValue,
    info: JsonValue,
    *,
    shared_channel: bool,
    name: str,
) -> AsyncIterator[Translation]:
    """Open a session for a host over a connection to a server of the other era; the channel stays open at the end.

    Args:
        caller: what answers to questions of no known call count for, see `Quota`.
        is_late: whether an id is that of a request which found out the server's era; its answer may still come.
        mode: the server's era, as `Client.connect` takes it.
        capabilities, info: what the host declared, and who it is.
        name: what errors call the server.

    Raises:
        McpError: the server did not open a session, or the host's declarations are malformed.
    """
    questions = Questions(answers, host_of(capabilities), caller, several_hosts=not shared_channel)
    added = answers.backfill.offers.added_to(capabilities)
    declared = validated(ClientCapabilities, capabilities if added is None else added, "capabilities")
    watched = WatchedChannel(channel, is_late)
    known = validated(Implementation, info, "clientInfo") if info else None
    client = ServerClient(
        nullcontext(watched), questions, declared, known, bindings, mode=mode, name=name, passes_unknown=True
    )
    link = client.link
    await link.open()
    try:
        facts = link.facts
        offers = Offers(
            client.routes(),
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
            yield Translation(session, watched)
    finally:
        await link.aclose()  # noqa: ASYNC102  it is shielded and bounded itself


class WatchedChannel(MessageChannel):
    """A channel that notes its end, and stays open when it is closed.

    Attributes:
        lost: set when nothing more comes.
    """

    def __init__(self, channel: MessageChannel, is_late: Callable[[RequestId | None], bool]) -> None:
        self._channel = channel
        self._is_late = is_late
        self.lost = trio.Event()

    async def send(self, value: Envelope[Sent]) -> None:
        await self._channel.send(value)

    async def send_many(self, values: Sequence[Envelope[Sent]]) -> None:
        await self._channel.send_many(values)

    async def receive(self) -> Envelope[Received]:
        raise NotImplementedError("a session uses receive_many")

    async def receive_many(self) -> Iterable[Envelope[Received]]:
        try:
            received = await self._channel.receive_many()
        except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError):
            self.lost.set()
            raise
        return (envelope for envelope in received if not self._answers_late(envelope.message))

    def _answers_late(self, message: Received) -> bool:
        return isinstance(message, Response | ErrorResponse) and self._is_late(message.id)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    @property
    def close_reason(self) -> str | None:
        return self._channel.close_reason
