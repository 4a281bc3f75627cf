"""The proxy as transports serve it: in place of a server, with a relayed session for each host."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from copy import copy
from functools import partial
from typing import Final, Self

import trio

from ..base.checks import check_int
from ..base.logs import peer_logger
from ..errors import AuthorizationError
from ..http.open_access import Behind
from ..protocol.sealing.request_state import KeyRing
from ..server.options import check_service
from ..server.running import tree_on_signal
from ..session import (
    AnyChannel,
    Service,
    ServiceOptions,
    as_message_channel,
    open_service,
    serve_channel,
)
from ..session.calls.services import CallOffers
from ..session.event_loop import check_event_loop
from ..session.service import Offers
from ..session.transport import ServerFacts
from ..types import Implementation, ServerCapabilities
from .answers import Answers, Backfill
from .bindings import Bindings, audience_of
from .session import Connect, RelaySession

logger = peer_logger("trio_mcp.relay")

NAME = "trio-mcp backfill"
NOTHING_KNOWN: Final = Behind()
MAX_SESSIONS: Final = 100
"""Sessions of a proxy with several hosts: for each it may start a process."""


EXIT_SECONDS: Final = 5.0
"""Seconds that a shutdown may take longer: a server that ignores the end of its stdin, and SIGTERM, is killed after four."""


class RelayServer:
    """A proxy in front of one MCP server; transports serve it as they serve a `Server`.

    Args:
        connect: opens a connection to the server; called for each host.
        backfill: what the proxy answers for a host that cannot.
        options: limits, times and keys of the service.
        max_sessions: how many sessions, each with its own connection to the server, and how many WebSockets a transport with
            several hosts may open, unless the limits of the transport are set.
        name: of the server, for errors.
        keeps_session: whether a legacy host on a single channel keeps its session, in a new session of the server, when the
            server has lost the old one. The connection must reconnect by itself.
        behind: what is known about the server; decides whether the proxy may be served without authentication.
        leads_to: the server, as `words_of` returns it. Proxies with another name or server have different principals.

    Raises:
        TypeError, ValueError: an option is invalid.

    Attributes:
        failure: why the server was lost while a host on a single channel was connected; None if it was not.
    """

    def __init__(
        self,
        connect: Connect,
        backfill: Backfill,
        options: ServiceOptions | None = None,
        *,
        max_sessions: int = MAX_SESSIONS,
        name: str | None = None,
        keeps_session: bool = False,
        behind: Behind = NOTHING_KNOWN,
        leads_to: Sequence[str] = (),
    ) -> None:
        self.behind = behind
        self._leads_to = leads_to
        self._keeps_session = keeps_session
        self.max_sessions = check_int("max_sessions", max_sessions, least=1)
        self.identity = Implementation(name=name or NAME, version="0")
        self._server_name = "the server" if name is None else f"the server {name!r}"
        self.options = ServiceOptions() if options is None else check_service(options)
        self.failure: str | AuthorizationError | None = None
        self._connect = connect
        self._answers = Answers(backfill)
        self._ring: KeyRing | None = None

    async def serve_channel(self, channel: AnyChannel) -> None:
        """Relay one connection; return when either side has ended it.

        Raises:
            ConfigurationError: the keys of the environment are wrong.
            OSError: the server could not be started or reached; nothing was sent to the host.
        """
        host = as_message_channel(channel)
        check_event_loop()
        self._bound()
        # First: a server that cannot be started is an error of who started the proxy, and not of a host.
        async with self._connect() as server:
            opened = self._open(lambda: nullcontext(server), self._on_lost, one_of_several=False)
            async with opened as service:
                await serve_channel(service, host)

    @asynccontextmanager
    async def open_service(self) -> AsyncIterator[Service]:
        """Open the service with which a transport serves hosts over several connections, each with its own to the server."""
        check_event_loop()
        async with self._open(self._connect, lambda _why: None, one_of_several=True) as service:
            yield service

    @asynccontextmanager
    async def _open(
        self, connect: Connect, on_lost: Callable[[str | AuthorizationError], None], *, one_of_several: bool
    ) -> AsyncIterator[Service]:
        bindings = self._bound()
        async with trio.open_nursery() as nursery:
            offers = Offers(CallOffers({}), self.identity, ServerCapabilities())
            async with open_service(offers, self.options) as service:
                service.session_type = partial(
                    RelaySession,
                    self._answers,
                    bindings,
                    connect,
                    nursery.start_soon,
                    on_lost,
                    self._server_name,
                    self._keeps_session and not one_of_several,
                    self.max_sessions,
                )
                with tree_on_signal(service):
                    yield service
            nursery.cancel_scope.cancel()

    def copy(self, *, options: ServiceOptions) -> Self:
        """Return a proxy of the same server with other limits, times and keys."""
        other = copy(self)
        other.options = check_service(options)
        other._ring = None  # noqa: SLF001  it is of this class
        return other

    def _bound(self, outer: Sequence[str] = ()) -> Bindings:
        """Return what binds messages to principals, with the keys of all services of this proxy.

        Args:
            outer: the names of the servers in which it is mounted, and whose principals they are.

        Raises:
            ConfigurationError: the keys of the environment are wrong.
        """
        if self._ring is None:
            self._ring = self.options.keys or KeyRing.from_environment() or KeyRing.random()
        return Bindings(self._ring, audience_of(self.identity.name, self._leads_to, outer))

    def _facts(self) -> ServerFacts:
        return ServerFacts(lifespan_seconds=EXIT_SECONDS)

    def _on_lost(self, why: str | AuthorizationError) -> None:
        self.failure = why

    def __repr__(self) -> str:
        return f"<RelayServer {self._answers.backfill.offers}>"
