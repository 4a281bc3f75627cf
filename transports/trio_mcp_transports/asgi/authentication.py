"""Authentication: the author's hook returns the principal of a request, or rejects it (reliability row 101)."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence, Set as AbstractSet
from contextlib import AbstractContextManager, suppress
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Final

import trio

from trio_mcp.auth.challenges import write_challenge
from trio_mcp.auth.uris import RESOURCE_METADATA
from trio_mcp.base.groups import split_group, without
from trio_mcp.base.logs import RepeatedRecords, peer_logger
from trio_mcp.base.values import one_line
from trio_mcp.http import Authenticate, HttpRoute
from trio_mcp.http.authenticator import CannotVerify, CredentialsRejected, as_authenticator
from trio_mcp.protocol.jsonrpc import RequestId
from trio_mcp.protocol.revisions import REQUIRED_SCOPES
from trio_mcp.session import Caller, Peer
from trio_mcp.session.envelope import check_principal
from trio_mcp.types import JsonObject

from .access import Headers, HttpRejection
from .requests import Expiry, Request, Watch, unwatched
from .responses import KnownResponse

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

CHALLENGE: Final = b"www-authenticate"
"""A refusal says how to do better (RFC 9110, 11.6.1)."""

TEXTS: Final[Mapping[int, str]] = {
    400: "The Authorization header must have exactly one well-formed token: Authorization: Bearer ...",
    401: "This server must know who calls: send an Authorization header that it accepts.",
    403: "The token does not give access to this server.",
}
"""The same for every reason: the log has that."""

DOCUMENT_HEADERS: Final[Headers] = (
    (b"cache-control", b"max-age=300"),
    # Public and the same for everybody: a client in a browser reads it before it has a token.
    (b"access-control-allow-origin", b"*"),
)
PREFLIGHT_HEADERS: Final[Headers] = (
    *DOCUMENT_HEADERS,
    (b"access-control-allow-methods", b"GET, HEAD"),
    (b"access-control-allow-headers", b"*"),
)


WELL_KNOWN: Final = "/.well-known/"
"""In the paths of documents."""


class Authentication:
    """Authenticates the requests of one application, and says how to authenticate.

    Args:
        hook: the author's.
        prefix: of the server among several; "" for one alone.
        scopes: returns the scopes that the tools, resources and prompts of the server need.
        records: what is wrong with the hook or with credentials, which every request may show again.
    """

    def __init__(
        self, hook: Authenticate, prefix: str, scopes: Callable[[], Collection[str]], records: RepeatedRecords
    ) -> None:
        self._hook = as_authenticator(hook)
        self._prefix = prefix
        self._scopes = scopes
        self._records = records

    @property
    def public_url(self) -> str | None:
        """See `Authenticator`."""
        return self._hook.public_url

    @property
    def required(self) -> frozenset[str]:
        """See `Authenticator`."""
        return self._hook.required

    def check_endpoints(self, endpoints: Collection[str], root: str) -> None:
        """Raise `ValueError` if the server is not where the hook says; see `Authenticator`."""
        self._hook.check_endpoints([self._prefix + path for path in endpoints], self._scopes(), root)

    def routes(self, endpoints: Collection[str]) -> Sequence[HttpRoute]:
        """Return the routes that the hook needs; see `Authenticator`."""
        return self._hook.routes(endpoints, self._scopes)

    async def run(self) -> None:
        """Get what the first request needs, and then what later ones need, until it is cancelled; a failure is logged."""
        with log_failures("authenticate could not prepare", self._records):
            await self._hook.run()

    def known_peer(self, headers: Mapping[str, str], connection: Hashable) -> Peer | None:
        """Return the sender of a request if its credentials were verified a moment ago; None for any other. See `peer`."""
        caller = None
        with log_failures("authenticate failed for a known caller", self._records):
            caller = self._hook.known(headers)
        return None if caller is None else self._peer_of(caller, headers, connection)

    async def peer(
        self, headers: Mapping[str, str], connection: Hashable, watch: Watch = unwatched, root: str = ""
    ) -> Peer:
        """Return the sender of a request, as the hook finds it in these headers.

        Args:
            connection: see `Peer`.
            watch: cancels the hook if the client leaves, where the server notices that.
            root: see `Request`.

        Raises:
            ClientDisconnected: the client has left.
            HttpRejection: 401, the hook returned None; 400, 401 or 403, it rejected the credentials; 503, they cannot be
                verified now, or it took longer than `AUTHENTICATION_SECONDS`; 500, it failed or returned something else. The
                log says why, the response does not.
        """
        found: str | Caller | None = None
        with trio.move_on_after(AUTHENTICATION_SECONDS) as asking:
            found = await watch(self._ask(headers, root), asking)
        if asking.cancelled_caught:
            if trio.current_time() < asking.deadline:
                raise ClientDisconnected
            refused = "authenticate did not answer within %g seconds; the request was refused"
            self._records.log(refused, AUTHENTICATION_SECONDS, level=logging.ERROR)
            raise HttpRejection(503, "The server could not check your credentials in time. Try again in a moment.")
        if not found:
            raise self._rejection(401, root=root)
        return self._peer_of(found, headers, connection)

    def _peer_of(self, found: str | Caller, headers: Mapping[str, str], connection: Hashable) -> Peer:
        if "authorization" in headers and self._hook.hides_credentials:
            headers = {name: value for name, value in headers.items() if name != "authorization"}
        if isinstance(found, str):
            return Peer(found, headers, connection)
        return Peer(found.principal, headers, connection, found)

    async def _ask(self, headers: Mapping[str, str], root: str) -> str | Caller | None:
        """Return what the hook returns.

        Anything but a principal, a caller or None is a failure: a guess could let an attacker in.
        """
        refusal: CredentialsRejected | CannotVerify | None = None
        with log_failures("authenticate failed; the request was refused", self._records):
            try:
                # Read-only, since the session keeps the same mapping.
                found: object = await self._hook(MappingProxyType(headers))
            except (CredentialsRejected, CannotVerify) as error:
                refusal = error
            else:
                # An empty name is a refusal, like None.
                if found is None or found == "" or isinstance(found, Caller):
                    return found or None
                if isinstance(found, str):
                    return check_principal(found)
                text = f"authenticate returned {type(found).__name__}, neither a principal nor a Caller nor None"
                raise TypeError(text)
        raise self._refused(refusal, root) from None

    def _refused(self, refusal: CredentialsRejected | CannotVerify | None, root: str) -> HttpRejection:
        """Return the rejection for what the hook has raised, and log it; None if it has failed, which was logged."""
        if refusal is None:
            return HttpRejection(500, "The server could not check your credentials; its log has the reason.")
        if isinstance(refusal, CannotVerify):
            self._records.log("the credentials of requests cannot be verified: %s", refusal)
            return unverified(refusal.retry_after)
        # Each reason by itself: a client in the wrong must not hide what is wrong with another.
        self._records.log(f"a request was refused: {one_line(str(refusal))}", level=logging.INFO)
        text = needed_text(refusal.scopes) if refusal.status == 403 and refusal.scopes else None
        return self._rejection(refusal.status, refusal.error, refusal.scopes, root, text)

    def _rejection(
        self, status: int, error: str = "", scopes: Collection[str] = (), root: str = "", text: str | None = None
    ) -> HttpRejection:
        # The resource of each server includes its prefix, so that servers of one application are distinct.
        public = "" if root == self._prefix else root
        challenge = write_challenge("Bearer", self._hook.challenge(error, scopes, public))
        return HttpRejection(status, text or TEXTS[status], [(CHALLENGE, challenge.encode())])

    def lacks_scopes(self, missing: AbstractSet[str], request_id: RequestId, root: str) -> HttpRejection:
        """Return the rejection (403) of a request that needs scopes that its sender lacks (RFC 6750, 3.1; L-AUTH-8s)."""
        names = sorted(missing | self._hook.required)
        rejection = self._rejection(403, "insufficient_scope", names, root, needed_text(names))
        rejection.request_id = request_id
        data: JsonObject = {REQUIRED_SCOPES: [*names]}
        rejection.data = data
        return rejection

    def expiry(self, headers: Mapping[str, str], peer: Peer, seconds: float) -> Expiry:
        """Return what waits until these headers are no longer those of the peer; see `wait_until_expired`."""
        return partial(wait_until_expired, headers, peer, self.peer, seconds)

    def has_documents(self) -> bool:
        """Whether there are documents now."""
        return bool(self._hook.documents(self._scopes()))

    def document(self, request: Request, *, at_root: bool = True) -> KnownResponse | None:
        """Return the response to a request for a document of the hook; None for another request.

        Args:
            at_root: whether the metadata at the root of the host counts, where the server is not at the root.
        """
        if WELL_KNOWN not in request.path:
            return None
        documents = self._hook.documents(self._scopes())
        places = [place for path in request.routes for place in (f"{path}?{request.query}", path)]
        for number, (place, document) in enumerate(documents.items()):
            # The first one is at the path of the server.
            if place in places and (at_root or number == 0 or place != RESOURCE_METADATA):
                return document_response(request.method, document)
        return None


def document_response(method: str, body: bytes) -> KnownResponse:
    """Return the response to a request for a public document."""
    if method == "OPTIONS":
        return KnownResponse(204, b"", PREFLIGHT_HEADERS)
    if method not in ("GET", "HEAD"):
        return KnownResponse(405, b"", [*DOCUMENT_HEADERS, (b"allow", b"GET, HEAD, OPTIONS")])
    return KnownResponse(200, body, DOCUMENT_HEADERS)


def needed_text(scopes: Collection[str]) -> str:
    """Return the text of the response to a request whose token lacks scopes."""
    return f"The token lacks a scope. This needs the scopes {' '.join(sorted(scopes))}."


def no_authentication(records: RepeatedRecords) -> Authentication:
    """Return that of a server whose callers are not known: it only says which scopes a request needs."""

    async def authenticate(_headers: Mapping[str, str]) -> None:
        return None

    return Authentication(authenticate, "", frozenset[str], records)


def unverified(retry_after: float) -> HttpRejection:
    """Return the rejection of credentials of which it is not known whether they are good: a 401 would end a login."""
    seconds = b"%d" % max(1, math.ceil(retry_after))
    return HttpRejection(
        503, "The server cannot check your credentials now. Try again in a moment.", [(b"retry-after", seconds)]
    )


def has_same_rights(peer: Peer, other: Peer) -> bool:
    """Return whether two requests come from the same principal with the same scopes; claims may change."""
    return peer.principal == other.principal and scopes_of(peer) == scopes_of(other)


async def wait_until_expired(
    headers: Mapping[str, str],
    peer: Peer,
    ask: Callable[[Mapping[str, str], None], Awaitable[Peer]],
    seconds: float,
) -> None:
    """Ask the hook again and again; return when the principal or its scopes are no longer the same (reliability row 57).

    Args:
        headers: those that opened the connection, with its credentials.
        ask: calls the hook with them; see `Authentication.peer` for its errors.
        seconds: after an answer, before the hook is asked again.
    """
    # A hook that fails ends it as well: whether the credentials are still good is not known then.
    with suppress(HttpRejection):
        while True:
            # After the answer and not at fixed times: a slow hook is not asked again while it still works.
            await trio.sleep(seconds)
            if not has_same_rights(await ask(headers, None), peer):
                break
    logger.info("an open connection is ended: its credentials are no longer accepted")


def scopes_of(peer: Peer) -> frozenset[str]:
    return frozenset() if peer.known_caller is None else peer.known_caller.scopes
