"""How a client is known to an authorization server: by hand, by the URL of its metadata, or registered (L-AUTH-5c, M-AUTH-3c).

A registration belongs to its issuer, and is never shown to another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from ...base.values import shown_url
from ...errors import AuthorizationError, AuthorizationErrorKind as Kind
from ...types import JsonObject
from ..addresses import is_loopback
from .discovery import ServerMetadata
from .steps import Post, Steps, fetched, rejection, text_member

NAME: Final = "trio-mcp"
"""The name of the client that users see at an authorization server."""

BASIC: Final = "client_secret_basic"
POST: Final = "client_secret_post"
NONE: Final = "none"
REGISTERED_METHODS: Final = (NONE, BASIC, POST)
"""How a registered client may authenticate, the preferred first."""

NO_END: Final = 10**12
"""Seconds since 1970. A secret that expires later need not be known to: an integer of JSON may be too large for a float."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A client at an authorization server.

    Attributes:
        method: how it authenticates; None if that is not known.
        redirect_uri: the one it was registered with; None if it was not registered here.
        expires_at: when the secret expires, in seconds since 1970; None for never.
    """

    issuer: str
    client_id: str
    secret: str | None = field(default=None, repr=False)
    method: str | None = None
    redirect_uri: str | None = None
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """What a program says of its client.

    Attributes:
        metadata_url: the URL of its metadata, which is its client id where that is supported (CIMD).
    """

    client_id: str | None = None
    secret: str | None = field(default=None, repr=False)
    metadata_url: str | None = None


def register(
    identity: ClientIdentity, server: ServerMetadata, redirect_uri: str, known: Registration | None, now: float
) -> Steps[Registration]:
    """Return the registration to use, after registering if there is none yet.

    Args:
        known: the stored one, which is used if it fits.

    Raises:
        AuthorizationError: the authorization server registers no clients, or not this one.
    """
    if identity.client_id is not None:
        check_issuer_of(identity, server, known)
        return Registration(server.issuer, identity.client_id, identity.secret)
    if identity.metadata_url is not None and server.reads_metadata_urls:
        return Registration(server.issuer, identity.metadata_url, method=NONE)
    if known is not None and fits(known, server, redirect_uri, now):
        return known
    return (yield from register_dynamically(server, redirect_uri))


def check_issuer_of(identity: ClientIdentity, server: ServerMetadata, known: Registration | None) -> None:
    """Raise `AuthorizationError` if a secret would go to another issuer than the one that the client has logged in at."""
    if identity.secret is None or known is None or known.client_id != identity.client_id:
        return
    if known.issuer != server.issuer:
        raise AuthorizationError(
            f"the server names {shown_url(server.issuer)} now, and the client_secret= belongs to {shown_url(known.issuer)}: if "
            "that is right, give issuer=, or log out first",
            kind=Kind.METADATA,
        )


def fits(known: Registration, server: ServerMetadata, redirect_uri: str, now: float) -> bool:
    """Return whether a stored registration can be used for a login that ends at this URI."""
    expired = known.expires_at is not None and known.expires_at <= now
    return known.issuer == server.issuer and known.redirect_uri == redirect_uri and not expired


def register_dynamically(server: ServerMetadata, redirect_uri: str) -> Steps[Registration]:
    """Register a client (RFC 7591). Raises `AuthorizationError`."""
    if server.registration_endpoint is None:
        raise AuthorizationError(
            f"{shown_url(server.issuer)} registers no clients by itself: register one there, with the redirect URI "
            f"{redirect_uri}, and give its client_id= (or --client-id)",
            kind=Kind.REGISTRATION,
        )
    offered = server.auth_methods if server.auth_methods is not None else (BASIC,)
    method = next((each for each in REGISTERED_METHODS if each in offered), None)
    if method is None:
        raise AuthorizationError(
            "the authorization server takes no client without a key: give client_id=", kind=Kind.REGISTRATION
        )
    # Without `scope`: servers refuse scopes that they do not list, or limit the client to those, and a step-up fails.
    body: JsonObject = {
        "client_name": NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native" if is_native(redirect_uri) else "web",
    }
    reply = yield from fetched(Post(server.registration_endpoint, json=body))
    if reply.status not in (200, 201):
        raise rejection("the registration", reply, Kind.REGISTRATION)
    document = reply.document("the answer to the registration", Kind.REGISTRATION)
    return read_registration(document, server, redirect_uri, method)


def read_registration(document: JsonObject, server: ServerMetadata, redirect_uri: str, method: str) -> Registration:
    client_id = text_member(document, "client_id")
    if client_id is None:
        raise AuthorizationError("the answer to the registration has no client_id", kind=Kind.REGISTRATION)
    until = document.get("client_secret_expires_at")
    return Registration(
        server.issuer,
        client_id,
        text_member(document, "client_secret"),
        text_member(document, "token_endpoint_auth_method") or method,
        redirect_uri,
        float(min(until, NO_END)) if isinstance(until, int | float) and until > 0 else None,
    )


def is_native(redirect_uri: str) -> bool:
    """Return whether a redirect URI is that of a program, and not of a site (M-AUTH-4c)."""
    parts = urlsplit(redirect_uri)
    return parts.scheme not in ("http", "https") or is_loopback(parts.hostname or "")
