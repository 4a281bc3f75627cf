"""What a program says of its logins, and the whole of one login as steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ...errors import AuthorizationError
from ..challenges import Challenge
from ..uris import origin
from .client_authentication import PrivateKey
from .discovery import Resource, ServerMetadata, discover
from .grants import DPOP, ClientAtServer, Grant, Tokens
from .registration import ClientIdentity, Registration, register
from .scopes import choose_scopes
from .steps import Steps, shown
from .stored import NO_TOKENS, Login, TokenStore

OpenBrowser: TypeAlias = Callable[[str], Awaitable[str | None]]
"""An async function that opens an authorization URL; returns None, or the URL of the redirect if it has received that itself."""


class NoBrowser(Exception):
    """Raised by an `OpenBrowser` if there is no browser to open."""


def no_check(_server: ServerMetadata) -> None:
    """Accept a server: its grant checks what it needs."""


INVALID_CLIENT = "invalid_client"
INVALID_SCOPE = "invalid_scope"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flow:
    """How tokens are got; what `OAuth` and the other settings become.

    Attributes:
        grant: returns the grant; it may call functions of the program.
        check_server: raises `AuthorizationError` before a client is registered where no login can succeed.
        browser: opens the page of a login; None for a grant without a user.
        interactive: whether a page may be opened.
        idp: the issuer of an identity provider.
    """

    identity: ClientIdentity
    grant: Callable[[], Awaitable[Grant]]
    store: TokenStore
    check_server: Callable[[ServerMetadata], object] = no_check
    issuer: str | None = None
    idp: str | None = None
    scopes: Sequence[str] | None = None
    key: PrivateKey | None = None
    browser: OpenBrowser | None = None
    interactive: bool = True
    redirect_port: int = 0
    dpop: bool = False
    sends_resource: bool = True

    @property
    def named(self) -> frozenset[str]:
        """The origins of the authorization servers that the program names, which may be at private addresses."""
        return frozenset(origin(url) for url in (self.issuer, self.idp) if url is not None)

    def accepts(self, login: Login) -> bool:
        """Return whether a stored login is one of this client."""
        return (
            (self.issuer is None or self.issuer == login.server.issuer)
            and (self.identity.client_id is None or self.identity.client_id == login.registration.client_id)
            and (not self.dpop or login.tokens.kind == DPOP or not login.has_tokens)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginRequest:
    """Why a login is needed, and what is there for it.

    Attributes:
        challenge: of the response that asked for it.
        before: the login that was there; its registration is used again, and for a step-up its scopes.
        is_step_up: whether the tokens lacked scopes.
        redirect_uri: where the browser goes after the login.
        dpop_key: the key for the tokens, as a JWK.
        registered: gets what to store if the login fails after the client was registered for it, so that the next one does not
            register again.
    """

    url: str
    challenge: Challenge
    before: Login | None = None
    is_step_up: bool = False
    redirect_uri: str = ""
    dpop_key: str | None = None
    registered: list[Login] = field(default_factory=list["Login"])


def log_in(flow: Flow, grant: Grant, request: LoginRequest, clock: Callable[[], float]) -> Steps[Login]:
    """Get tokens for a server, and return the login. Raises `AuthorizationError`."""
    known = None if request.before is None else request.before.registration
    resource = yield from discover(
        request.url, request.challenge.resource_metadata, flow.issuer, None if known is None else known.issuer
    )
    scope = scopes_for(flow, resource, request)
    flow.check_server(resource.server)
    registration = yield from register(flow.identity, resource.server, request.redirect_uri, known, clock())
    login = Login(
        url=request.url,
        resource=resource.uri if flow.sends_resource else None,
        server=resource.server.for_later,
        registration=registration,
        tokens=NO_TOKENS,
        requested=scope,
        dpop_key=request.dpop_key,
        named=flow.issuer is not None,
    )
    # Not in place of a login: its tokens are of another registration.
    if request.before is None and registration.redirect_uri is not None:
        request.registered.append(login)
    try:
        tokens = yield from grant(client_at(flow, resource, registration, request, clock), scope)
    except AuthorizationError as error:
        if error.oauth_error == INVALID_SCOPE:
            raise wrong_scope(error, scope) from None
        # The server has forgotten the client that it had registered.
        if error.oauth_error != INVALID_CLIENT or registration is not known:
            raise
        registration = yield from register(flow.identity, resource.server, request.redirect_uri, None, clock())
        tokens = yield from grant(client_at(flow, resource, registration, request, clock), scope)
    return replace(login, registration=registration, tokens=tokens)


def wrong_scope(error: AuthorizationError, scope: str | None) -> AuthorizationError:
    """Return the error for scopes that the authorization server does not grant, with those and what to write."""
    asked = f"the scopes {shown(scope)}" if scope else "its default scopes"
    text = f"{error.args[0]}; {asked} were requested: choose others with scopes= (--scope)"
    return AuthorizationError(text, kind=error.kind, oauth_error=error.oauth_error)


def scopes_for(flow: Flow, resource: Resource, request: LoginRequest) -> str | None:
    before = request.before.scopes if request.is_step_up and request.before is not None else ()
    return choose_scopes(
        flow.scopes,
        request.challenge.scope,
        resource.scopes,
        before,
        is_step_up=request.is_step_up,
        offered=resource.server.scopes,
        wants_refresh=flow.browser is not None,
    )


def client_at(
    flow: Flow,
    resource: Resource,
    registration: Registration,
    request: LoginRequest,
    clock: Callable[[], float],
) -> ClientAtServer:
    return ClientAtServer(
        server=resource.server,
        registration=registration,
        resource=resource.uri if flow.sends_resource else None,
        redirect_uri=request.redirect_uri,
        key=flow.key,
        dpop=flow.dpop,
        clock=clock,
    )


def client_of(flow: Flow, login: Login, clock: Callable[[], float]) -> ClientAtServer:
    """Return the client that refreshes the tokens of a login."""
    registration = login.registration
    if flow.identity.client_id == registration.client_id and flow.identity.secret is not None:
        # The program may have a newer secret than the store.
        registration = Registration(
            registration.issuer, registration.client_id, flow.identity.secret, registration.method
        )
    return ClientAtServer(
        server=login.server,
        registration=registration,
        resource=login.resource,
        key=flow.key,
        dpop=login.tokens.kind == DPOP,
        clock=clock,
    )


def without_refresh(login: Login, *, forget_client: bool) -> Login:
    """Return a login whose refresh token was refused. The access token may still be good.

    Args:
        forget_client: the server does not know the client any more, so it registers again.
    """
    tokens: Tokens = replace(login.tokens, refresh=None)
    known = replace(login.registration, expires_at=0.0) if forget_client else login.registration
    return replace(login, tokens=tokens, registration=known)
