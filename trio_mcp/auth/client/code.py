"""The authorization code flow, with PKCE, `state` and `iss` (L-AUTH-6c, M-AUTH-2c).

What comes back is checked in this order: no parameter twice, `state`, `iss`, then `error`, then `code`. Until `iss` is checked
nothing of the response is shown: it may be of another server.
"""

from __future__ import annotations

import hashlib
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs, urlencode

from ...base.values import shown_url
from ...errors import AuthorizationError, AuthorizationErrorKind as Kind
from ..addresses import is_loopback
from ..uris import split_url
from .discovery import ServerMetadata
from .grants import ClientAtServer, Tokens, scoped, token_request
from .scopes import OFFLINE
from .steps import ERROR_CODE, Browse, Steps, browsed, shown

S256: Final = "S256"
MAX_PARAMETERS: Final = 32


def code_grant(client: ClientAtServer, scope: str | None, *, assume_pkce: bool = False) -> Steps[Tokens]:
    """Send the user to the authorization server, and return the tokens for the code that comes back.

    Args:
        assume_pkce: accept metadata that lists no method of PKCE.

    Raises:
        AuthorizationError: the server does not support PKCE, the user refused, or the response cannot be trusted.
    """
    check_server(client.server, assume_pkce=assume_pkce)
    redirect_uri = client.redirect_uri
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
    query = {
        "response_type": "code",
        "client_id": client.registration.client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": challenge_of(verifier),
        "code_challenge_method": S256,
        **scoped(scope),
        # Without it OpenID providers drop the scope silently.
        **({"prompt": "consent"} if scope and OFFLINE in scope.split() else {}),
        **({"resource": client.resource} if client.resource is not None else {}),
    }
    back = yield from browsed(Browse(authorization_url(client.server, query), state))
    code = code_in(back, redirect_uri, state, client.server)
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": verifier,
    }
    return (yield from token_request(client, form, scope))


def check_server(server: ServerMetadata, *, assume_pkce: bool = False) -> None:
    """Raise `AuthorizationError` if no login can succeed there."""
    check_pkce(server, assume_pkce=assume_pkce)
    page_of(server)


def check_pkce(server: ServerMetadata, *, assume_pkce: bool) -> None:
    """Raise `AuthorizationError` unless the server says that it checks PKCE with S256."""
    methods = server.challenge_methods
    if not (methods is None and assume_pkce) and S256 not in (methods or ()):
        raise AuthorizationError(
            f"{shown_url(server.issuer)} does not say that it supports PKCE with S256; assume_pkce=True trusts that it does",
            kind=Kind.PKCE,
        )


def challenge_of(verifier: str) -> str:
    """Return the challenge for a code verifier (RFC 7636, 4.2)."""
    return urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def authorization_url(server: ServerMetadata, query: dict[str, str]) -> str:
    """Return the URL for the browser. Raises `AuthorizationError` for one that a browser should not get."""
    url, has_query = page_of(server)
    return f"{url}{'&' if has_query else '?'}{urlencode(query)}"


def page_of(server: ServerMetadata) -> tuple[str, bool]:
    """Return the authorization endpoint, and whether it has a query. Raises `AuthorizationError`."""
    url = server.endpoint("authorization_endpoint", server.authorization_endpoint)
    try:
        parts = split_url(url)
    except ValueError:
        raise AuthorizationError(
            "the authorization endpoint is not a URL that a browser may open", kind=Kind.ADDRESS
        ) from None
    if "#" in url or not (parts.scheme == "https" or is_loopback(parts.hostname or "")):
        raise AuthorizationError(f"the authorization endpoint {shown(shown_url(url))} is not https", kind=Kind.ADDRESS)
    return url, bool(parts.query)


def code_in(url: str, redirect_uri: str, state: str, server: ServerMetadata) -> str:
    """Return the code in the URL of a redirect. Raises `AuthorizationError`."""
    if url.partition("?")[0] != redirect_uri:
        raise AuthorizationError(f"the URL of the redirect does not begin with {redirect_uri}", kind=Kind.RESPONSE)
    one = parameters(url)
    if not has_state(one, state):
        raise AuthorizationError(
            "the authorization response has another state: it is not of this login", kind=Kind.RESPONSE
        )
    check_issuer_of_response(server, one.get("iss"))
    if "error" in one:
        raise denied(one["error"], one.get("error_description", ""))
    if not one.get("code"):
        raise AuthorizationError("the authorization response has no code", kind=Kind.RESPONSE)
    return one["code"]


def has_state(parameters: Mapping[str, str], state: str) -> bool:
    """Return whether a redirect is the one of this login."""
    return secrets.compare_digest(parameters.get("state", "").encode(), state.encode())


def parameters(url: str) -> dict[str, str]:
    """Return the parameters of a redirect. Raises `AuthorizationError` if one comes twice."""
    # `urlsplit` would keep the URL, and with it the code, in its cache.
    query = url.partition("#")[0].partition("?")[2]
    try:
        return query_parameters(query)
    except ValueError as error:
        raise AuthorizationError(f"the authorization response {error}", kind=Kind.RESPONSE) from None


def query_parameters(query: str) -> dict[str, str]:
    """Return the parameters of a query or a form. Raises `ValueError` if one comes twice."""
    try:
        values_of = parse_qs(query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise ValueError("is malformed") from None
    if any(len(values) > 1 for values in values_of.values()):
        raise ValueError("has a parameter twice")
    return {name: values[0] for name, values in values_of.items()}


def check_issuer_of_response(server: ServerMetadata, issuer: str | None) -> None:
    """Raise `AuthorizationError` if a response is of another server, or does not say of which (RFC 9207, 2.4; M-AUTH-2c)."""
    if issuer is None and server.promises_issuer:
        raise AuthorizationError("the authorization response does not say which server it is from", kind=Kind.ISSUER)
    if issuer is not None and issuer != server.issuer:
        raise AuthorizationError(f"the authorization response is not from {shown_url(server.issuer)}", kind=Kind.ISSUER)


def denied(code: str, why: str) -> AuthorizationError:
    """Return the error for a login that the user or the server refused."""
    known = code if ERROR_CODE.fullmatch(code) else "unknown error"
    return AuthorizationError(
        f"the login was refused: {known}{f' ({shown(why)})' if why else ''}", kind=Kind.DENIED, oauth_error=known
    )
