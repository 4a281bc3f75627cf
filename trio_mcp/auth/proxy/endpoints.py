"""The routes of an `OAuthProxy`: an authorization server with the code flow (OAuth 2.1), whose users log in at a provider.

client        browser                    here                        provider
register -------------------------------> a sealed client id
              authorize ----------------> consent page, cookie
              consent ------------------> sealed state ------------> log in
              callback <------------------------------------------- code
              <--------------------------- our code, sealed around that of the provider
token ----------------------------------> redeem both -------------> tokens, user
<---------------------------------------- sealed tokens
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Final, Never

from ...base.shared_limits import PROVIDER_REQUESTS
from ...errors import RemoteProtocolError
from ...http import HttpHandler, HttpRequest, HttpResponse, HttpRoute
from ...protocol.strict_json import loads
from ...runtime.quota import Quota
from ...types import JsonObject
from ..client.code import S256, challenge_of
from ..client.grants import Tokens
from ..server.verifier import MAX_TOKEN
from ..uris import OPENID_METADATA
from .issuer import Issuer
from .logins import Logins
from .rejections import (
    Rejected,
    counted,
    form_of,
    json_response,
    log_in_again,
    returns_errors,
    shows_errors,
    try_later,
)
from .sealed import Access, Code, Refresh, digest, is_same

MAX_BODY: Final = 64 * 1024
"""Bytes of the body of a request: two sealed values, and what is sent with them."""
CALLBACK: Final = "/oauth/callback"
"""Below the issuer."""
VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")
"""What RFC 7636, 4.1 demands of a code verifier. Anyone has an empty one, or guesses a short one."""
PUBLIC: Final = {"cache-control": "max-age=300", "access-control-allow-origin": "*"}


class Endpoints:
    """The functions of the routes for clients."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        # Anyone can make a code that the provider is asked about: a callback may have any.
        self._waiting = Quota(PROVIDER_REQUESTS)

    def routes(self, endpoint: str) -> Sequence[HttpRoute]:
        """Return all routes, below the path of an endpoint; no request needs a token for them."""
        below, logins = endpoint.rstrip("/"), Logins(self._issuer)

        def route(path: str, handler: HttpHandler, method: str) -> HttpRoute:
            return HttpRoute(below + path, handler, frozenset({method}), public=True, max_body=MAX_BODY)

        return [
            route(OPENID_METADATA, self.document, "GET"),
            route("/oauth/register", returns_errors(self.register), "POST"),
            route("/oauth/authorize", shows_errors(logins.authorize), "GET"),
            route("/oauth/consent", shows_errors(logins.consent), "POST"),
            route(CALLBACK, shows_errors(logins.callback), "GET"),
            route("/oauth/token", returns_errors(self.token), "POST"),
            route("/oauth/revoke", returns_errors(self.revoke), "POST"),
        ]

    async def register(self, request: HttpRequest[Never]) -> HttpResponse:
        """Register a client (RFC 7591), by sealing what it says."""
        try:
            document = loads(request.body)
        except RemoteProtocolError:
            raise Rejected("the body is not JSON", "invalid_client_metadata") from None
        return json_response(self._issuer.clients.register(document), 201)

    async def token(self, request: HttpRequest[Never]) -> HttpResponse:
        """Return tokens for a code or for a refresh token."""
        form = form_of(request)
        client_id = form.get("client_id", "")
        self._issuer.clients.check(client_id)
        self._issuer.check_resource(form.get("resource"))
        match form.get("grant_type"):
            case "authorization_code":
                grant = self._redeem
            case "refresh_token":
                grant = self._refresh
            case _:
                raise Rejected("grant_type is authorization_code or refresh_token", "unsupported_grant_type")
        with counted(self._waiting, request.client):
            return await grant(form, client_id)

    async def _redeem(self, form: Mapping[str, str], client_id: str) -> HttpResponse:
        code, verifier = self._issuer.box.open(Code, form.get("code")), form.get("code_verifier", "")
        if not VERIFIER.fullmatch(verifier):
            raise Rejected("code_verifier has 43 to 128 of the characters A-Z a-z 0-9 - . _ ~", "invalid_grant")
        binding = digest(client_id, form.get("redirect_uri", ""), challenge_of(verifier))
        if code is None or not is_same(code.binding, binding):
            raise log_in_again("the code is not one of this client, redirect URI and verifier, or older than a minute")
        tokens = await self._issuer.upstream.redeem(code.code, code.verifier)
        return await self._issue(client_id, code.scopes, tokens)

    async def _refresh(self, form: Mapping[str, str], client_id: str) -> HttpResponse:
        token = self._issuer.box.open(Refresh, form.get("refresh_token"))
        if token is None or not is_same(token.client, digest(client_id)):
            raise log_in_again("the refresh token is not one of this client, or has expired")
        # Those that it had, or fewer (RFC 6749, 6).
        scopes = self._issuer.scopes.intersection(token.scopes)
        if "scope" in form:
            scopes &= frozenset(self._issuer.granted(form["scope"]))
        if token.refresh is None:
            tokens = Tokens(token.access or "", "bearer")
        else:
            tokens = await self._issuer.upstream.refresh(token.refresh)
        return await self._issue(client_id, tuple(sorted(scopes)), tokens, token.principal)

    async def _issue(
        self, client_id: str, scopes: tuple[str, ...], tokens: Tokens, expected: str | None = None
    ) -> HttpResponse:
        principal, claims = await self._issuer.user(tokens.access)
        if expected not in (None, principal):
            raise log_in_again("the provider names another user than at the login")
        if self._issuer.shows_upstream:
            claims = {**claims, "upstream_token": tokens.access}
        now, seconds = int(time.time()), Access.LIFETIME
        if tokens.expires_at is not None:
            seconds = max(1, min(seconds, int(tokens.expires_at) - now))
        token = Access(principal=principal, scopes=scopes, claims=claims, expires=now + seconds)
        access = self._issuer.box.seal(token)
        if len(access) > MAX_TOKEN:
            raise try_later(f"a token would have more than {MAX_TOKEN} characters: let identity= return fewer claims")
        lasting = tokens.access if tokens.refresh is None and tokens.expires_at is None else None
        kept = Refresh(
            client=digest(client_id), principal=principal, scopes=scopes, refresh=tokens.refresh, access=lasting
        )
        answer: JsonObject = {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": seconds,
            "scope": " ".join(scopes),
            **({"refresh_token": self._issuer.box.seal(kept)} if tokens.refresh or lasting else {}),
        }
        return json_response(answer)

    async def revoke(self, request: HttpRequest[Never]) -> HttpResponse:
        """Revoke the provider's token in a refresh token (RFC 7009). An access token is only good for an hour, and remains so."""
        form, box = form_of(request), self._issuer.box
        client_id = form.get("client_id", "")
        self._issuer.clients.check(client_id)
        if box.open(Access, form.get("token")) is not None:
            raise Rejected("an access token cannot be revoked", "unsupported_token_type")
        token = box.open(Refresh, form.get("token"))
        # One that is not good needs no revocation (RFC 7009, 2.2).
        if token is not None and is_same(token.client, digest(client_id)):
            with counted(self._waiting, request.client):
                await self._issuer.upstream.revoke(token.refresh or token.access or "")
        return json_response({})

    async def document(self, _request: HttpRequest[Never]) -> HttpResponse:
        """Return the metadata."""
        return json_response(self.metadata(), headers=PUBLIC)

    def metadata(self) -> JsonObject:
        """Return the metadata of the authorization server (RFC 8414)."""
        below = f"{self._issuer.resource.rstrip('/')}/oauth"
        revokes = self._issuer.upstream.provider.revoke_url is not None
        return {
            "issuer": self._issuer.resource,
            "authorization_endpoint": f"{below}/authorize",
            "token_endpoint": f"{below}/token",
            "registration_endpoint": f"{below}/register",
            **({"revocation_endpoint": f"{below}/revoke"} if revokes else {}),
            "revocation_endpoint_auth_methods_supported": ["none"],
            "scopes_supported": [*sorted(self._issuer.scopes)],
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": [S256],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": True,
        }
