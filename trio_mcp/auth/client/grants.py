"""Token requests, and what their answers say (RFC 6749, 4 to 6)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import time
from typing import Final, TypeAlias

from ...base.values import JsonValue
from ...errors import AuthorizationError, AuthorizationErrorKind as Kind
from ...types import JsonObject
from .client_authentication import PrivateKey, authenticated, sent_values
from .discovery import ServerMetadata, server_metadata
from .registration import Registration
from .steps import Post, Steps, fetched, rejection, shown, text_member

BEARER: Final = "bearer"
DPOP: Final = "dpop"

JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"

TOKEN: Final = re.compile(r"[\x21-\x7e]{1,16384}")
"""What a header can hold as a token."""
MAX_DIGITS: Final = 12
"""Digits of a lifetime."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one login. Its repr shows none of them.

    Attributes:
        kind: "bearer" or "dpop".
        expires_at: of the access token, in seconds since 1970; None if that is not known.
        scope: what was granted; None if that is not known.
    """

    access: str = field(repr=False)
    kind: str
    expires_at: float | None = None
    refresh: str | None = field(default=None, repr=False)
    scope: str | None = None

    def expires_within(self, seconds: float, now: float) -> bool:
        """Return whether the access token is known to expire so soon."""
        return self.expires_at is not None and self.expires_at - seconds <= now


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAtServer:
    """A client that requests tokens for a resource.

    Attributes:
        resource: the value of the parameter `resource`; None to send none.
        redirect_uri: where a browser goes after a login; empty for a grant without one.
        key: authenticates the client in place of a secret.
        dpop: request tokens that are bound to a key.
        clock: returns the time, in seconds since 1970.
    """

    server: ServerMetadata
    registration: Registration
    resource: str | None
    redirect_uri: str = ""
    key: PrivateKey | None = None
    dpop: bool = False
    clock: Callable[[], float] = time


Grant: TypeAlias = Callable[[ClientAtServer, str | None], Steps[Tokens]]
"""A way to get tokens, given the scopes to request."""


def token_request(
    client: ClientAtServer, form: Mapping[str, str], scope: str | None, before: Tokens | None = None
) -> Steps[Tokens]:
    """Post a token request and return the tokens in its answer.

    Args:
        scope: what was requested, which an answer need not repeat.
        before: the tokens that are refreshed, whose members stay if the answer lacks them.

    Raises:
        AuthorizationError: the request was rejected, or the answer has no token that can be used.
    """
    endpoint = client.server.endpoint("token_endpoint", client.server.token_endpoint)
    fields = {**form, **({"resource": client.resource} if client.resource is not None else {})}
    now = client.clock()
    signed = authenticated(fields, client.registration, client.server, client.key, now)
    reply = yield from fetched(Post(endpoint, form=signed.form, headers=signed.headers, proof=client.dpop))
    if reply.status == 429 or reply.status >= 500:
        raise AuthorizationError(f"the authorization server answered HTTP {reply.status}", kind=Kind.UNAVAILABLE)
    if reply.status != 200:
        raise rejection("the token request", reply, sent=sent_values(signed, client.registration))
    document = reply.document("the answer to the token request", Kind.TOKEN)
    # GitHub rejects requests like this.
    if "error" in document and "access_token" not in document:
        raise rejection("the token request", reply, sent=sent_values(signed, client.registration))
    return read_tokens(document, client, scope, before)


def read_tokens(document: JsonObject, client: ClientAtServer, scope: str | None, before: Tokens | None) -> Tokens:
    """Return the tokens in an answer. Raises `AuthorizationError`."""
    access, kind = document.get("access_token"), document.get("token_type")
    if not isinstance(access, str) or not TOKEN.fullmatch(access):
        raise AuthorizationError(
            "the answer to the token request has no access_token that a header can hold", kind=Kind.TOKEN
        )
    expected = DPOP if client.dpop else BEARER
    # Its case does not count (RFC 6749, 5.1). A bearer token instead of a bound one would undo the binding.
    if not isinstance(kind, str) or kind.lower() != expected:
        raise AuthorizationError(f"the token has the type {shown(str(kind))} instead of {expected}", kind=Kind.TOKEN)
    refresh, granted = text_member(document, "refresh_token"), text_member(document, "scope")
    if before is not None:
        refresh, granted = refresh or before.refresh, granted or before.scope
    seconds = lifetime(document.get("expires_in"))
    return Tokens(access, expected, None if seconds is None else client.clock() + seconds, refresh, granted or scope)


def lifetime(value: JsonValue) -> float | None:
    """Return the seconds in `expires_in`, which some servers write as text; None if it has none."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= MAX_DIGITS:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Before it is a float: an integer may be too large for one.
    return float(max(0, min(value, 10**MAX_DIGITS)))


def refresh(client: ClientAtServer, tokens: Tokens) -> Steps[Tokens]:
    """Return new tokens for a refresh token. Raises `AuthorizationError`."""
    assert tokens.refresh is not None
    form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh}
    # Without `resource` some servers return a token for another API, unless the scope says which (Entra).
    if client.resource is None and tokens.scope:
        form["scope"] = tokens.scope
    return (yield from token_request(client, form, None, tokens))


def client_credentials(client: ClientAtServer, scope: str | None) -> Steps[Tokens]:
    """Return tokens for the client itself. Raises `AuthorizationError`."""
    return (yield from token_request(client, {"grant_type": "client_credentials", **scoped(scope)}, scope))


def jwt_bearer(client: ClientAtServer, scope: str | None, *, assertion: str) -> Steps[Tokens]:
    """Return tokens for an assertion that someone else signed (RFC 7523). Raises `AuthorizationError`."""
    form = {"grant_type": JWT_BEARER, "assertion": assertion, **scoped(scope)}
    return (yield from token_request(client, form, scope))


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """The identity provider of an enterprise, and the client there.

    Attributes:
        issuer: its URL.
    """

    issuer: str
    client_id: str
    secret: str | None = field(default=None, repr=False)


def enterprise_managed(
    client: ClientAtServer, scope: str | None, *, provider: IdentityProvider, id_token: str
) -> Steps[Tokens]:
    """Exchange an id token for an assertion at the identity provider, and that for tokens. Raises `AuthorizationError`."""
    metadata = yield from server_metadata(provider.issuer)
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "requested_token_type": ID_JAG,
        "subject_token": id_token,
        "subject_token_type": ID_TOKEN,
        "audience": client.server.issuer,
        **({"resource": client.resource} if client.resource is not None else {}),
        **scoped(scope),
    }
    there = Registration(provider.issuer, provider.client_id, provider.secret)
    signed = authenticated(form, there, metadata, None, client.clock())
    endpoint = metadata.endpoint("token_endpoint", metadata.token_endpoint)
    reply = yield from fetched(Post(endpoint, form=signed.form, headers=signed.headers))
    if reply.status != 200:
        raise rejection("the token exchange at the identity provider", reply, sent=sent_values(signed, there))
    document = reply.document("the answer of the identity provider", Kind.TOKEN)
    assertion = text_member(document, "access_token")
    if assertion is None or document.get("issued_token_type") != ID_JAG:
        raise AuthorizationError("the identity provider did not return an ID-JAG", kind=Kind.TOKEN)
    return (yield from jwt_bearer(client, scope, assertion=assertion))


def scoped(scope: str | None) -> dict[str, str]:
    return {"scope": scope} if scope else {}
