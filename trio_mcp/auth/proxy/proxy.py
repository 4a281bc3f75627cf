"""`OAuthProxy`: a verifier that issues what it verifies, for users of a provider whose own tokens cannot be verified here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Final, TypeAlias, cast
from urllib.parse import urlsplit

from typing_extensions import override

from ...base.checks import check_async, check_instance, check_str
from ...base.logs import peer_logger
from ...http import HttpRoute
from ...http.authenticator import Move
from ...protocol.sealing.request_state import MAKE_KEY, KeyRing
from ...protocol.strict_json import dumps
from ...session import Caller
from ...session.options import WORKPLACE
from ...types import JsonObject
from ..addresses import is_loopback
from ..server.claims import check_realm
from ..server.verifier import CachingVerifier, Complete, Verified, VerifiedTokens, Verifier, refused
from ..uris import server_documents
from .clients import Clients
from .endpoints import CALLBACK, Endpoints
from .issuer import Issuer, User
from .providers import OAuthProvider
from .rejections import Rejected, try_later
from .sealed import Access, Box
from .upstream import Upstream

logger = peer_logger("trio_mcp.auth")

WELL_KNOWN: Final = "/.well-known/"
Identity: TypeAlias = Callable[[JsonObject, str], Awaitable[JsonObject | None]]
"""An async function from what the provider says of a user, and its access token, to the claims; None to reject the user."""


class OAuthProxy(CachingVerifier):
    """A verifier, for `ProtectedResource`, of tokens that it issues itself to users who log in at a provider.

        proxy = OAuthProxy(GITHUB, client_id="Iv1.0123456789abcdef", client_secret=os.environ["GITHUB_SECRET"])
        resource = ProtectedResource("https://mcp.example.com/mcp", proxy, required=["notes:read"])
        server = Server("notes", http=HttpOptions(authenticate=resource, allowed_hosts=["mcp.example.com"]))

    The server is an authorization server then, below the URL of the resource. It stores nothing: whatever it must find again
    is sealed under the keys and handed to the client or to the browser. Any process with the same keys goes on with it.

    Args:
        provider: where users log in: `GITHUB`, `GOOGLE`, `ENTRA(tenant)`, or an `OAuthProvider`.
        client_id: of this server at the provider.
        client_secret: its secret.
        keys: seal what is handed out; by default those of `TRIO_MCP_KEYS`. New keys end all logins.
        identity: an async function from what the provider says of a user, and its access token, to the claims that tools see, or
            None to reject the user. By default every user of the provider may log in, with the claims that `provider` names.
        upstream_token: whether tools find the access token of the provider in `ctx.caller.claims["upstream_token"]`. It is sealed
            in the access token, which expires no later.
        realm: begins the principal; see `jwt`.

    Raises:
        TypeError, ValueError: an argument is invalid.
    """

    _box: Box
    """Only a proxy that is bound to a resource has it, and only such a one verifies tokens and serves routes."""

    def __init__(
        self,
        provider: OAuthProvider,
        *,
        client_id: str,
        client_secret: str,
        keys: KeyRing | None = None,
        identity: Identity | None = None,
        upstream_token: bool = False,
        realm: str = "",
    ) -> None:
        super().__init__(VerifiedTokens(), None)
        expected = "GITHUB, GOOGLE, ENTRA(...) or an OAuthProvider(...)"
        self._provider = check_instance("provider", provider, OAuthProvider, expected)
        self._client_id = check_str("client_id", client_id)
        secret: object = client_secret
        # Its error shows no value.
        if not isinstance(secret, str) or not secret or not client_id:
            raise ValueError("client_id and client_secret must be those of this server at the provider")
        self._client_secret = client_secret
        self._ring = keys if keys is None else check_instance("keys", keys, KeyRing, "a KeyRing")
        if identity is not None:
            check_async("identity", identity, "an async function from a user and a token to claims or None")
        self._identity = identity
        self._shows_upstream = check_instance("upstream_token", upstream_token, bool, "True or False")
        self.realm = check_realm(realm)
        # Until it has a resource: what `any_of` compares.
        self.issuer, self.audience = provider.authorize_url, None

    @override
    def bound(self, audience: str, complete: Complete) -> Verifier:
        """See `Verifier`. Raises `ValueError` if there are no keys, or the resource has a query."""
        if urlsplit(audience).query:
            raise ValueError(f"resource: {audience!r:.200} has a query, which the issuer of tokens cannot have")
        bound = copy(self)
        bound._bind(audience, complete)  # noqa: SLF001  a copy of this
        return bound

    def _bind(self, resource: str, complete: Complete) -> None:
        self.issuer = self.audience = resource
        self._ring = self._ring or KeyRing.from_environment() or _random_keys(resource)
        # What was sealed for another provider must never reach this one.
        self._box = Box(self._ring, f"{resource} {self._provider.authorize_url} {self._client_id}")
        self._cache, self._complete = VerifiedTokens(), complete

    @override
    def with_functions(self, move: Move) -> Verifier:
        """See `Authenticator`. Both have one cache."""
        moved = copy(self)
        if self._identity is not None:
            moved._identity = cast("Identity", move(self._identity))  # noqa: SLF001  a copy of this
        return moved

    @override
    def check(self) -> None:
        """Raise `ValueError` unless it has a resource."""
        if self.audience is None:
            raise ValueError(
                'an OAuthProxy needs a resource: write ProtectedResource("https://mcp.example.com/mcp", OAuthProxy(...))'
            )

    @override
    def owns(self, token: str, issuer: str | None) -> bool | None:
        """Whether it has issued the token."""
        return self._box.open(Access, token) is not None

    async def prepare(self) -> None:
        """Warn if logins end with this process."""
        if self._ring is not None and self._ring.is_random:
            logger.warning(
                "TRIO_MCP_KEYS is not set: users must log in again after a restart. To make a key: %s", MAKE_KEY
            )

    async def verify(self, token: str) -> Verified:
        """Open a token."""
        access = self._box.open(Access, token)
        if access is None:
            raise refused("not issued here for this resource, expired, or sealed with other keys")
        name = f"{self.realm}:{access.principal}" if self.realm else access.principal
        return Verified(Caller(name, access.scopes, access.claims), access.expires)

    @override
    def documents(self, scopes: Collection[str]) -> Mapping[str, bytes]:
        """Return the metadata of the authorization server."""
        document = dumps(self._endpoints(lambda: scopes, ()).metadata())
        places = [urlsplit(url).path for url in server_documents(self.issuer)]
        return dict.fromkeys((place for place in places if place.startswith(WELL_KNOWN)), document)

    @override
    def authorization_routes(
        self, endpoint: str, offered: Callable[[], Collection[str]], required: Collection[str]
    ) -> Sequence[HttpRoute]:
        """Return the routes of the authorization server; see `Verifier`."""
        return self._endpoints(offered, required).routes(endpoint)

    def _endpoints(self, offered: Callable[[], Collection[str]], required: Collection[str]) -> Endpoints:
        callback = self.issuer.rstrip("/") + CALLBACK
        upstream = Upstream(self._provider, self._client_id, self._client_secret, callback)
        issuer = Issuer(
            resource=self.issuer,
            box=self._box,
            clients=Clients(self._box, self.issuer),
            upstream=upstream,
            offered=offered,
            required=required,
            user=partial(self._user, upstream),
            shows_upstream=self._shows_upstream,
        )
        return Endpoints(issuer)

    async def _user(self, upstream: Upstream, token: str) -> User:
        """Return the user of an access token. Raises `Rejected`."""
        provider, user = self._provider, await upstream.user(token)
        found = user.get(provider.principal)
        # GitHub has numbers.
        principal = str(found) if isinstance(found, int) and not isinstance(found, bool) else found
        if not isinstance(principal, str) or not principal:
            raise try_later(f"{provider.name} says nothing of the user that is called {provider.principal!r}")
        names = (provider.principal, *provider.claims)
        claims: JsonObject | None = {name: user[name] for name in names if name in user}
        if self._identity is not None:
            try:
                claims = await self._identity(user, token)
            except Exception as error:
                raise try_later("identity= failed") from error
        if claims is None:
            reason = f"identity= rejected a user of {provider.name}"
            raise Rejected("this user may not use this server", "invalid_grant", reason=reason)
        try:
            return principal, Caller(principal, (), claims).claims
        except (TypeError, ValueError) as error:
            # Its text may quote a claim.
            raise try_later(f"the claims do not describe a caller ({type(error).__name__})") from None

    def __repr__(self) -> str:
        return f"<OAuthProxy of {self._provider.name}>"


def _random_keys(resource: str) -> KeyRing:
    """Return keys of this process, for a server on this machine. Raises `ValueError` for another, or several processes."""
    if not is_loopback(urlsplit(resource).hostname or "") or WORKPLACE.get() is not None:
        raise ValueError(f"keys: set TRIO_MCP_KEYS: every process needs the same keys. To make a key: {MAKE_KEY}")
    return KeyRing.random()
