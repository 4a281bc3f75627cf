"""Tokens with claims, which an issuer signs or confirms: what their verifiers have in common."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeVar, cast

from ...base.checks import check_str
from ...session import Caller
from ...types import JsonObject, JsonValue
from .verifier import CACHE_SECONDS, CachingVerifier, Complete, VerifiedTokens, check_issuer, refused


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsSettings:
    """The arguments that all such verifiers have.

    Raises:
        TypeError, ValueError: one of them is invalid.
    """

    issuer: str
    audience: str | None
    realm: str
    cache_seconds: float = CACHE_SECONDS

    def __post_init__(self) -> None:
        check_issuer(self.issuer)
        if self.audience is not None and not check_str("audience", self.audience):
            raise ValueError(
                'audience must not be empty: write the URI of this server, as in "https://mcp.example.com/mcp"'
            )
        check_realm(self.realm)


S = TypeVar("S", bound=ClaimsSettings)


class ClaimsVerifier(CachingVerifier, Generic[S]):
    """Verifies tokens with claims.

    Args:
        complete: see `Verifier.bound`.
    """

    def __init__(self, settings: S, complete: Complete | None = None) -> None:
        super().__init__(VerifiedTokens(settings.cache_seconds), complete)
        self.issuer, self.audience, self.realm = settings.issuer, settings.audience, settings.realm
        self._settings = settings

    def bound(self, audience: str, complete: Complete) -> Self:
        """See `Verifier`."""
        return type(self)(replace(self._settings, audience=self.audience or audience), complete)

    def check_audience(self, claims: JsonObject) -> None:
        """Raise `CredentialsRejected` unless a token was issued for the audience (RFC 8707; RFC 7519, 4.1.3)."""
        named, audience = claims.get("aud"), self.audience
        if audience is None or not (named == audience or (isinstance(named, list) and audience in named)):
            raise refused("aud: the token was issued for another resource")

    def caller(self, principal: JsonValue, scopes: JsonValue, claims: JsonObject) -> Caller:
        """Return the caller that claims describe. Raises `CredentialsRejected` if no caller can have them."""
        try:
            name = checked_principal(principal)
            return Caller(f"{self.realm}:{name}" if self.realm else name, scopes_in(scopes), claims)
        except (TypeError, ValueError) as error:
            # Its text may quote a claim.
            raise refused(f"the claims do not describe a caller ({type(error).__name__})") from None


def check_realm(realm: object) -> str:
    """Return a realm. Raises `ValueError` if it has a colon, or is no text."""
    # It ends at the first colon of a principal.
    if not isinstance(realm, str) or ":" in realm:
        raise ValueError('realm must be text without a colon, such as "partner"')
    return realm


def checked_principal(principal: JsonValue) -> str:
    """Return a principal. Raises `CredentialsRejected` if it is no text, or empty."""
    if not isinstance(principal, str) or not principal:
        raise refused("the claim of the principal is missing, empty or no text")
    return principal


def check_unbound(claims: JsonObject) -> None:
    """Raise `CredentialsRejected` for a token that is bound to a key (RFC 9449, 6): the request does not prove that."""
    if "cnf" in claims:
        raise refused("cnf: bound to a key that the request does not prove")


def number_in(claims: JsonObject, name: str) -> float | None:
    """Return a time in the claims; None if it is not there. Raises `CredentialsRejected` if it is no number."""
    value = claims.get(name)
    if value is None:
        return None
    # One that is too large for a float cannot be added to another.
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > sys.float_info.max:
        raise refused(f"{name}: not a number")
    return value


def scopes_in(value: JsonValue) -> list[str]:
    """Return scopes, as text with spaces between them or as a list. Raises `CredentialsRejected`."""
    if value is None:
        return []
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return cast("list[str]", value)
    raise refused("scope: neither text nor a list of text")
