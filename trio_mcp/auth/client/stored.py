"""A login as it is stored: everything that a later process needs to go on with it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from ...base.values import JsonValue, shown_url
from ...errors import AuthorizationError, AuthorizationErrorKind as Kind, RemoteProtocolError
from ...protocol.strict_json import loads
from ...types import JsonObject
from .discovery import ServerMetadata
from .grants import BEARER, DPOP, TOKEN, Tokens
from .registration import Registration
from .steps import text_list, text_member

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A login at one server. Its repr shows no secret.

    Attributes:
        url: of the server, in its canonical form.
        resource: as the metadata of the server has it; None if the parameter `resource` is not sent.
        server: the authorization server, with the endpoints that later steps need.
        tokens: None after a refresh token was refused and nothing else is left.
        requested: the scopes that were requested.
        dpop_key: the key that the tokens are bound to, as a JWK.
    """

    url: str
    resource: str | None
    server: ServerMetadata
    registration: Registration
    tokens: Tokens
    requested: str | None = None
    dpop_key: str | None = field(default=None, repr=False)

    @property
    def scopes(self) -> tuple[str, ...]:
        """What was requested and what was granted, each once."""
        texts = (self.requested or "").split() + (self.tokens.scope or "").split()
        return tuple(dict.fromkeys(texts))

    def with_tokens(self, tokens: Tokens) -> Login:
        """Return the login with other tokens."""
        return replace(self, tokens=tokens)


class TokenStore(Protocol):
    """Where logins are stored, by the canonical URLs of their servers."""

    async def read(self, url: str) -> Login | None:
        """Return the login at a server, or None. Raises `AuthorizationError` (kind `STORE`)."""
        ...

    async def write(self, login: Login) -> None:
        """Store a login in place of the one before. Raises `AuthorizationError`; then the one before is still there."""
        ...

    async def delete(self, url: str) -> None:
        """Delete the login at a server, if there is one. Raises `AuthorizationError`."""
        ...

    async def urls(self) -> list[str]:
        """Return the URLs of the servers with a login, sorted. Raises `AuthorizationError`."""
        ...

    def lock(self, url: str) -> AbstractAsyncContextManager[None]:
        """Return a context manager that excludes every other user of the store from the same block for this server.

        Raises `AuthorizationError` when it is entered and another one holds the lock for too long.
        """
        ...


# As JSON, which every store holds.


def dump_login(login: Login) -> str:
    """Return a login as JSON, with its secrets."""
    server, known, tokens = login.server, login.registration, login.tokens
    members: dict[str, JsonValue] = {
        "version": VERSION,
        "url": login.url,
        "resource": login.resource,
        "issuer": server.issuer,
        "token_endpoint": server.token_endpoint,
        "revocation_endpoint": server.revocation_endpoint,
        "auth_methods": None if server.auth_methods is None else [*server.auth_methods],
        "registration": {
            "client_id": known.client_id,
            "secret": known.secret,
            "method": known.method,
            "redirect_uri": known.redirect_uri,
            "expires_at": known.expires_at,
        },
        "tokens": {
            "access": tokens.access,
            "kind": tokens.kind,
            "expires_at": tokens.expires_at,
            "refresh": tokens.refresh,
            "scope": tokens.scope,
        },
        "requested": login.requested,
        "dpop_key": login.dpop_key,
    }
    return json.dumps(members)


def parse_login(data: str | bytes, where: str) -> Login:
    """Return a login from JSON.

    Args:
        where: names the place in errors.

    Raises:
        AuthorizationError: it is malformed, or of a later version. The error shows nothing of it.
    """
    try:
        value = loads(data.encode() if isinstance(data, str) else data)
        if not isinstance(value, dict):
            raise TypeError("it is not a JSON object")
        if value.get("version") != VERSION:
            raise TypeError("it is of another version of trio_mcp")
        return read_login(value)
    except RemoteProtocolError:
        why = "it is not JSON"
    except TypeError as error:
        why = str(error)
    raise AuthorizationError(f"{where} cannot be used: {why}; delete it and log in again", kind=Kind.STORE)


def read_login(value: JsonObject) -> Login:
    registration, tokens = members_of(value, "registration"), members_of(value, "tokens")
    issuer, kind, access = required(value, "issuer"), required(tokens, "kind"), required(tokens, "access")
    if kind not in (BEARER, DPOP) or not TOKEN.fullmatch(access):
        raise TypeError("its token is malformed")
    return Login(
        url=required(value, "url"),
        resource=text_member(value, "resource"),
        server=ServerMetadata(
            issuer,
            required(value, "token_endpoint"),
            revocation_endpoint=text_member(value, "revocation_endpoint"),
            auth_methods=text_list(value, "auth_methods"),
        ),
        registration=Registration(
            issuer,
            required(registration, "client_id"),
            text_member(registration, "secret"),
            text_member(registration, "method"),
            text_member(registration, "redirect_uri"),
            seconds_of(registration, "expires_at"),
        ),
        tokens=Tokens(
            access, kind, seconds_of(tokens, "expires_at"), text_member(tokens, "refresh"), text_member(tokens, "scope")
        ),
        requested=text_member(value, "requested"),
        dpop_key=text_member(value, "dpop_key"),
    )


def members_of(value: Mapping[str, JsonValue], name: str) -> JsonObject:
    found = value.get(name)
    if not isinstance(found, dict):
        raise TypeError(f"{name} is not an object")
    return found


def required(value: JsonObject, name: str) -> str:
    found = text_member(value, name)
    if found is None:
        raise TypeError(f"{name} is missing")
    return found


def seconds_of(value: JsonObject, name: str) -> float | None:
    found = value.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise TypeError(f"{name} is not a time")
    return float(found)


def login_required(url: str, why: str = "log in first", options: str = "") -> AuthorizationError:
    """Return the error of a program that opens no browser."""
    return AuthorizationError(f"{why}: trio-mcp login {shown_url(url)}{options}", kind=Kind.LOGIN_REQUIRED)
