"""The routes of an `OAuthProxy`: an authorization server with the code flow (OAuth 2.1), whose users log in at a provider.

    client        browser                    here                        provider
    register -------------------------------> a sealed client id
                  authorize ----------------> consent page, cookie
                  consent ------------------> sealed state ------------> log in
                  callback <------------------------------------------- code
                  <--------------------------- our code, sealed around that of the provider
    token ----------------------------------> redeem both -------------> tokens, user
    <---------------------------------------- sealed tokens

Until the user has agreed, the browser is sent nowhere: anyone can register a redirect URI, and a redirect without a question
would lead from this site to any other. So what is wrong before that is shown on a page, and not sent to the client.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from types import MappingProxyType
from typing import Final, Never, TypeAlias, TypeVar

from ...base.logs import peer_logger
from ...http import HttpRequest, HttpResponse, HttpRoute
from ...http.authenticator import RETRY_AFTER
from ...types import JsonObject
from ..client.code import S256, challenge_of, query_parameters
from ..client.grants import Tokens
from ..server.verifier import MAX_TOKEN
from ..uris import OPENID_METADATA, canonical, origin
from .clients import ClientRejected, Clients
from .pages import consent_page, error_page, leaving_page, redirect, with_query
from .sealed import Access, Box, Code, Login, Refresh, State, Ticket, digest, is_same
from .upstream import GrantRefused, ProviderFailed, Upstream

logger = peer_logger("trio_mcp.auth")

MAX_LONG_URL: Final = 2_000
"""Characters of the URL at the provider: some browsers and proxies take no longer one."""
MAX_CODE: Final = 4_096
"""Characters of a code of the provider."""
MAX_BODY: Final = 64 * 1024
"""Bytes of the body of a request: two sealed values, and what is sent with them."""
CALLBACK: Final = "/oauth/callback"
"""Below the issuer."""
NO_STORE: Final[Mapping[str, str]] = MappingProxyType({"cache-control": "no-store"})
PUBLIC: Final[Mapping[str, str]] = MappingProxyType(
    {"cache-control": "max-age=300", "access-control-allow-origin": "*"}
)

_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{32}")

OTHER_BROWSER: Final = (
    "This page is more than ten minutes old, was opened in another browser, or cookies are blocked. Start again in the program "
    "where you want to log in."
)

L = TypeVar("L", bound=Login)

User: TypeAlias = tuple[str, JsonObject]
"""The principal of a user, and the claims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """What tokens are issued for.

    Attributes:
        resource: for which they are.
        offered: returns the scopes that clients may ask for.
        required: those that each token has.
        user: returns the user of an access token of the provider; None for one who may not log in.
        shows_upstream: whether tools get the access token of the provider.
    """

    resource: str
    offered: Callable[[], Collection[str]]
    required: Collection[str]
    user: Callable[[str], Awaitable[User | None]]
    shows_upstream: bool

    def scopes(self, asked: str) -> tuple[str, ...]:
        """Return those of the scopes that are offered, and the required ones."""
        return tuple(sorted(frozenset(self.offered()) & frozenset(asked.split(" ")) | frozenset(self.required)))

    def check_resource(self, named: str | None) -> None:
        """Raise `ClientRejected` if a request names another resource (RFC 8707, 2; L-AUTH-7c)."""
        try:
            fits = named is None or canonical(named) == self.resource
        except ValueError:
            fits = False
        if not fits:
            raise ClientRejected(f"the resource is {self.resource}, and no other", "invalid_target")


Handler: TypeAlias = Callable[[HttpRequest[Never]], Awaitable[HttpResponse]]


def shows_errors(handler: Handler) -> Handler:
    """Return a handler that answers what is wrong with a page."""

    @wraps(handler)
    async def shown(request: HttpRequest[Never]) -> HttpResponse:
        try:
            return await handler(request)
        except ClientRejected as error:
            return error_page(str(error), error.status)

    return shown


def returns_errors(handler: Handler) -> Handler:
    """Return a handler that answers what is wrong as JSON (RFC 6749, 5.2)."""

    @wraps(handler)
    async def returned(request: HttpRequest[Never]) -> HttpResponse:
        try:
            return await handler(request)
        except ClientRejected as error:
            return _json({"error": error.code, "error_description": str(error)}, error.status)
        except GrantRefused as error:
            logger.info("a token request was refused: %s", error)
            return _json({"error": "invalid_grant", "error_description": "log in again"}, 400)
        except ProviderFailed as error:
            # A client that got `invalid_grant` would throw its tokens away.
            logger.warning("a token request failed: %s", error)
            return _json({"error": "temporarily_unavailable"}, 503, {"retry-after": f"{RETRY_AFTER:g}"})

    return returned


class Endpoints:
    """The functions of the routes.

    Args:
        issuer: the issuer of the tokens, below which the routes are.
    """

    def __init__(self, issuer: str, box: Box, clients: Clients, upstream: Upstream, grants: Grants) -> None:
        self._issuer = issuer
        self._box = box
        self._clients = clients
        self._upstream = upstream
        self._grants = grants
        self._origin = origin(issuer)
        # Only a page of this very host can have set a cookie with this prefix (RFC 6265bis, 4.1.3.2). It needs https.
        secure = self._origin.startswith("https:")
        self._cookie = "__Host-mcp-login" if secure else "mcp-login"
        # For the consent page, and then for the login at the provider.
        self._cookie_attributes = (
            f"Path=/; HttpOnly; SameSite=Lax; Max-Age={2 * Login.LIFETIME}{'; Secure' if secure else ''}"
        )

    def routes(self, endpoint: str) -> Sequence[HttpRoute]:
        """Return the routes, below the path of an endpoint; no request needs a token for them."""
        below = endpoint.rstrip("/")

        def route(path: str, handler: Handler, method: str) -> HttpRoute:
            return HttpRoute(below + path, handler, frozenset({method}), public=True, max_body=MAX_BODY)

        return [
            route(OPENID_METADATA, self.document, "GET"),
            route("/oauth/register", returns_errors(self.register), "POST"),
            route("/oauth/authorize", shows_errors(self.authorize), "GET"),
            route("/oauth/consent", shows_errors(self.consent), "POST"),
            route(CALLBACK, shows_errors(self.callback), "GET"),
            route("/oauth/token", returns_errors(self.token), "POST"),
            route("/oauth/revoke", returns_errors(self.revoke), "POST"),
        ]

    async def authorize(self, request: HttpRequest[Never]) -> HttpResponse:
        """Ask the user for consent, each time: the provider may log its user in without a question (GHSA-c2jp-c369-7pvx)."""
        one = _parameters(request.query)
        client = await self._clients.find(one.get("client_id", ""))
        redirect_uri = one.get("redirect_uri", "")
        if redirect_uri not in client.redirect_uris:
            raise ClientRejected("The program wants you to be sent back to a place that it has not registered.")
        browser = self._browser(request) or secrets.token_urlsafe(24)
        ticket = self._ticket(one, redirect_uri, browser)
        if len(self._provider_url(ticket)) > MAX_LONG_URL:
            raise ClientRejected(
                "The program has sent more than fits into a URL: a shorter state or redirect URI would do."
            )
        return consent_page(
            name=client.name,
            metadata=client.metadata,
            resource=self._grants.resource,
            scopes=ticket.scopes,
            redirect_uri=redirect_uri,
            provider=self._upstream.provider.name,
            ticket=self._box.seal(ticket),
            cookie=f"{self._cookie}={browser}; {self._cookie_attributes}",
        )

    def _ticket(self, one: Mapping[str, str], redirect_uri: str, browser: str) -> Ticket:
        if one.get("response_type") != "code" or one.get("response_mode", "query") != "query":
            raise ClientRejected("The program asks for another answer than a code in the query.")
        challenge = one.get("code_challenge", "")
        if one.get("code_challenge_method") != S256 or not _CHALLENGE.fullmatch(challenge):
            raise ClientRejected("The program does not use PKCE with S256.")
        self._grants.check_resource(one.get("resource"))
        return Ticket(
            redirect_uri=redirect_uri,
            state=one.get("state"),
            scopes=self._grants.scopes(one.get("scope", "")),
            binding=digest(one["client_id"], redirect_uri, challenge),
            browser=digest(browser),
        )

    async def consent(self, request: HttpRequest[Never]) -> HttpResponse:
        """Send the user to the provider, or back to the client."""
        if request.headers.get("origin") != self._origin:
            raise ClientRejected("This form was not sent by the page that belongs to it.", status=403)
        form = _parameters(_form(request))
        ticket = self._of_browser(request, self._box.open(Ticket, form.get("ticket")))
        if form.get("answer") != "allow":
            return leaving_page(self._response_url(ticket, error="access_denied"), "the program")
        return leaving_page(self._provider_url(ticket), self._upstream.provider.name)

    def _provider_url(self, ticket: Ticket) -> str:
        upstream, verifier = self._upstream, secrets.token_urlsafe(32)
        state = State(**{**ticket.model_dump(), "expires": 0}, verifier=verifier)
        scopes = " ".join(upstream.provider.scopes)
        return with_query(
            upstream.provider.authorize_url,
            {
                "response_type": "code",
                "client_id": upstream.client_id,
                "redirect_uri": upstream.redirect_uri,
                "scope": scopes or None,
                "state": self._box.seal(state),
                "code_challenge": challenge_of(verifier),
                "code_challenge_method": S256,
                **upstream.provider.parameters,
            },
        )

    async def callback(self, request: HttpRequest[Never]) -> HttpResponse:
        """Send the browser back to the client, with a code around that of the provider."""
        one = _parameters(request.query)
        # Its code goes to the browser that has agreed, and to no other (CVE-2026-27124).
        login = self._of_browser(request, self._box.open(State, one.get("state")))
        code = one.get("code", "")
        if "error" in one or not 0 < len(code) <= MAX_CODE:
            denied = one.get("error") == "access_denied"
            return redirect(self._response_url(login, error="access_denied" if denied else "server_error"))
        sealed = Code(scopes=login.scopes, binding=login.binding, code=code, verifier=login.verifier)
        return redirect(self._response_url(login, code=self._box.seal(sealed)))

    def _response_url(self, login: Login, **parameters: str) -> str:
        return with_query(login.redirect_uri, {**parameters, "state": login.state, "iss": self._issuer})

    def _browser(self, request: HttpRequest[Never]) -> str | None:
        """Return the cookie; None if there is none, or it comes twice: then another site may have added one."""
        pairs = [each.strip().partition("=") for each in request.headers.get("cookie", "").split(";")]
        values = [value for name, _, value in pairs if name == self._cookie]
        return values[0] if len(values) == 1 and _COOKIE.fullmatch(values[0]) else None

    def _of_browser(self, request: HttpRequest[Never], login: L | None) -> L:
        """Return a login if it is one of the browser that sent the request. Raises `ClientRejected`."""
        browser = self._browser(request)
        if login is None or browser is None or not is_same(login.browser, digest(browser)):
            raise ClientRejected(OTHER_BROWSER)
        return login

    async def register(self, request: HttpRequest[Never]) -> HttpResponse:
        """Register a client (RFC 7591), by sealing what it says."""
        try:
            document = request.json()
        except ValueError:
            raise ClientRejected("the body is not JSON", "invalid_client_metadata") from None
        return _json(self._clients.register(document), 201)

    async def token(self, request: HttpRequest[Never]) -> HttpResponse:
        """Return tokens for a code or for a refresh token."""
        form = _parameters(_form(request))
        client_id = form.get("client_id", "")
        self._clients.check(client_id)
        self._grants.check_resource(form.get("resource"))
        match form.get("grant_type"):
            case "authorization_code":
                return await self._redeem(form, client_id)
            case "refresh_token":
                return await self._refresh(form, client_id)
            case _:
                raise ClientRejected("grant_type is authorization_code or refresh_token", "unsupported_grant_type")

    async def _redeem(self, form: Mapping[str, str], client_id: str) -> HttpResponse:
        code = self._box.open(Code, form.get("code"))
        challenge = challenge_of(form.get("code_verifier", ""))
        binding = digest(client_id, form.get("redirect_uri", ""), challenge)
        if code is None or not is_same(code.binding, binding):
            raise GrantRefused("the code is not one of this client, redirect URI and verifier, or older than a minute")
        return await self._issue(client_id, code.scopes, await self._upstream.redeem(code.code, code.verifier))

    async def _refresh(self, form: Mapping[str, str], client_id: str) -> HttpResponse:
        token = self._box.open(Refresh, form.get("refresh_token"))
        if token is None or not is_same(token.client, digest(client_id)):
            raise GrantRefused("the refresh token is not one of this client, or has expired")
        if token.refresh is not None:
            tokens = await self._upstream.refresh(token.refresh)
        else:
            tokens = Tokens(token.access or "", "bearer")
        return await self._issue(client_id, self._narrowed(token, form.get("scope")), tokens)

    def _narrowed(self, token: Refresh, asked: str | None) -> tuple[str, ...]:
        """Return the scopes of a refreshed token: those that it had, or fewer (RFC 6749, 6)."""
        kept = frozenset(token.scopes) & (frozenset(self._grants.offered()) | frozenset(self._grants.required))
        return tuple(sorted(kept if asked is None else kept & frozenset(self._grants.scopes(asked))))

    async def _issue(self, client_id: str, scopes: tuple[str, ...], tokens: Tokens) -> HttpResponse:
        user = await self._grants.user(tokens.access)
        if user is None:
            logger.info("identity= rejected a user of %s", self._upstream.provider.name)
            raise ClientRejected("this user may not use this server", "invalid_grant")
        principal, claims = user
        if self._grants.shows_upstream:
            claims = {**claims, "upstream_token": tokens.access}
        seconds = Access.LIFETIME
        if tokens.expires_at is not None:
            seconds = max(1, min(seconds, int(tokens.expires_at - time.time())))
        expires = int(time.time()) + seconds
        access = self._box.seal(Access(principal=principal, scopes=scopes, claims=claims, expires=expires))
        if len(access) > MAX_TOKEN:
            raise ProviderFailed(
                f"a token would have more than {MAX_TOKEN} characters: let identity= return fewer claims"
            )
        answer: JsonObject = {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": seconds,
            "scope": " ".join(scopes),
        }
        lasting = tokens.access if tokens.refresh is None and tokens.expires_at is None else None
        if tokens.refresh is not None or lasting is not None:
            kept = Refresh(client=digest(client_id), scopes=scopes, refresh=tokens.refresh, access=lasting)
            answer["refresh_token"] = self._box.seal(kept)
        return _json(answer)

    async def revoke(self, request: HttpRequest[Never]) -> HttpResponse:
        """Revoke the provider's token in a refresh token (RFC 7009). An access token is only good for an hour, and remains so."""
        form = _parameters(_form(request))
        client_id, url = form.get("client_id", ""), self._upstream.provider.revoke_url
        self._clients.check(client_id)
        if self._box.open(Access, form.get("token")) is not None:
            raise ClientRejected("an access token cannot be revoked", "unsupported_token_type")
        token = self._box.open(Refresh, form.get("token"))
        # One that is not good needs no revocation (RFC 7009, 2.2).
        if token is not None and url is not None and is_same(token.client, digest(client_id)):
            await self._upstream.revoke(url, token.refresh or token.access or "")
        return HttpResponse("", 200, headers=NO_STORE)

    async def document(self, _request: HttpRequest[Never]) -> HttpResponse:
        """Return the metadata."""
        return _json(self.metadata(), more=PUBLIC)

    def metadata(self) -> JsonObject:
        """Return the metadata of the authorization server (RFC 8414)."""
        below = f"{self._issuer.rstrip('/')}/oauth"
        revocation: JsonObject = {
            "revocation_endpoint": f"{below}/revoke",
            "revocation_endpoint_auth_methods_supported": ["none"],
        }
        return {
            "issuer": self._issuer,
            "authorization_endpoint": f"{below}/authorize",
            "token_endpoint": f"{below}/token",
            "registration_endpoint": f"{below}/register",
            **(revocation if self._upstream.provider.revoke_url is not None else {}),
            "scopes_supported": [*self._grants.scopes(" ".join(self._grants.offered()))],
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": [S256],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": True,
        }


def _form(request: HttpRequest[Never]) -> str:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise ClientRejected("the body is a form: application/x-www-form-urlencoded")
    return request.body.decode("latin-1")


def _parameters(query: str) -> dict[str, str]:
    """Return the parameters of a query or of a form. Raises `ClientRejected` if one comes twice."""
    try:
        return query_parameters(query)
    except ValueError as error:
        raise ClientRejected(f"The request {error}.") from None


def _json(value: JsonObject, status: int = 200, more: Mapping[str, str] = NO_STORE) -> HttpResponse:
    answer = HttpResponse.json(value, status)
    return HttpResponse(answer.body, status, answer.content_type, {**NO_STORE, **more})
