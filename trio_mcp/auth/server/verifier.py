"""Bearer tokens: reading one from a request, and what all ways to verify one have in common (RFC 6750)."""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from typing import Final, TypeAlias

import trio

from ...base.checks import mistake
from ...base.named_tuples import NamedTuple
from ...errors import AuthorizationError
from ...http import HttpRoute
from ...http.authenticator import Authenticator, CredentialsRejected, Move
from ...session import Caller
from ..addresses import Reach, check_url

MAX_TOKEN: Final = 8 * 1024
"""Characters of a token."""
MAX_CACHED: Final = 4_096
"""Verified tokens that one verifier remembers."""
CACHE_SECONDS: Final = 300.0
"""How long a verified token is not verified again."""

_TOKEN68: Final = re.compile(r"[A-Za-z0-9._~+/-]++=*+")

Complete: TypeAlias = Callable[[Caller], Caller]
"""Returns a caller with the scopes that its own imply."""


class Verified(NamedTuple):
    """A token that was accepted.

    Attributes:
        caller: who sent it.
        expires: when it expires, in seconds since 1970.
    """

    caller: Caller
    expires: float


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """Return the token of a request; None if it has no `Authorization` header, or one of another scheme.

    Raises:
        CredentialsRejected: 400, the header has no token, several, or one that is malformed or too long.
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    token = token.strip(" ")
    if len(token) > MAX_TOKEN:
        raise CredentialsRejected(400, "invalid_request", f"the token has more than {MAX_TOKEN} characters")
    if not _TOKEN68.fullmatch(token):
        raise CredentialsRejected(400, "invalid_request", "the header does not have exactly one well-formed token")
    return token


def refused(reason: str) -> CredentialsRejected:
    """Return the rejection of a token; the reason is for the log and has nothing of the token."""
    return CredentialsRejected(401, "invalid_token", reason)


class VerifiedTokens:
    """The tokens that were verified a moment ago, by their digests: neither a dump nor an error shows one.

    Args:
        seconds: after which a token is verified again.

    Attributes:
        cleared: how often all were forgotten.
    """

    def __init__(self, seconds: float = CACHE_SECONDS) -> None:
        self._seconds = seconds
        self.cleared = 0
        self._callers: dict[bytes, tuple[Caller, float, float]] = {}

    def get(self, token: str) -> Caller | None:
        """Return the caller of a token; None if it is to be verified."""
        found = self._callers.get(digest(token))
        if found is None:
            return None
        caller, expires, until = found
        # Two clocks: the token expires by that of the wall, which may be set back.
        return caller if time.time() < expires and trio.current_time() < until else None

    def put(self, token: str, verified: Verified) -> None:
        """Remember a verified token; the oldest is forgotten if there are too many."""
        key = digest(token)
        self._callers.pop(key, None)
        if len(self._callers) >= MAX_CACHED:
            del self._callers[next(iter(self._callers))]
        self._callers[key] = (verified.caller, verified.expires, trio.current_time() + self._seconds)

    def clear(self) -> None:
        """Forget all: what they were verified with has changed, or a server starts, which may have another clock."""
        self._callers.clear()
        self.cleared += 1

    def __len__(self) -> int:
        return len(self._callers)


def digest(token: str) -> bytes:
    """Return the key of a token in tables."""
    return sha256(token.encode()).digest()


class Verifier(Authenticator):
    """Verifies bearer tokens.

    Attributes:
        issuer: of the tokens; "" if they have none.
        audience: what tokens must be issued for; None if it is not known yet, "" if they have none.
        realm: what principals begin with.
    """

    issuer: str = ""
    audience: str | None = ""
    realm: str = ""

    @abstractmethod
    def bound(self, audience: str, complete: Complete) -> Verifier:
        """Return the same verifier for a resource.

        Args:
            audience: the URI of the resource, which counts unless the verifier has one.
            complete: called with each caller, before it is cached.
        """

    def with_functions(self, move: Move) -> Verifier:  # noqa: ARG002  most have none
        """See `Authenticator`."""
        return self

    @abstractmethod
    def owns(self, token: str, issuer: str | None) -> bool | None:
        """Return whether a token can be verified here, without any I/O; None if only its issuer knows.

        Args:
            issuer: the one that the token names, if it is a JWT; it is not verified.
        """

    @abstractmethod
    def cached(self, token: str) -> Caller | None:
        """Return the caller of a token that needs no verification now; None for another."""

    @abstractmethod
    async def caller_of(self, token: str) -> Caller:
        """Return the caller of a token that is not cached. See `Authenticator.__call__` for what it raises."""

    def authorization_routes(
        self,
        endpoint: str,  # noqa: ARG002  most have none
        offered: Callable[[], Collection[str]],  # noqa: ARG002
        required: Collection[str],  # noqa: ARG002
    ) -> Sequence[HttpRoute]:
        """Return the routes of a verifier that issues what it verifies.

        Args:
            endpoint: the path of the resource in the application.
            offered: returns the scopes that clients may ask for.
            required: those that each token needs.
        """
        return ()

    @property
    def issuers(self) -> Collection[str]:
        """The issuers of all tokens that are accepted."""
        return (self.issuer,) if self.issuer else ()

    async def __call__(self, headers: Mapping[str, str]) -> Caller | None:
        token = bearer_token(headers)
        return None if token is None else self.cached(token) or await self.caller_of(token)

    def known(self, headers: Mapping[str, str]) -> Caller | None:
        """See `Authenticator`. The header is not checked: a token that was verified is well-formed."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        try:
            return self.cached(token) if scheme.lower() == "bearer" and len(token) <= MAX_TOKEN else None
        except CredentialsRejected:
            return None  # It is awaited, and rejected there.

    def check(self) -> None:
        """Raise `ValueError` unless the audience is known: tokens for other servers would be accepted."""
        if self.audience is None:
            raise ValueError(
                "audience= is missing: without it, tokens that were issued for other servers would be accepted. Write "
                'ProtectedResource("https://mcp.example.com/mcp", jwt(...)), or audience= if the provider writes something else'
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{self.issuer and ' of '}{self.issuer}>"


class CachingVerifier(Verifier):
    """Verifies tokens at some cost, and remembers them.

    Args:
        cache: of verified tokens.
        complete: see `Verifier.bound`.
    """

    def __init__(self, cache: VerifiedTokens, complete: Complete | None) -> None:
        self._cache = cache
        self._complete = complete

    @abstractmethod
    async def verify(self, token: str) -> Verified:
        """Verify a token. See `Authenticator.__call__` for what it raises."""

    def cached(self, token: str) -> Caller | None:
        """See `Verifier`."""
        return self._cache.get(token)

    async def caller_of(self, token: str) -> Caller:
        """See `Verifier`."""
        cleared = self._cache.cleared
        caller, expires = await self.verify(token)
        if self._complete is not None:
            caller = self._complete(caller)
        # Not if the keys have changed meanwhile: its own may have been removed.
        if cleared == self._cache.cleared:
            self._cache.put(token, Verified(caller, expires))
        return caller


def check_verifier(name: str, verifier: object) -> Verifier:
    """Return a verifier. Raises `TypeError` if it is none."""
    if not isinstance(verifier, Verifier):
        raise TypeError(mistake(name, 'a verifier, such as jwt("https://login.example.com")', verifier))
    return verifier


def check_issuer(issuer: object) -> str:
    """Return the issuer if it is a URL of https, or of http on this machine."""
    return check_endpoint("issuer", issuer)


def check_endpoint(name: str, url: object) -> str:
    """Return a URL of the provider if it may be requested. Raises `TypeError`, `ValueError`."""
    if not isinstance(url, str):
        raise TypeError(f"{name} must be a URL, such as https://login.example.com, not {type(url).__name__}")
    try:
        check_url(url, Reach.CONFIGURED)
    except AuthorizationError as error:
        raise ValueError(f"{name}: {error}") from None
    return url
