"""A login as it is stored: everything that a later process needs to go on with it."""

from __future__ import annotations

import json
import shlex
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from pydantic import TypeAdapter

from ...base.values import shown_url
from ...errors import AuthorizationError, AuthorizationErrorKind as Kind
from ..uris import origin
from .discovery import ServerMetadata
from .grants import BEARER, DPOP, TOKEN, Tokens
from .registration import Registration

VERSION: Final = 1
NO_TOKENS: Final = Tokens("", BEARER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A login at one server. Its repr shows no secret.

    Attributes:
        url: of the server, in its canonical form.
        resource: as the metadata of the server has it; None if the parameter `resource` is not sent.
        server: the authorization server, with the endpoints that later steps need.
        tokens: without a refresh token after that was refused; the access token may still be good. `NO_TOKENS` if the client was
            registered for a login that failed.
        requested: the scopes that were requested.
        dpop_key: the key that the tokens are bound to, as a JWK.
        named: whether the program named the authorization server, which may then be at a private address.
    """

    url: str
    resource: str | None
    server: ServerMetadata
    registration: Registration
    tokens: Tokens
    requested: str | None = None
    dpop_key: str | None = field(default=None, repr=False)
    named: bool = False

    @property
    def has_tokens(self) -> bool:
        """Whether there is a token; without, only the registration counts."""
        return self.tokens != NO_TOKENS

    @property
    def scopes(self) -> tuple[str, ...]:
        """What was requested and what was granted, each once."""
        texts = (self.requested or "").split() + (self.tokens.scope or "").split()
        return tuple(dict.fromkeys(texts))

    @property
    def named_origins(self) -> frozenset[str]:
        """What `Driver.named` is for a request about its tokens, also of a program that does not name the server again."""
        return frozenset([origin(self.server.issuer)] if self.named else ())

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

_ADAPTER: Final = TypeAdapter(Login)


def dump_login(login: Login) -> str:
    """Return a login as JSON, with its secrets."""
    return json.dumps({"version": VERSION, "login": _ADAPTER.dump_python(login, mode="json")})


def parse_login(data: str | bytes, where: str) -> Login:
    """Return a login from JSON.

    Args:
        where: names the place in errors.

    Raises:
        AuthorizationError: it is malformed, or of a later version. The error shows nothing of it.
    """
    try:
        value: object = json.loads(data)
        if isinstance(value, dict) and value.get("version") == VERSION:
            login = _ADAPTER.validate_json(json.dumps(value.get("login")), strict=True)
            is_sendable = login.tokens.kind in (BEARER, DPOP) and TOKEN.fullmatch(login.tokens.access)
            if is_sendable or not login.has_tokens:
                return login
    # Of pydantic, whose text has the values, or because it is nested too deeply.
    except (ValueError, RecursionError):
        pass
    text = f"{where} is malformed, or of another version of trio_mcp: delete it and log in again"
    raise AuthorizationError(text, kind=Kind.STORE)


def login_required(url: str, why: str = "log in first", options: str = "") -> AuthorizationError:
    """Return the error of a program that opens no browser."""
    # Users copy it, and a file of a project may have named the URL.
    command = f"trio-mcp login {shlex.quote(shown_url(url))}{options}"
    return AuthorizationError(f"{why}: {command}", kind=Kind.LOGIN_REQUIRED)
