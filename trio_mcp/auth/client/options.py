"""How a client logs in: the settings that `auth=` of `Client.connect` takes."""

from __future__ import annotations

import webbrowser
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from inspect import isawaitable
from typing import TypeAlias

import trio

from ...base.checks import check_int, check_str, mistake
from ...errors import AuthorizationError, AuthorizationErrorKind as Kind
from ...mcp_json import OAuthClient
from ...session.event_loop import at_home
from .. import client as late
from ..uris import split_url
from .authorizer import Authorizer, open_authorizer
from .client_authentication import ALGORITHM, PrivateKey
from .code import check_server, code_grant
from .flow import Flow, NoBrowser, OpenBrowser
from .grants import Grant, IdentityProvider, client_credentials, enterprise_managed, jwt_bearer
from .registration import ClientIdentity
from .stored import TokenStore
from .token_files import MemoryTokens, TokenFiles

Assertion: TypeAlias = str | Callable[[], Awaitable[str]]
"""A token that someone else signed, or an async function that returns one."""


async def open_system_browser(url: str) -> None:
    """Open a URL in the browser of the user. Raises `NoBrowser` if there is none."""
    if not await trio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True):
        raise NoBrowser


async def open_at_home(browser: OpenBrowser, url: str) -> str | None:
    """Open a URL with a function of the program, which runs where the client was opened."""
    return await at_home(browser(url))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OAuth:
    """Logs a user in with a browser, the first time; afterwards the stored tokens are used, and refreshed.

        async with Client.connect("https://mcp.example.com/mcp", auth=OAuth()) as client: ...

    It may be shared by several clients. Without a client id the client registers itself at the authorization server.

    Args:
        client_id: of a client that was registered by hand.
        client_secret: its secret, which is sent to the authorization server that the server names, unless there is an `issuer`.
        private_key: in place of a secret, the key in PEM with which it proves its identity (private_key_jwt, ES256).
        issuer: the authorization server to use; by default the first that the server names. It may be at a private address.
        metadata_url: the URL of this client's metadata, which is its client id where the authorization server supports that.
        scopes: those to request; by default those that the server asks for.
        browser: an async function that opens the URL of a login; returns None, or the URL of the redirect if it has received
            that itself. By default the browser of the user is opened.
        interactive: False to open no browser: then `AuthorizationError` of the kind "login_required" is raised instead.
        redirect_port: the port of the redirect, for clients that are registered with `http://localhost:PORT/callback`; 0 for any.
        dpop: request tokens that are bound to a key (RFC 9449).
        resource: False to leave out the parameter `resource`, for authorization servers that reject it.
        assume_pkce: accept an authorization server that does not say whether it supports PKCE.
        store: where logins are stored; by default `TokenFiles()`.

    Raises:
        TypeError, ValueError: an argument is invalid.
    """

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    issuer: str | None = None
    metadata_url: str | None = None
    scopes: Sequence[str] | None = None
    browser: OpenBrowser | None = field(default=None, repr=False)
    interactive: bool = True
    redirect_port: int = 0
    dpop: bool = False
    resource: bool = True
    assume_pkce: bool = False
    store: TokenStore | None = None

    def __post_init__(self) -> None:
        check_client(self.client_id, self.client_secret, self.private_key)
        check_key(self.private_key)
        check_issuer_url("issuer", self.issuer)
        check_scopes(self.scopes)
        check_int("redirect_port", self.redirect_port, least=0, most=65535)
        if self.metadata_url is not None and split_url(self.metadata_url).scheme != "https":
            raise ValueError("metadata_url is an https:// URL")

    def open(self, url: str) -> AbstractAsyncContextManager[Authorizer]:
        """Return a context manager with the credentials for the server at a URL. Raises `ValueError` for a malformed one."""
        flow = Flow(
            identity=ClientIdentity(self.client_id, self.client_secret, self.metadata_url),
            grant=self._grant,
            store=self.store if self.store is not None else TokenFiles(),
            check_server=partial(check_server, assume_pkce=self.assume_pkce),
            issuer=self.issuer,
            scopes=self.scopes,
            key=None if self.private_key is None else PrivateKey(self.private_key),
            browser=open_system_browser if self.browser is None else partial(open_at_home, self.browser),
            interactive=self.interactive,
            redirect_port=self.redirect_port,
            dpop=self.dpop,
            sends_resource=self.resource,
        )
        return open_authorizer(flow, url)

    def for_client(self, client: OAuthClient, /) -> OAuth:
        """Return these settings with the client that a host's file names for a server; what is set here stays."""
        if self.client_id is not None:
            return self
        return replace(
            self,
            client_id=client.client_id,
            client_secret=client.client_secret,
            scopes=self.scopes if self.scopes is not None else client.scopes,
            redirect_port=self.redirect_port or client.redirect_port,
        )

    async def _grant(self) -> Grant:
        return partial(code_grant, assume_pkce=self.assume_pkce)


@dataclass(frozen=True, slots=True, eq=False)
class ClientCredentials:
    """Logs a program in as itself, without a user.

        auth=ClientCredentials("robot", os.environ["SECRET"])

    Args:
        client_id: of the client, as it is registered at the authorization server.
        client_secret: its secret, unless there is a `private_key`.
        private_key: the key in PEM with which it proves its identity.
        algorithm: of that key.
        issuer: as for `OAuth`.
        scopes: as for `OAuth`.
        store: where tokens are stored; by default in memory.

    Raises:
        TypeError, ValueError: an argument is invalid.
    """

    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    _: KW_ONLY
    private_key: str | None = field(default=None, repr=False)
    algorithm: str = ALGORITHM
    issuer: str | None = None
    scopes: Sequence[str] | None = None
    store: TokenStore = field(default_factory=MemoryTokens)

    def __post_init__(self) -> None:
        if (self.client_secret is None) == (self.private_key is None):
            raise TypeError("ClientCredentials takes a client_secret or a private_key=, and one of them")
        check_client(self.client_id, self.client_secret, self.private_key)
        check_key(self.private_key, self.algorithm)
        check_issuer_url("issuer", self.issuer)
        check_scopes(self.scopes)

    def open(self, url: str) -> AbstractAsyncContextManager[Authorizer]:
        """Return a context manager with the credentials for the server at a URL. Raises `ValueError` for a malformed one."""
        key = None if self.private_key is None else PrivateKey(self.private_key, self.algorithm)
        flow = Flow(
            identity=ClientIdentity(self.client_id, self.client_secret),
            grant=self._grant,
            store=self.store,
            issuer=self.issuer,
            scopes=self.scopes,
            key=key,
        )
        return open_authorizer(flow, url)

    async def _grant(self) -> Grant:
        return client_credentials


@dataclass(frozen=True, slots=True, eq=False)
class EnterpriseManaged:
    """Logs in with the id token of an enterprise's identity provider, which decides on the access (ID-JAG).

    Args:
        client_id: of the client at the authorization server of the MCP server.
        client_secret: its secret.
        idp: the issuer of the identity provider. It may be at a private address.
        idp_client_id: of the client at the identity provider.
        id_token: of the user, or an async function that returns it.
        store: where tokens are stored; by default in memory.

    Raises:
        TypeError, ValueError: an argument is invalid.
    """

    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    _: KW_ONLY
    idp: str
    idp_client_id: str
    id_token: Assertion = field(repr=False)
    store: TokenStore = field(default_factory=MemoryTokens)

    def __post_init__(self) -> None:
        check_client(self.client_id, self.client_secret, None)
        check_str("idp_client_id", self.idp_client_id)
        check_issuer_url("idp", check_str("idp", self.idp))

    def open(self, url: str) -> AbstractAsyncContextManager[Authorizer]:
        """Return a context manager with the credentials for the server at a URL. Raises `ValueError` for a malformed one."""
        identity = ClientIdentity(self.client_id, self.client_secret)
        return open_authorizer(Flow(identity=identity, grant=self._grant, store=self.store, idp=self.idp), url)

    async def _grant(self) -> Grant:
        provider = IdentityProvider(self.idp, self.idp_client_id)
        return partial(enterprise_managed, provider=provider, id_token=await assertion_of(self.id_token, "id_token"))


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadIdentity:
    """Logs a workload in with a token that its platform has signed, such as that of a Kubernetes service account (RFC 7523).

    Args:
        client_id: of the client at the authorization server.
        assertion: the token, or an async function that returns it.
        issuer: as for `OAuth`.
        scopes: as for `OAuth`.

    Raises:
        TypeError, ValueError: an argument is invalid.
    """

    client_id: str
    assertion: Assertion = field(repr=False)
    _: KW_ONLY
    issuer: str | None = None
    scopes: Sequence[str] | None = None
    store: TokenStore = field(default_factory=MemoryTokens)

    def __post_init__(self) -> None:
        check_client(self.client_id, None, None)
        check_issuer_url("issuer", self.issuer)
        check_scopes(self.scopes)

    def open(self, url: str) -> AbstractAsyncContextManager[Authorizer]:
        """Return a context manager with the credentials for the server at a URL. Raises `ValueError` for a malformed one."""
        flow = Flow(
            identity=ClientIdentity(self.client_id),
            grant=self._grant,
            store=self.store,
            issuer=self.issuer,
            scopes=self.scopes,
        )
        return open_authorizer(flow, url)

    async def _grant(self) -> Grant:
        return partial(jwt_bearer, assertion=await assertion_of(self.assertion, "assertion"))


async def assertion_of(source: Assertion, name: str) -> str:
    """Return an assertion now.

    Raises:
        AuthorizationError: the function failed, or returned something else. The error does not show it.
    """
    if isinstance(source, str):
        return source
    try:
        found: object = source()
        found = await at_home(found) if isawaitable(found) else found
    # Whatever a function of the program raises: its text may have the assertion.
    except Exception as error:  # noqa: BLE001
        text = f"the function {name}= failed with {type(error).__name__}"
    else:
        if isinstance(found, str) and found:
            return found
        text = f"the function {name}= returned {type(found).__name__} instead of text"
    raise AuthorizationError(text, kind=Kind.TOKEN)


def check_client(client_id: object, secret: object, key: object) -> None:
    """Raise `TypeError` or `ValueError` unless these say who a client is."""
    for name, value in (("client_id", client_id), ("client_secret", secret), ("private_key", key)):
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} is text, not {type(value).__name__}")
        if value == "":
            raise ValueError(f"{name} is empty")
    if secret is not None and key is not None:
        raise TypeError("a client authenticates with client_secret= or private_key=, not with both")
    if client_id is None and (secret is not None or key is not None):
        raise TypeError("client_secret= and private_key= are of a client that client_id= names")


def check_key(text: str | None, algorithm: str = ALGORITHM) -> None:
    """Raise `ValueError`, which does not show it, unless this is a private key for an algorithm, or None."""
    if text is not None:
        late.signing.import_private_key(PrivateKey(text, algorithm))


def check_issuer_url(name: str, issuer: str | None) -> None:
    """Raise `ValueError` unless an issuer is a URL without a query (RFC 8414, 2)."""
    if issuer is not None and (split_url(issuer).query or "#" in issuer):
        raise ValueError(f"{name} is a URL without a query and a fragment")


def check_scopes(scopes: object) -> None:
    """Raise `TypeError` or `ValueError` unless this is a list of scopes, or None."""
    if scopes is None:
        return
    if isinstance(scopes, str) or not isinstance(scopes, Sequence):
        raise TypeError(mistake("scopes", 'a list of scopes, such as ["notes:read"]', scopes))
    for scope in scopes:
        if not isinstance(scope, str) or not scope or not scope.isascii() or not scope.isprintable() or " " in scope:
            raise ValueError(f"scopes: {scope!r:.80} is not a scope, which has no spaces")
