"""The connections of a mounted proxy to its server: one for each host, since each host has its own user and capabilities.

a legacy session                             a separate connection
modern requests over one pipe or WebSocket   one for all of them
modern requests over HTTP                    one for each principal; without principals, one for all hosts that declare the same
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import trio

from ..base.groups import single_exception
from ..base.logs import peer_logger
from ..base.named_tuples import NamedTuple
from ..base.shared_limits import FOLLOWED_RESOURCES, HOST_CONNECTIONS
from ..errors import LimitExceeded, RemoteProtocolError
from ..protocol.jsonrpc import INTERNAL_ERROR
from ..runtime.quota import Quota, add_to
from ..session import AnyChannel, Call
from ..session.calls.facts import SessionFacts
from ..session.subscriptions import Change
from ..types import ClientCapabilities, Implementation, Tool
from .answers import Answers, Backfill
from .bindings import Bindings
from .offers import host_of
from .questions import Questions
from .server_client import ServerClient

# The resources that a proxy subscribes to at its server, each once, for as long as a host subscribes to it.


class Followed:
    """The `Follower` of one server behind a proxy.

    A resource counts once, for the caller that has subscribed to it first; when that one leaves, for the next.

    Args:
        clients: returns the connections that are open. All of them subscribe, since a process reports only its own changes.
    """

    def __init__(self, clients: Callable[[], Iterable[ServerClient]]) -> None:
        self._clients = clients
        self._quota = Quota(FOLLOWED_RESOURCES)
        self._callers: dict[str, dict[Hashable | None, int]] = {}
        """How many subscriptions each caller has, by URI; the first caller counts."""

    def watch(self, uri: str, caller: Hashable | None, /) -> None:
        """Count one more subscription of a caller; the first of all subscribes at the server.

        Raises:
            LimitExceeded: there are as many resources as there may be, or the caller has its share of them.
        """
        callers = self._callers.get(uri)
        if callers is None:
            self._quota.take(caller)
            callers = self._callers[uri] = {}
            for client in self._clients():
                client.watch(uri)
        add_to(callers, caller, 1)

    def unwatch(self, uri: str, caller: Hashable | None, /) -> None:
        """Count one less; the last of all ends the subscription at the server."""
        callers = self._callers.get(uri, {})
        if caller not in callers:
            return
        counted = next(iter(callers))
        add_to(callers, caller, -1)
        if not callers:
            del self._callers[uri]
            self._quota.give_back(counted)
            for client in self._clients():
                client.unwatch(uri)
        elif counted not in callers:
            self._quota.give_back(counted)
            self._quota.add(next(iter(callers)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._callers)

    def __repr__(self) -> str:
        return f"<Followed {len(self._callers)} resources>"


logger = peer_logger("trio_mcp.relay")

IDLE_SECONDS: Final = 300.0
"""How long a connection is kept that no call uses; that of a legacy session is kept until the session has ended."""

OnChange = Callable[[ServerClient | None, Change], None]
"""Gets the client that was notified; None if it is that of one principal, whose lists are not for others."""
Connect = Callable[[], AbstractAsyncContextManager[AnyChannel]]
"""Opens a connection to the server."""


class HostKey(NamedTuple):
    """The identity of a host: what tells it apart from others, and what is declared to the server for it.

    Attributes:
        session: the legacy session; None for modern requests.
        connection: of modern requests that share one; None over HTTP.
        principal: of the caller.
        capabilities, info: what the host declares, and who it is, as JSON.
    """

    session: SessionFacts | None
    connection: Hashable
    principal: str | None
    capabilities: bytes
    info: bytes

    @property
    def has_ended(self) -> bool:
        """Whether the session of the host has ended."""
        return self.session is not None and self.session.notify is None


def key_of(call: Call) -> HostKey:
    """Return the host of a call."""
    facts = call.facts
    info = b"" if facts.client_info is None else facts.client_info.encode()
    connection: Hashable = None
    if facts.session is None and not facts.own_headers and call.actor.account is not None:
        connection = call.actor.account.connection
    session = None if facts.session is None else facts.session.facts
    return HostKey(session, connection, facts.principal, facts.client_capabilities.encode(), info)


@dataclass(eq=False)
class HostLink:
    """The connection for one host.

    Attributes:
        caller: whose host it is, for the limits that callers share; see `Account`.
        client: None while it is not open.
        version: the revision that the server spoke when it was opened; None if that was not known.
        users: the calls that use it.
        opening: held by the call that opens it.
        unused: set when no call uses it any more.
    """

    caller: Hashable | None
    client: ServerClient | None = None
    version: str | None = None
    users: int = 0
    opening: trio.Lock = field(default_factory=trio.Lock)
    unused: trio.Event = field(default_factory=trio.Event)


class HostLinks:
    """The connections of one mounted proxy, while its outer server is served.

    Args:
        connect: opens one.
        name: of the server, for errors.
        nursery: closes those that no host needs any more.
        limit: how many there may be.
        on_change: called with what the server reports on any of them.
        bindings: for hosts with a principal.

    Attributes:
        followed: the resources that hosts subscribe to.
        tools: those of the server, whose calls may need headers.
        version: the revision that the server speaks; None before that is known.
    """

    def __init__(
        self, connect: Connect, name: str, nursery: trio.Nursery, limit: int, on_change: OnChange, bindings: Bindings
    ) -> None:
        self._connect = connect
        self._name = name
        self._nursery = nursery
        self._limit = limit
        self._on_change = on_change
        self._bindings = bindings
        self._links: dict[HostKey, HostLink] = {}
        self.followed = Followed(self._clients)
        self.tools: list[Tool] = []
        self.version: str | None = None

    @asynccontextmanager
    async def client_for(self, call: Call) -> AsyncIterator[ServerClient]:
        """Hold the client for the host of a call in the block.

        Raises:
            LimitExceeded: there are as many connections as there may be, and calls use all of them.
            RemoteProtocolError: -32603, the server cannot be reached; the message names it.
        """
        key = key_of(call)
        link = self._links.get(key)
        if link is None:
            self._make_room(call.actor.caller)
            link = self._links[key] = HostLink(call.actor.caller)
            self._nursery.start_soon(self._close_in_time, key, link)
        link.users += 1
        try:
            async with link.opening:
                client = link.client
                if client is None or not client.link.is_connected or self._is_outdated(link):
                    link.client, link.version = None, self.version
                    client = link.client = await self._opened(call, key, client)
            yield client
        finally:
            link.users -= 1
            if not link.users:
                link.unused.set()

    def make_client(
        self,
        declared: ClientCapabilities,
        info: Implementation | None,
        *,
        several_hosts: bool = False,
        for_principal: bool = False,
    ) -> ServerClient:
        """Return a client that is not open."""
        questions = Questions(Answers(Backfill()), host_of(declared.wire()), several_hosts=several_hosts)
        client = ServerClient(
            self._connect(), questions, declared, info, self._bindings, name=f"the server {self._name!r}"
        )
        client.announce = partial(self._on_change, None if for_principal else client)
        return client

    async def learn(self, tools: list[Tool]) -> None:
        """Let all clients know the tools of the server."""
        # First: a client that is being opened learns these before it is used.
        self.tools = tools
        for client in self._clients():
            await client.learn_in_steps(tools)

    def watch_all(self, client: ServerClient) -> None:
        """Subscribe a client to the resources that hosts have subscribed to."""
        for uri in self.followed:
            client.watch(uri)

    async def _opened(self, call: Call, key: HostKey, before: ServerClient | None) -> ServerClient:
        """Open a client for the host of a call.

        Args:
            before: the client whose connection has ended.
        """
        if before is not None:
            await close(before)
        facts = call.facts
        several = key.session is None and key.principal is None and facts.own_headers
        client = self.make_client(
            facts.client_capabilities,
            facts.client_info,
            several_hosts=several,
            for_principal=key.principal is not None,
        )
        try:
            await client.link.open()
        except Exception as error:  # noqa: BLE001  whatever a transport raises is an error of this call
            failure = single_exception(error)
            logger.info("the server %r could not be reached: %s", self._name, failure)
            text = f"the server {self._name!r} cannot be reached: {failure}"
            raise RemoteProtocolError(text, code=INTERNAL_ERROR) from None
        try:
            await self._let_learn(client)
            client.watch_lists()
            self.watch_all(client)
        except BaseException:
            # It is in no link yet.
            await close(client)  # noqa: ASYNC102  it is shielded and bounded itself
            raise
        return client

    async def _let_learn(self, client: ServerClient) -> None:
        """Let a client that is in no link yet know the tools of the server."""
        learned: list[Tool] | None = None
        # `learn` passes over it, and other tasks run between the steps.
        while learned is not self.tools:
            learned = self.tools
            await client.learn_in_steps(learned)

    def _is_outdated(self, link: HostLink) -> bool:
        """Return whether the server speaks another revision now, and no other call uses the connection."""
        return link.users == 1 and link.version is not None and link.version != self.version

    def _clients(self) -> list[ServerClient]:
        found = [link.client for link in self._links.values()]
        return [client for client in found if client is not None and client.link.is_connected]

    def _make_room(self, caller: Hashable | None) -> None:
        """Give up a connection that no call uses, if there are too many; raise `LimitExceeded` if there is none.

        If the caller has reached its share, only the caller's connections are considered.
        """
        # Counted now: there are few, and a new one costs a process or a handshake.
        quota = Quota(HOST_CONNECTIONS, self._limit)
        for link in self._links.values():
            quota.add(link.caller)
        refusal = quota.refusal(caller)
        if refusal is None:
            return
        own = quota.own_refusal(caller) is not None
        links = [(key, link) for key, link in self._links.items() if link.caller == caller or not own]
        idle = [(key, link) for key, link in links if not link.users]
        if not idle:
            raise LimitExceeded(f"the server {self._name!r} cannot be reached for you: {refusal}")
        key, link = min(idle, key=lambda pair: not pair[0].has_ended)
        del self._links[key]
        link.unused.set()

    async def _close_in_time(self, key: HostKey, link: HostLink) -> None:
        """Close a connection when its host has left, or no call has used it for `IDLE_SECONDS`; or at the end of all."""
        try:
            while self._links.get(key) is link:
                await link.unused.wait()
                link.unused = trio.Event()
                with trio.move_on_after(IDLE_SECONDS):
                    await link.unused.wait()
                    continue
                if not link.users and (key.session is None or key.has_ended):
                    del self._links[key]
                elif not link.users:
                    link.unused.set()
        finally:
            if self._links.get(key) is link:
                del self._links[key]
            if link.client is not None:
                await close(link.client)  # noqa: ASYNC102  it is shielded and bounded itself


async def close(client: ServerClient) -> None:
    """Close a client. What a server in this process raises at its end is logged."""
    try:
        await client.link.aclose()
    except Exception as error:  # noqa: BLE001  there is no call left to raise it in
        logger.warning("the server of a proxy failed at its end: %s", error)
