"""Whether a server may be served over a network to callers that are not authenticated: not one that asks for authentication.

A server asks for it if it has `authenticate`, and a proxy if the server behind it does, or gets credentials from the proxy: every
caller would have what they give access to. What is mounted in a server, and what is behind a proxy, counts too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import trio

from ..base.logs import peer_logger
from ..base.named_tuples import NamedTuple
from ..errors import ConfigurationError
from ..session.transport import authenticates, facts_of, required_scopes
from ..types import Implementation

logger = peer_logger("trio_mcp.http")

MAX_NAMED: Final = 5
"""Items that one warning names."""

CURE: Final = (
    'Give authenticate= to the call that serves it, such as run("http", authenticate=...). For a command line, write a file with '
    "server = Server('hub', http=HttpOptions(authenticate=...)) and server.mount('far', ...), and serve that. Or serve it on "
    "stdio"
)


class Behind(NamedTuple):
    """What a proxy knows of the server behind it.

    Attributes:
        server: it, if it is in this process.
        credentials: where those are that the proxy sends, such as "the header authorization"; "" if it sends none.
        command: what starts it, for people; "" if no command does.
        check: finds out whether what the command starts asks for authentication, and raises `ConfigurationError` if it does;
            returns whether it could find out. None if nothing can.
    """

    server: object = None
    credentials: str = ""
    command: str = ""
    check: Callable[[], Awaitable[bool]] | None = None


def check_open(server: object) -> None:
    """Raise `ConfigurationError` if a server that is served without authentication asks for it, as far as that is known here."""
    for each in all_within(server):
        behind = behind_of(each)
        if authenticates(each):
            raise ConfigurationError(
                f"the server {name_of(each)!r} authenticates its callers, and would be reachable here without "
                f"authentication. {CURE}"
            )
        if behind.credentials:
            raise ConfigurationError(
                f"the proxy {name_of(each)!r} sends credentials ({behind.credentials}) to the server behind it, and would be "
                f"reachable here without authentication: every caller would have what they give access to. {CURE}"
            )


def check_required(server: object, required: frozenset[str]) -> None:
    """Raise `ConfigurationError` if something within a server requires scopes that its callers need not have.

    Args:
        required: the scopes that every request to the server needs.
    """
    for each in all_within(server):
        missing = required_scopes(each) - required
        # What the server says of itself, the call that serves it may replace.
        if missing and each is not server:
            raise ConfigurationError(
                f"every request to the server {name_of(each)!r} needs the scopes {', '.join(sorted(missing))}, which would not "
                f"be checked here: add them to required= of what authenticates the callers of {name_of(server)!r}"
            )


async def check_open_commands(server: object) -> list[str]:
    """Raise `ConfigurationError` as `check_open` does, of servers that commands start.

    Returns:
        the commands of which it is not known whether their servers ask for authentication.
    """
    commands = [behind for each in all_within(server) if (behind := behind_of(each)).command]
    silent: set[int] = set()
    failures: list[Exception] = []

    async def check(number: int, behind: Behind) -> None:
        try:
            if behind.check is None or not await behind.check():
                silent.add(number)
        except Exception as error:  # noqa: BLE001  it is raised after the nursery, without a group
            failures.append(error)
            nursery.cancel_scope.cancel()

    # At the same time: each may take half a minute, and a whole server has not much longer to start.
    async with trio.open_nursery() as nursery:
        for number, behind in enumerate(commands):
            nursery.start_soon(check, number, behind)
    if failures:
        raise failures.pop(0)
    return [behind.command for number, behind in enumerate(commands) if number in silent]


def warn_unusable(server: object) -> None:
    """Warn of what needs scopes in a server that is served without authentication: its callers have none."""
    names = [*facts_of(server).scopes_by_item()]
    if names:
        shown = ", ".join(names[:MAX_NAMED]) + (f" and {len(names) - MAX_NAMED} more" if names[MAX_NAMED:] else "")
        logger.warning("these have scopes=, and cannot be used without authenticate=: %s", shown)


def scopes_of(server: object) -> frozenset[str]:
    """Return the scopes that the tools, resources and prompts of a server need."""
    return frozenset[str]().union(*facts_of(server).scopes_by_item().values())


def all_within(server: object) -> Iterator[object]:
    """Yield a server and those that its calls may reach: what is mounted in it, and what is behind a proxy; each once."""
    waiting, known = [server], {id(server)}
    while waiting:
        each = waiting.pop()
        yield each
        for found in (*facts_of(each).mounted, behind_of(each).server):
            if found is not None and id(found) not in known:
                known.add(id(found))
                waiting.append(found)


def behind_of(server: object) -> Behind:
    """Return what is behind a proxy; nothing for another server."""
    found = getattr(server, "behind", None)
    return found if isinstance(found, Behind) else Behind()


def is_proxy(server: object) -> bool:
    """Return whether a server is a proxy itself, and not one in which proxies are mounted."""
    return isinstance(getattr(server, "behind", None), Behind)


def name_of(server: object) -> str:
    """Return the name of a server, for errors."""
    identity = getattr(server, "identity", None)
    return identity.name if isinstance(identity, Implementation) else type(server).__name__
