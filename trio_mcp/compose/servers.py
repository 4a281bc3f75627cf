"""What a group of clients connects to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Final, Protocol, TypeAlias, runtime_checkable

from ..base.checks import check_instance, mistake
from ..client.changes import OnChange
from ..client.client import Client
from ..client.handlers import OnDisconnect
from ..client.options import ConnectKeywords
from ..mcp_json import CommandServer, HostServer, OAuthClient, UrlServer
from ..session import ChannelServer
from ..session.transport import ClientAuth
from .connection import ServerState
from .member import Member
from .names import ToolFilter, ToolSelection, namespaces

# The keyword arguments of `ClientGroup`, as type checkers see them.

ForServer: TypeAlias = Callable[[str], ConnectKeywords]
"""A function that returns more keyword arguments of `Client.connect` for the server of this name."""

OnState: TypeAlias = Callable[[ServerState], None]
"""A plain function, called with each new state of a server."""


class GroupKeywords(ConnectKeywords, total=False):
    """The keyword arguments of `ClientGroup`, which describes each, and those of `Client.connect`."""

    only: ToolSelection | None
    without: ToolSelection | None
    for_server: ForServer | None
    on_state: OnState | None
    on_change: OnChange | None
    open_timeout: float


OF_GROUPS: Final = GroupKeywords.__optional_keys__ - ConnectKeywords.__optional_keys__
"""The keyword arguments that are not options of each client."""


@runtime_checkable
class TakesClient(Protocol):
    """Settings of a login that can be those of a client in a host's file; `OAuth` implements it."""

    def for_client(self, client: OAuthClient, /) -> ClientAuth:
        """Return the settings with this client, where they name none."""
        ...


Target: TypeAlias = str | Sequence[str] | ChannelServer
"""What `Client.connect` connects to: a URL, a command as a list of arguments, or a server in this process."""


@dataclass(frozen=True, slots=True)
class GroupServer:
    """A server of a `ClientGroup`, with options that the others do not have.

    Args:
        target: what `Client.connect` takes.
        prefix: begins the names of its tools in the group; by default the name of the server. Empty for the names that they have
            at the server.
        only: the tools to use, by the names that they have at the server; all by default.
        without: the tools not to use, in the same way.
        options: keyword arguments of `Client.connect`.
        oauth: the OAuth client that the file of a host names for this server; used where the `auth` of the group names none.
    """

    target: Target
    _: KW_ONLY
    prefix: str | None = None
    only: ToolSelection | None = None
    without: ToolSelection | None = None
    # Not shown: headers and environments hold secrets.
    options: ConnectKeywords = field(default_factory=ConnectKeywords, repr=False)
    oauth: OAuthClient | None = None


AnyGroupServer: TypeAlias = Target | GroupServer | HostServer
"""A server of a group: a target, a target with options, or a server of a host's file."""


def as_group_servers(servers: Mapping[str, AnyGroupServer]) -> dict[str, GroupServer]:
    """Return the servers of a group with their options.

    Raises:
        TypeError: it is not a mapping of names to servers.
    """
    if not isinstance(servers, Mapping):
        raise TypeError(
            mistake("servers", 'a mapping of names to servers, such as {"weather": "https://example.org/mcp"}', servers)
        )
    return {
        check_instance("the name of a server", name, str, "a string"): _made(each) for name, each in servers.items()
    }


def _made(server: AnyGroupServer) -> GroupServer:
    match server:
        case GroupServer():
            return server
        case CommandServer():
            command: ConnectKeywords = {"env": server.env}
            if server.cwd is not None:
                command["cwd"] = server.cwd
            return GroupServer([*server.command], only=server.only, without=server.without, options=command)
        case UrlServer():
            # A server of HTTP+SSE is a legacy one.
            wire: ConnectKeywords = {"mode": "legacy"} if server.wire == "sse" else {}
            options: ConnectKeywords = {**wire, "headers": server.headers}
            return GroupServer(
                server.url, only=server.only, without=server.without, options=options, oauth=server.oauth
            )
        case _:
            return GroupServer(server)


def members_of(
    servers: Mapping[str, GroupServer],
    options: ConnectKeywords,
    for_server: ForServer | None,
    open_timeout: float,
    on_state: OnState,
    on_change: OnChange,
) -> Iterator[Member]:
    """Yield a member of a group for each of its servers.

    Args:
        options: for all servers; what is said of one server wins.
        open_timeout, on_state, on_change: see `Connection`.

    Raises:
        ConfigurationError: two servers have the same prefix.
        TypeError, ValueError: a filter or a prefix is invalid.
    """
    spaces = namespaces({name: server.prefix for name, server in servers.items()})
    for name, server in servers.items():
        more: ConnectKeywords = {} if for_server is None else for_server(name)
        merged: ConnectKeywords = {**_for_server(options, server), **more, **server.options}
        yield Member(
            name,
            f"the server {name!r} of a group",
            partial(_connect, server, merged),
            open_timeout,
            on_state,
            on_change,
            space=spaces[name],
            filter=ToolFilter(server.only, server.without),
        )


def _for_server(options: ConnectKeywords, server: GroupServer) -> ConnectKeywords:
    """Return the options of a group for one of its servers: `auth` only for a URL without credentials."""
    auth = options.get("auth")
    if auth is None:
        return options
    headers = server.options.get("headers")
    has_own = isinstance(headers, Mapping) and any(name.lower() == "authorization" for name in headers)
    if not isinstance(server.target, str) or has_own:
        options = {**options}
        del options["auth"]
    elif server.oauth is not None and isinstance(auth, TakesClient):
        options = {**options, "auth": auth.for_client(server.oauth)}
    return options


def _connect(server: GroupServer, options: ConnectKeywords, on_lost: OnDisconnect) -> Client:
    """Return a client that is not open."""
    return Client.connect(server.target, on_disconnect=on_lost, **options)
