"""Passing a server on: what `trio-mcp run`, `serve` and `backfill` do with a URL or a command."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import urlsplit

import trio

from ...base.groups import single_exception
from ...client.target import check_url, open_target
from ...errors import AuthorizationError, ConfigurationError, McpError
from ...http.open_access import check_open, check_open_commands
from ...relay import Connect, Proxy, proxy
from ...relay.upstream import ASKS, ASKS_NOTHING, UNKNOWN
from ...session import MessageChannel, as_message_channel
from ..command import CommandError, Status, status_of
from .loading import load_python
from .logins import login_for, stored_login_for
from .target import CommandTarget, PythonTarget, Target, UrlTarget


def pass_on(
    transport: str, target: CommandTarget | UrlTarget, headers: Mapping[str, str], options: Mapping[str, object]
) -> int:
    """Serve a server that is somewhere else until it, or the host, leaves; return the exit status.

    Raises:
        CommandError: it could not be started or reached, or it has gone.
    """
    far = proxied(target, headers, for_user=transport == "stdio")
    # The caller reports an address that cannot be listened on; on stdio there is none.
    with proxy_errors(listens=transport != "stdio"):
        far.run(transport, **options)
    return 0


def proxied(target: CommandTarget | UrlTarget, headers: Mapping[str, str], *, for_user: bool = False) -> Proxy:
    """Return a server that passes everything on to the one that a target names. Nothing is started yet.

    Args:
        for_user: as of `transport_options`.

    Raises:
        CommandError: the URL is malformed, or there are headers for a command.
    """
    connect_to, own = transport_options(target, headers, for_user=for_user)
    with wrong_options():
        return proxy(connect_to, **own)  # type: ignore[arg-type]  # `own` has no keyword of `proxy`


def connection(connect_to: str | list[str], own: Mapping[str, object]) -> Connect:
    """Return what opens a connection to a server.

    Args:
        connect_to, own: as of `transport_options`.

    Raises:
        CommandError: the URL is malformed, or an option is wrong.
    """
    with wrong_options():
        # Checks the options now, and not when a host connects. This channel is never opened.
        open_target(connect_to, own)

    @asynccontextmanager
    async def connect() -> AsyncIterator[MessageChannel]:
        async with open_target(connect_to, own) as channel:
            yield as_message_channel(channel)

    return connect


def transport_options(
    target: CommandTarget | UrlTarget,
    headers: Mapping[str, str],
    hidden: str | None = None,
    *,
    for_user: bool = False,
) -> tuple[str | list[str], dict[str, object]]:
    """Return a target as a client takes it, with the options of its transport.

    Args:
        hidden: the environment variable that a command does not get.
        for_user: only the user who started this is served, and may log in. Otherwise the stored login is used, if there is one.

    Raises:
        CommandError: the URL is malformed, or there are headers for a command.
    """
    if isinstance(target, UrlTarget):
        check_server(target.url)
        login = (login_for if for_user else stored_login_for)(target, headers)
        return target.url, {"headers": {**target.headers, **headers}, **({} if login is None else {"auth": login})}
    if headers:
        raise CommandError("--header is for the URL of a server; a command gets no headers")
    # Who wrote the command set the variables for it.
    inherited = {name: value for name, value in os.environ.items() if name != hidden}
    return [*target.words], {"env": {**inherited, **target.env}, "cwd": target.cwd}


@contextmanager
def wrong_options() -> Generator[None]:
    """Raise `CommandError` for an option that a transport cannot have."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise CommandError(str(error)) from error


def check_server(url: str) -> None:
    """Raise `CommandError` for a URL that cannot be connected to, or that shows a secret in errors."""
    try:
        check_url(url)
    except ValueError as error:
        raise CommandError(str(error) if "@" not in url else "the URL of the server is malformed") from error
    check_no_password(url, "the URL of the server", "--header authorization='Basic ...'")


def check_no_password(url: str, what: str, instead: str) -> None:
    """Raise `CommandError` for a URL with a user or a password: hosts see it in errors, and it is written to logs."""
    if "@" in urlsplit(url).netloc:
        raise CommandError(f"{what} has a user or a password in it: use {instead}")


@contextmanager
def proxy_errors(*, listens: bool = False) -> Generator[None]:
    """Raise `CommandError` for a server behind a proxy that could not be started or reached, or has gone.

    Args:
        listens: an `OSError` is about the address that is listened on, and is raised as it is.
    """
    try:
        yield
    except Exception as error:
        found = single_exception(error)
        raise (found if listens and isinstance(found, OSError) else command_error(found)) from error


def command_error(error: Exception) -> Exception:
    """Return the error for the user of a proxy that could not be started."""
    if isinstance(error, OSError):
        return CommandError(f"the server could not be started: {error}", Status.UNREACHABLE)
    if isinstance(error, AuthorizationError):
        return CommandError(str(error), status_of(error))
    if isinstance(error, McpError) and not isinstance(error, ConfigurationError):
        return CommandError(str(error), Status.UNREACHABLE)
    return error


# Whether the server of a target may be served without authentication: what a proxy asks a command with `--check-open`.


def check(target: Target, headers: Mapping[str, str]) -> int:
    """Return the exit status that says whether the server asks for authentication. The error for the user is that of the proxy.

    Raises:
        CommandError: the target cannot be loaded.
    """
    return check_open_access(load_python(target) if isinstance(target, PythonTarget) else proxied(target, headers))


def check_open_access(server: object) -> int:
    """Return and raise as `check`, for a server."""
    try:
        check_open(server)
        unknown = trio.run(check_open_commands, server)
    except ConfigurationError:
        return ASKS
    return UNKNOWN if unknown else ASKS_NOTHING
