"""Authentication: the author's hook returns the principal of a request, or rejects it (reliability row 101)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import AbstractContextManager, suppress
from types import MappingProxyType, TracebackType
from typing import Final

import trio

from trio_mcp.base.groups import split_group, without
from trio_mcp.base.logs import RepeatedRecords, peer_logger
from trio_mcp.http import Authenticate
from trio_mcp.protocol.jsonrpc import Request
from trio_mcp.protocol.revisions import REQUIRED_SCOPES
from trio_mcp.session import Caller, Peer, Service
from trio_mcp.session.envelope import check_principal
from trio_mcp.types import JsonObject

from .access import HttpRejection
from .requests import Watch, unwatched

# Errors of an author's code, which are logged and end nothing but what they happened in.

logger = peer_logger("trio_mcp.http")


class ClientDisconnected(OSError):
    """Raised by an app's `send` once its client has left or was cut off (ASGI 2.4: a subclass of OSError)."""

    def __init__(self) -> None:
        super().__init__("the client has left")


def log_failures(what: str, records: RepeatedRecords | None = None) -> AbstractContextManager[None, bool]:
    """Log what the block raises, SystemExit too, and go on behind it. Only a cancel is raised again.

    A client that merely left is worth a debug line only.

    Args:
        records: count failures that a peer can cause again and again.
    """
    return _LoggedFailures(what, records)


class _LoggedFailures:
    # Not a generator: each connection has one for as long as it lives, and it would take a kilobyte.

    __slots__ = ("_records", "_what")

    def __init__(self, what: str, records: RepeatedRecords | None) -> None:
        self._what = what
        self._records = records

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is None or isinstance(error, trio.Cancelled):
            return False
        # An app may raise anything, and each error ends its own exchange, connection or step of the shutdown only.
        cancelled, failure = split_group(error, trio.Cancelled)
        rest = without(failure, ClientDisconnected)
        if rest is not None and self._records is not None:
            self._records.log(self._what, level=logging.ERROR, exc_info=rest)
        elif rest is not None:
            logger.error("%s", self._what, exc_info=rest)
        elif failure is not None:
            logger.debug("%s: the client left", self._what)
        if cancelled is not None:
            raise cancelled from None
        return True


AUTHENTICATION_SECONDS: Final = 10.0
"""How long the hook may take for one request."""

CHALLENGE = (b"www-authenticate", b"Bearer")
"""A 401 says how to do better (RFC 9110, 11.6.1)."""


async def authenticated_peer(
    authenticate: Authenticate,
    headers: Mapping[str, str],
    connection: Hashable,
    records: RepeatedRecords,
    watch: Watch = unwatched,
) -> Peer:
    """Return the sender of a request, as the hook finds it in these headers.

    Args:
        connection: see `Peer`.
        records: what is wrong with the hook, which every request may show again.
        watch: cancels the hook if the client leaves, where the server notices that.

    Raises:
        ClientDisconnected: the client has left.
        HttpRejection: 401, the hook returned None; 503, it took longer than `AUTHENTICATION_SECONDS`; 500, it failed or
            returned something else. The log says what was wrong with the hook, the response does not.
    """
    found: str | Caller | None = None
    with trio.move_on_after(AUTHENTICATION_SECONDS) as asking:
        found = await watch(call_hook(authenticate, headers, records), asking)
    if asking.cancelled_caught:
        if trio.current_time() < asking.deadline:
            raise ClientDisconnected
        refused = "authenticate did not answer within %g seconds; the request was refused"
        records.log(refused, AUTHENTICATION_SECONDS, level=logging.ERROR)
        raise HttpRejection(503, "The server could not check your credentials in time. Try again in a moment.")
    if not found:
        raise HttpRejection(
            401, "This server must know who calls: send an Authorization header that it accepts.", [CHALLENGE]
        )
    return (
        Peer(found, headers, connection)
        if isinstance(found, str)
        else Peer(found.principal, headers, connection, found)
    )


async def call_hook(
    authenticate: Authenticate, headers: Mapping[str, str], records: RepeatedRecords
) -> str | Caller | None:
    """Return what the hook returns. Anything but a principal, a caller or None is a failure: a guess could let an attacker in."""
    with log_failures("authenticate failed; the request was refused", records):
        # Read-only, since the session keeps the same mapping.
        found: object = await authenticate(MappingProxyType(headers))
        # An empty name is a refusal, like None.
        if found is None or found == "" or isinstance(found, Caller):
            return found or None
        if isinstance(found, str):
            return check_principal(found)
        raise TypeError(f"authenticate returned {type(found).__name__}, neither a principal nor a Caller nor None")
    raise HttpRejection(500, "The server could not check your credentials; its log has the reason.")


def has_same_rights(peer: Peer, other: Peer) -> bool:
    """Return whether two requests come from the same principal with the same scopes; claims may change."""
    return peer.principal == other.principal and scopes_of(peer) == scopes_of(other)


async def wait_until_expired(
    peer: Peer, ask: Callable[[Mapping[str, str], None], Awaitable[Peer]], seconds: float
) -> None:
    """Ask the hook again and again; return when the principal or its scopes are no longer the same (reliability row 57).

    Args:
        ask: calls the hook with headers; see `authenticated_peer` for its errors.
        seconds: after an answer, before the hook is asked again.
    """
    # A hook that fails ends it as well: whether the credentials are still good is not known then.
    with suppress(HttpRejection):
        while True:
            # After the answer and not at fixed times: a slow hook is not asked again while it still works.
            await trio.sleep(seconds)
            if not has_same_rights(await ask(peer.headers, None), peer):
                break
    logger.info("an open connection is ended: its credentials are no longer accepted")


def scopes_of(peer: Peer) -> frozenset[str]:
    return frozenset() if peer.known_caller is None else peer.known_caller.scopes


def check_scopes(service: Service, request: Request, peer: Peer) -> None:
    """Raise `HttpRejection` (403) if the sender of a request lacks a scope that it needs (RFC 6750, 3.1; L-AUTH-8s)."""
    missing = service.missing_scopes(request, lambda: peer.caller)
    if missing:
        names = sorted(missing)
        scopes = " ".join(names)
        challenge = f'Bearer error="insufficient_scope", scope="{scopes}"'
        rejection = HttpRejection(403, f"This needs the scopes {scopes}.", [(CHALLENGE[0], challenge.encode())])
        rejection.request_id = request.id
        data: JsonObject = {REQUIRED_SCOPES: [*names]}
        rejection.data = data
        raise rejection
