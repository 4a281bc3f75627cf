"""Access tokens that are JWTs (RFC 9068): `jwt` makes the verifier of one issuer.

A token is checked in this order, and the first failure ends it:

| step | what |
|---|---|
| header | the algorithm is allowed, the type is that of an access token, no extension is critical; no key in it is ever read |
| key | the issuer has one with this `kid`, or exactly one that fits |
| signature | |
| `iss` | the issuer, as text |
| `aud` | the audience, or a list with it, as text |
| `exp`, `nbf` | numbers; `exp` is mandatory |
| principal | text that is not empty |
| `cnf` | not there: the token is bound to a key that the request does not prove (RFC 9449) |
| `check=` | the author's |
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, cast

from joserfc.errors import JoseError
from joserfc.jws import CompactSignature, JWSRegistry, extract_compact, validate_compact
from joserfc.util import urlsafe_b64decode as part_of_token
from typing_extensions import override

from ...base.checks import check_async, check_seconds, check_str
from ...errors import RemoteProtocolError
from ...http.authenticator import CannotVerify, Move
from ...protocol.strict_json import loads
from ...types import JsonObject, JsonValue
from .claims import ClaimsSettings, ClaimsVerifier, check_unbound, checked_principal, number_in
from .jwks import IssuerKeys, KeySet
from .verifier import MAX_TOKEN, Complete, Verified, Verifier, check_endpoint, refused

DEFAULT_ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA", "Ed25519")
ALGORITHMS: Final = (*DEFAULT_ALGORITHMS, "RS384", "RS512", "PS384", "PS512", "ES384", "ES512")
LEEWAY: Final = 30.0
"""Seconds by which the clocks of issuer and server may differ."""
TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""What the header `typ` of an access token may be, in lower case (RFC 9068, 2.1); other kinds of tokens are none."""

ClaimsCheck: TypeAlias = Callable[[JsonObject], Awaitable[JsonObject | None]]
"""An async function from the claims of a token to the claims that count, or None to reject it."""


class TokenRegistry(JWSRegistry):
    """What joserfc takes: tokens of our size, headers that it does not know, and `EdDSA` without a warning.

    RFC 9864 calls it `Ed25519`, and providers still write `EdDSA`; a filter for the warning would be one of the whole process.
    """

    max_header_length = max_payload_length = max_signature_length = MAX_TOKEN

    def get_alg(self, name: str):  # type: ignore[no-untyped-def]  # noqa: ANN201  a type of joserfc that is not public
        """Return an algorithm if it is allowed; see `JWSRegistry`."""
        if name not in (self.allowed or ()):
            raise JoseError(description="the algorithm is not allowed")
        return self.algorithms[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtSettings(ClaimsSettings):
    """The arguments of `jwt`."""

    jwks: str | None
    keys: JsonObject | None = field(repr=False)
    algorithms: Collection[str]
    leeway: float
    principal: str
    scopes: str | None
    check: ClaimsCheck | None


def jwt(
    issuer: str,
    *,
    audience: str | None = None,
    jwks: str | None = None,
    keys: Mapping[str, JsonValue] | None = None,
    algorithms: Collection[str] = DEFAULT_ALGORITHMS,
    leeway: float = LEEWAY,
    principal: str = "sub",
    scopes: str | None = None,
    realm: str = "",
    check: ClaimsCheck | None = None,
) -> Verifier:
    """Return a verifier of access tokens that are JWTs, for `authenticate=` or `ProtectedResource`.

        resource = ProtectedResource("https://mcp.example.com/mcp", jwt("https://login.example.com"))
        server = Server("notes", http=HttpOptions(authenticate=resource, allowed_hosts=["mcp.example.com"]))

    Args:
        issuer: of the tokens, exactly as its metadata has it: a slash at the end counts.
        audience: what the tokens must be issued for; by default the resource.
        jwks: the URL of its keys; by default the one in its metadata.
        keys: its keys, as a JWK set; nothing is fetched then.
        algorithms: of signatures, without symmetric ones.
        leeway: seconds by which the clocks may differ.
        principal: the claim that names the caller; "oid" for Entra.
        scopes: the claim with the scopes; by default `scope`, or else `scp`.
        realm: begins the principal, as in "partner:alice"; needed where two issuers may both have an "alice".
        check: an async function that takes the claims of a verified token and returns those to use, or None to reject it.

    Raises:
        TypeError, ValueError: an argument is invalid.
    """
    if jwks is not None:
        check_endpoint("jwks", jwks)
    if keys is not None and not isinstance(keys, Mapping):
        raise TypeError('keys must be a JWK set, {"keys": [...]}')
    if check is not None:
        check_async("check", check, "an async function from claims to claims or None")
    return JwtVerifier(
        JwtSettings(
            issuer=issuer,
            audience=audience,
            jwks=jwks,
            keys=None if keys is None else dict(keys),
            algorithms=check_algorithms(algorithms),
            leeway=check_seconds("leeway", leeway, finite=True),
            principal=check_str("principal", principal),
            scopes=scopes if scopes is None else check_str("scopes", scopes),
            realm=realm,
            check=check,
        )
    )


def check_algorithms(algorithms: object) -> Collection[str]:
    """Return the names of algorithms if each is an asymmetric one. Raises `TypeError`, `ValueError`."""
    if isinstance(algorithms, str) or not isinstance(algorithms, Collection):
        raise TypeError('algorithms must be a list, such as ["RS256"]')
    names = frozenset(check_str("each of algorithms", name) for name in algorithms)
    for name in names:
        if name == "none" or name.startswith("HS"):
            raise ValueError(
                f"algorithms: {name} is not allowed: anyone can sign with a key that is public, or with none"
            )
        if name not in ALGORITHMS:
            raise ValueError(f"algorithms: {name!r:.40} is not supported; write some of {', '.join(ALGORITHMS)}")
    if not names:
        raise ValueError("algorithms is empty, so no token could be accepted")
    return names


class JwtVerifier(ClaimsVerifier[JwtSettings]):
    """Verifies the JWTs of one issuer; `jwt` makes one."""

    def __init__(self, settings: JwtSettings, complete: Complete | None = None) -> None:
        super().__init__(settings, complete)
        self._registry = TokenRegistry(algorithms=settings.algorithms, strict_check_header=False)
        self._given = None if settings.keys is None else given_keys(settings.keys)
        self._keys = IssuerKeys(settings.issuer, settings.jwks, self._cache.clear)

    def with_functions(self, move: Move) -> Verifier:
        """See `Authenticator`. Both have one cache."""
        moved = copy(self)
        if self._settings.check is not None:
            check = cast("ClaimsCheck", move(self._settings.check))
            moved._settings = replace(self._settings, check=check)  # noqa: SLF001  a copy of this
        return moved

    @override
    def owns(self, token: str, issuer: str | None) -> bool | None:
        """Whether the token names the issuer."""
        return issuer == self.issuer

    async def prepare(self) -> None:
        """Fetch the keys of the issuer."""
        if self._given is None:
            await self._keys.prepare()

    def background(self) -> AbstractAsyncContextManager[None]:
        """See `Authenticator`."""
        self._cache.clear()
        return self._keys.background()

    async def verify(self, token: str) -> Verified:
        """Check a token; see the table of this module."""
        signed, kid, algorithm = self._read(token)
        key = self._given.find(kid, algorithm) if self._given else await self._keys.find(kid, algorithm)
        if key is None:
            raise refused("kid: the issuer has no such key")
        try:
            valid = validate_compact(signed, key, registry=self._registry)
        except (JoseError, ValueError, TypeError) as error:
            raise refused(f"signature: {type(error).__name__}") from None
        if not valid:
            raise refused("signature: not valid")
        claims, expires = self._checked(signed)
        if self._settings.check is not None:
            allowed = await self._settings.check(claims)
            if allowed is None:
                raise refused("check= rejected the claims")
            claims = allowed
        settings = self._settings
        scopes = claims.get(settings.scopes) if settings.scopes else claims.get("scope", claims.get("scp"))
        return Verified(self.caller(claims.get(settings.principal), scopes, claims), expires)

    def _read(self, token: str) -> tuple[CompactSignature, str | None, str]:
        """Return the parts of a token whose header is allowed, with the id of its key and its algorithm."""
        try:
            signed = extract_compact(token.encode(), registry=self._registry)
            header = loads(part_of_token(token.partition(".")[0].encode()))
        except (JoseError, ValueError, TypeError, RecursionError, AttributeError, RemoteProtocolError):
            raise refused("not a JWT") from None
        if not isinstance(header, dict):
            raise refused("not a JWT")
        kid, algorithm, kind = header.get("kid"), header.get("alg"), header.get("typ", "jwt")
        if not isinstance(algorithm, str) or algorithm not in self._settings.algorithms:
            raise refused("alg: not allowed")
        if not isinstance(kind, str) or kind.lower() not in TYPES:
            raise refused("typ: not an access token")
        if "crit" in header:
            raise refused("crit: an extension that is not known")
        if not isinstance(kid, str | None):
            raise refused("kid: not text")
        return signed, kid, algorithm

    def _checked(self, signed: CompactSignature) -> tuple[JsonObject, float]:
        """Return the claims of a token whose signature is valid, and when it expires."""
        try:
            claims = loads(signed.payload or b"")
        except RemoteProtocolError:
            raise refused("the claims are not JSON") from None
        if not isinstance(claims, dict):
            raise refused("the claims are not a JSON object")
        if claims.get("iss") != self.issuer:
            raise refused("iss: another issuer")
        self.check_audience(claims)
        now, leeway = time.time(), self._settings.leeway
        expires, begins = number_in(claims, "exp"), number_in(claims, "nbf")
        if expires is None or expires + leeway <= now:
            raise refused("exp: missing" if expires is None else "exp: expired")
        if begins is not None and begins - leeway > now:
            raise refused("nbf: not valid yet")
        checked_principal(claims.get(self._settings.principal))
        check_unbound(claims)
        return claims, expires


def given_keys(document: JsonObject) -> KeySet:
    """Return the keys of an argument. Raises `ValueError` if there are none."""
    try:
        keys = KeySet(document)
    except CannotVerify as error:
        raise ValueError(f"keys: {error}") from None
    if not keys:
        raise ValueError("keys has no public key for signatures")
    return keys


def issuer_in(token: str) -> str | None:
    """Return the issuer that a JWT names, without verifying it; None if it is no JWT or names none."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RemoteProtocolError):
        return None
    issuer = claims.get("iss") if isinstance(claims, dict) else None
    return issuer if isinstance(issuer, str) else None
