"""Passing a server on: what `trio-mcp run` and `trio-mcp serve` do with a URL or a command, and `backfill` with a model."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import trio

from ..client.target import check_url, open_target
from ..errors import ConfigurationError, McpError
from ..groups import single_exception
from ..relay import Backfill, Connect, RelayServer
from ..server.running import GC_THRESHOLD
from ..session import MessageChannel, as_message_channel, find_transport
from ..session.transport import owned_process
from .errors import CommandError, Status
from .targets import CommandTarget, UrlTarget


def pass_on(
    transport: str, target: CommandTarget | UrlTarget, headers: Mapping[str, str], options: Mapping[str, object]
) -> int:
    """Serve a server that is somewhere else until it, or the host, leaves; return the exit status.

    Raises:
        CommandError: it could not be started or reached, or it has gone.
    """
    relay = RelayServer(connection(target, headers), Backfill())

    async def serve(relay: RelayServer) -> None:
        await find_transport(transport).serve(relay, **options)

    # An address that cannot be listened on is the caller's to report; on stdio there is none.
    run_checked(serve, relay, listens=transport != "stdio")
    return 0


def connection(target: CommandTarget | UrlTarget, headers: Mapping[str, str], hidden: str | None = None) -> Connect:
    """Return what opens a connection to the server.

    Args:
        hidden: the environment variable that a command does not get.

    Raises:
        CommandError: the URL is malformed, or there are headers for a command.
    """
    own: dict[str, object]
    connect_to: str | list[str]
    if isinstance(target, UrlTarget):
        check_server(target.url)
        connect_to, own = target.url, {"headers": {**target.headers, **headers}}
    else:
        if headers:
            raise CommandError("--header is for the URL of a server; a command gets no headers")
        # Who wrote the command set the variables for it.
        inherited = {name: value for name, value in os.environ.items() if name != hidden}
        connect_to, own = [*target.words], {"env": {**inherited, **target.env}, "cwd": target.cwd}

    try:
        # Checks the options now, and not when a host connects. This channel is never opened.
        open_target(connect_to, own)
    except (ValueError, TypeError) as error:
        raise CommandError(str(error)) from error

    @asynccontextmanager
    async def connect() -> AsyncIterator[MessageChannel]:
        async with open_target(connect_to, own) as channel:
            yield as_message_channel(channel)

    return connect


def check_server(url: str) -> None:
    """Raise `CommandError` for a URL that cannot be connected to, or that shows a secret in errors."""
    try:
        check_url(url)
    except ValueError as error:
        raise CommandError(str(error) if "@" not in url else "the URL of the server is malformed") from error
    check_no_password(url, "the URL of the server", "--header authorization='Basic ...'")


def check_no_password(url: str, what: str, instead: str) -> None:
    """Raise `CommandError` for a URL with a user or a password: hosts read it in errors, and it stands in logs."""
    if "@" in urlsplit(url).netloc:
        raise CommandError(f"{what} has a user or a password in it: use {instead}")


def run_checked(serve: Callable[[RelayServer], Awaitable[None]], relay: RelayServer, *, listens: bool = False) -> None:
    """Run a proxy until it ends.

    Args:
        listens: an `OSError` is about the address that it listens on, and is raised as it is.

    Raises:
        CommandError: the server could not be started or reached, or it has gone.
    """
    try:
        run_relay(serve, relay)
    except Exception as error:
        found = single_exception(error)
        raise (found if listens and isinstance(found, OSError) else command_error(found)) from error
    if relay.failure is not None:
        raise CommandError(f"the server has gone: {relay.failure}", Status.UNREACHABLE)


def run_relay(serve: Callable[[RelayServer], Awaitable[None]], relay: RelayServer) -> None:
    """Run a Trio loop that serves a proxy, in a process that exists for nothing else."""
    # As `Server.run` does, and for the same reason.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    with owned_process():
        trio.run(serve, relay)


def command_error(error: Exception) -> Exception:
    """Return the error for the user of a proxy that could not be started."""
    if isinstance(error, OSError):
        return CommandError(f"the server could not be started: {error}", Status.UNREACHABLE)
    if isinstance(error, McpError) and not isinstance(error, ConfigurationError):
        return CommandError(str(error), Status.UNREACHABLE)
    return error
