"""What a transport offers: to serve a server to its peers, and to connect to one. Both speak channels of envelopes.

A transport is found by name through the entry-point group `trio_mcp.transports`; the core imports none of them.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from socket import socket
from typing import Final, Literal, Never, Protocol, TypeAlias, cast

from ..base.checks import keyword_names, nearest
from ..types import Implementation
from .channel import AnyChannel
from .options import ServiceOptions
from .service import Service

GROUP = "trio_mcp.transports"
BUILT_IN = ("stdio", "http", "websocket", "memory")
"""Those that a wrong option may have been meant for; `sse` has those of `http`, for which it is the older form."""

OTHER_NAMES: Final[Mapping[str, str]] = {
    "in-memory": "memory",
    "streamable-http": "http",
    "streamable_http": "http",
    "ws": "websocket",
}
"""The transports that have the name of another library's."""

OWNS_PROCESS: Final = ContextVar("OWNS_PROCESS", default=False)
"""Whether the process exists to serve: the time that a shutdown may take then covers the end of the interpreter, too."""


class CannotListen(OSError):
    """The address to listen on is in use or not local; the text says which."""


@contextmanager
def owned_process() -> Generator[None]:
    """Set `OWNS_PROCESS` in the block, if that is in the main thread."""
    before = OWNS_PROCESS.set(threading.current_thread() is threading.main_thread())
    try:
        yield
    finally:
        OWNS_PROCESS.reset(before)


HeaderSource: TypeAlias = Mapping[str, str] | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""The headers of a client, or a plain or async function that returns them."""


class RequestCredentials(Protocol):
    """The credentials of one request, and of its repetitions."""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers to send now; none if there are no credentials yet. Raises `AuthorizationError`."""
        ...

    async def retry(self, status: int, headers: Mapping[str, str], /) -> bool:
        """Return whether the response with this status and these headers is to be replaced by that to another attempt.

        It may log in first. Raises `AuthorizationError` if the server accepts no credentials.
        """
        ...


class ServerCredentials(Protocol):
    """The credentials for one server, while a channel to it is open."""

    async def ready(self) -> bool:
        """Return whether there are credentials that are probably accepted. Raises `AuthorizationError`."""
        ...

    def attempts(self, method: str, url: str, /) -> RequestCredentials:
        """Return the credentials for a request."""
        ...


class ClientAuth(Protocol):
    """How a client authenticates: what `OAuth` and the other settings of `trio_mcp.auth` are."""

    def open(self, url: str, /) -> AbstractAsyncContextManager[ServerCredentials]:
        """Return a context manager with the credentials for the server at a URL."""
        ...


class HttpAuth(Protocol):
    """How requests of httpx2 authenticate; `httpx2.Auth` implements it."""

    def async_auth_flow(self, request: Never, /) -> AsyncGenerator[object, Never]:
        """Yield requests, and receive responses."""
        ...


TokenSource: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""A bearer token, or a plain or async function that returns one."""

AnyAuth: TypeAlias = ClientAuth | TokenSource | HttpAuth
"""The values of `auth=`."""


class ChannelServer(Protocol):
    """The interface through which a transport serves a connection; `Server` implements it."""

    async def serve_channel(self, channel: AnyChannel, /) -> None:
        """Serve one connection; return when the channel has ended and its calls have cleaned up."""


class SharedServer(ChannelServer, Protocol):
    """The interface through which a transport serves many connections at once; `Server` and proxies implement it."""

    @property
    def identity(self) -> Implementation:
        """Its name, for what people read."""
        ...

    @property
    def options(self) -> ServiceOptions:
        """How its service runs."""
        ...

    def open_service(self) -> AbstractAsyncContextManager[Service]:
        """Open the service that all connections share."""
        ...


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ServerFacts:
    """What the rest of this library knows of a server, and its users do not; the defaults are for one of another project.

    Attributes:
        lifespan_seconds: how long its end may take, beyond what a shutdown always has.
        on_asyncio: whether its async functions run on asyncio, `authenticate` of a serving call too.
        mounted: the servers that are mounted in it.
        scopes_by_item: returns the scopes of what needs some, by its name.
    """

    lifespan_seconds: float = 0.0
    on_asyncio: bool = False
    mounted: Sequence[object] = ()
    scopes_by_item: Callable[[], Mapping[str, frozenset[str]]] = dict


def facts_of(server: object) -> ServerFacts:
    """Return what this library knows of a server, of which it may know nothing."""
    # Of the class: an object may have every attribute, such as one that calls a remote procedure.
    make = getattr(type(server), "_facts", None)
    found: object = None if make is None else make(server)
    return found if isinstance(found, ServerFacts) else ServerFacts()


def authenticates(server: object) -> bool:
    """Return whether a server says of itself that it authenticates its callers wherever it is served over HTTP."""
    return getattr(getattr(server, "http", None), "authenticate", None) is not None


def required_scopes(server: object) -> frozenset[str]:
    """Return the scopes that every request over HTTP needs, as a server says of itself."""
    found: frozenset[str] = getattr(
        getattr(getattr(server, "http", None), "authenticate", None), "required", frozenset()
    )
    return found


class Transport(Protocol):
    """One way to carry messages. The options differ from transport to transport, so each documents its own."""

    @property
    def serve(self) -> Callable[..., Awaitable[None]]:
        """`await serve(server, **options)` serves a `ChannelServer` until its peers have disconnected or it is stopped."""
        ...

    @property
    def connect(self) -> Callable[..., AbstractAsyncContextManager[AnyChannel]]:
        """`async with connect(target, **options) as channel` opens a connection, and closes it on every way out."""
        ...


class ListeningTransport(Transport, Protocol):
    """A transport whose servers may share the sockets that they listen on."""

    @property
    def listen(self) -> Callable[[str, int], Awaitable[list[socket]]]:
        """`await listen(host, port)` returns sockets that listen. Raises `CannotListen`."""
        ...


def find_transport(name: str) -> Transport:
    """Return the transport with this name, from the entry-point group `trio_mcp.transports`.

    Raises:
        LookupError: none is installed under that name; the message lists those that are.
    """
    entry = built_in(name)
    if entry is None:
        found = entry_points(group=GROUP)
        if name not in found.names:
            meant = f"do you mean {OTHER_NAMES[name]!r}?" if name in OTHER_NAMES else nearest(name, found.names)
            advice = f": {meant} There are" if meant else "; there are"
            known = ", ".join(sorted(found.names)) or "none"
            raise LookupError(f"no transport {name!r} is installed{advice}: {known}")
        entry = found[name]
    return cast("Transport", entry.load())


def check_options(
    name: str, end: Literal["serve", "connect"], options: Mapping[str, object], caller: Iterable[str] = ()
) -> None:
    """Raise for options that this end of the transport does not have.

    Args:
        caller: the options of the function that passes the others on.

    Raises:
        TypeError: there is such an option; the message says which transport has it, or suggests the nearest name, and says which
            options this transport has.
    """
    known = () if not options else options_of(name, end)
    for option in options:
        if known is None or option in known:
            continue
        others = [other for other in BUILT_IN if other != name and option in (options_of(other, end) or ())]
        has = f"{name} has {listed(known)}"
        if others:
            hint = f': run("{others[0]}", {option}=...)' if end == "serve" else ""
            raise TypeError(f"{option}= is an option of the transport {' and '.join(others)}{hint}; {has}")
        near = nearest(option, (*known, *caller))
        raise TypeError(f"no transport has the option {option}=; {near}{' ' if near else ''}{has}")


def options_of(name: str, end: Literal["serve", "connect"]) -> Sequence[str] | None:
    """What may be said to a transport at one of its ends; None: anything, or it is not installed."""
    try:
        transport = find_transport(name)
        function = transport.serve if end == "serve" else transport.connect  # loads its module
    except (LookupError, ImportError):
        return None
    return keyword_names(function)


def listed(options: Sequence[str]) -> str:
    """For people; `task_status` is Trio's."""
    return ", ".join(option for option in options if option != "task_status") or "none"


def built_in(name: str) -> EntryPoint | None:
    """One of this distribution's own, which are looked for first: reading what every distribution offers takes longer."""
    try:
        own = distribution("trio-mcp").entry_points
    except PackageNotFoundError:
        return None
    return next((entry for entry in own if entry.group == GROUP and entry.name == name), None)
