"""Opaque access tokens, about which the issuer is asked (RFC 7662): `introspection` makes the verifier."""

from __future__ import annotations

import time
from base64 import b64encode
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote_plus

import trio
from typing_extensions import override

from ...base.checks import check_seconds, check_str
from ...errors import AuthorizationError
from ...http.authenticator import CannotVerify, CredentialsRejected
from ...types import JsonObject
from ..addresses import Reach
from ..fetching import fetch
from .claims import ClaimsSettings, ClaimsVerifier, check_unbound, number_in
from .metadata import REFRESH_SECONDS, SharedRefresh, issuer_endpoint
from .verifier import Complete, Verified, Verifier, check_endpoint, digest, refused

CACHE_SECONDS: Final = 30.0
MAX_REQUESTS: Final = 32
"""Requests to an issuer at the same time: anyone can make up tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntrospectionSettings(ClaimsSettings):
    """The arguments of `introspection`."""

    client_id: str
    client_secret: str = field(repr=False)
    endpoint: str | None


def introspection(
    issuer: str,
    *,
    client_id: str,
    client_secret: str,
    audience: str | None = None,
    endpoint: str | None = None,
    cache_seconds: float = CACHE_SECONDS,
    realm: str = "",
) -> Verifier:
    """Return a verifier that asks the issuer about each token, for opaque tokens.

    Args:
        issuer: of the tokens, exactly as its metadata has it.
        client_id: of this server at the issuer.
        client_secret: its secret.
        audience: what the tokens must be issued for; by default the resource.
        endpoint: the URL to ask; by default the one in the metadata of the issuer.
        cache_seconds: how long an answer is cached at most; a revoked token may work for so long.
        realm: begins the principal; see `jwt`.

    Raises:
        TypeError, ValueError: an argument is invalid.
    """
    if endpoint is not None:
        check_endpoint("endpoint", endpoint)
    secret: object = client_secret
    # Its error shows no value.
    if not isinstance(secret, str) or not secret:
        raise ValueError("client_secret must be the secret of this server at the issuer")
    return IntrospectionVerifier(
        IntrospectionSettings(
            issuer=issuer,
            client_id=check_str("client_id", client_id),
            client_secret=client_secret,
            audience=audience,
            endpoint=endpoint,
            cache_seconds=check_seconds("cache_seconds", cache_seconds, finite=True),
            realm=realm,
        )
    )


class _Question:
    """One request about a token, and what came of it, for all who ask about the same one."""

    __slots__ = ("ended", "outcome")

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.outcome: Verified | CredentialsRejected | CannotVerify | None = None


class IntrospectionVerifier(ClaimsVerifier[IntrospectionSettings]):
    """Verifies tokens by asking their issuer; `introspection` makes one."""

    def __init__(self, settings: IntrospectionSettings, complete: Complete | None = None) -> None:
        super().__init__(settings, complete)
        self._endpoint = settings.endpoint
        self._discovery = SharedRefresh(self._discover)
        self._open: dict[bytes, _Question] = {}
        self._capacity = trio.CapacityLimiter(MAX_REQUESTS)

    @override
    def owns(self, token: str, issuer: str | None) -> bool | None:
        """Only the issuer knows."""
        return None

    async def prepare(self) -> None:
        """Find the endpoint."""
        if self._endpoint is None:
            await self._discovery.run()

    def background(self) -> AbstractAsyncContextManager[None]:
        """See `Authenticator`."""
        self._cache.clear()
        return self._discovery.background()

    async def verify(self, token: str) -> Verified:
        """Ask about a token, or wait for the answer to the same question.

        If the one who asks is cancelled, another one who waits asks again.
        """
        key = digest(token)
        while key in self._open:
            question = self._open[key]
            await question.ended.wait()
            if question.outcome is not None:
                return _outcome(question.outcome)
        self._open[key] = question = _Question()
        try:
            question.outcome = await self._asked(token)
        except (CredentialsRejected, CannotVerify) as error:
            question.outcome = error
        finally:
            del self._open[key]
            question.ended.set()
        return _outcome(question.outcome)

    async def _asked(self, token: str) -> Verified:
        if self._endpoint is None:
            await self._discovery.run()
        if self._endpoint is None:
            raise CannotVerify(f"introspection: {self._discovery.failure}", self._discovery.retry_after)
        async with self._capacity:
            return self._checked(await self._post(self._endpoint, token))

    async def _discover(self) -> None:
        self._endpoint = await issuer_endpoint(self.issuer, "introspection_endpoint")

    async def _post(self, endpoint: str, token: str) -> JsonObject:
        # Both parts are encoded as in a form (RFC 6749, 2.3.1).
        pair = f"{quote_plus(self._settings.client_id)}:{quote_plus(self._settings.client_secret)}"
        headers = {"authorization": f"Basic {b64encode(pair.encode()).decode()}"}
        form = {"token": token, "token_type_hint": "access_token"}
        try:
            reply = await fetch(endpoint, Reach.CONFIGURED, form=form, headers=headers, seconds=REFRESH_SECONDS)
            if reply.status != 200:
                raise CannotVerify(f"{endpoint} answered HTTP {reply.status}; check client_id and client_secret")
            return reply.document(f"the answer of {endpoint}")
        except AuthorizationError as error:
            raise CannotVerify(str(error)) from None

    def _checked(self, answer: JsonObject) -> Verified:
        # `true`, not something that counts as true (RFC 7662, 2.2).
        if answer.get("active") is not True:
            raise refused("not active")
        self.check_audience(answer)
        if answer.get("iss", self.issuer) != self.issuer:
            raise refused("iss: another issuer")
        now = time.time()
        expires = number_in(answer, "exp")
        if expires is not None and expires <= now:
            raise refused("exp: expired")
        check_unbound(answer)
        principal = answer.get("sub") or answer.get("username") or answer.get("client_id")
        claims = {name: value for name, value in answer.items() if name != "active"}
        caller = self.caller(principal, answer.get("scope"), claims)
        return Verified(caller, now + self._settings.cache_seconds if expires is None else expires)


def _outcome(outcome: Verified | CredentialsRejected | CannotVerify) -> Verified:
    if isinstance(outcome, Exception):
        # Several tasks raise it.
        raise outcome.with_traceback(None)
    return outcome
