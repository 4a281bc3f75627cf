"""The requests of an `OAuthProxy` to its provider."""

from __future__ import annotations

import time
from typing import Final

from ...errors import AuthorizationError, AuthorizationErrorKind as Kind
from ...types import JsonObject
from ..addresses import Reach
from ..client.client_authentication import authenticated
from ..client.code import S256
from ..client.discovery import ServerMetadata
from ..client.driver import Driver
from ..client.grants import ClientAtServer, Tokens, refresh, token_request
from ..client.registration import BASIC, POST, Registration
from ..client.steps import Steps
from ..fetching import fetch
from .pages import with_query
from .providers import OAuthProvider
from .rejections import Rejected, log_in_again, try_later

# RFC 6749, 5.2; GitHub; what Entra answers when the user must do something (OpenID Connect, 3.1.2.6)
REFUSALS: Final = frozenset(
    [
        "invalid_grant",
        "bad_verification_code",
        "bad_refresh_token",
        "interaction_required",
        "login_required",
        "consent_required",
    ]
)
"""Errors that mean that a user must log in again. Any other is about this server, or passes."""


class Upstream:
    """Makes the requests to a provider. A cancel ends one; it may have arrived.

    Args:
        redirect_uri: to which the provider sends browsers.
    """

    def __init__(self, provider: OAuthProvider, client_id: str, client_secret: str, redirect_uri: str) -> None:
        self.provider = provider
        method = BASIC if provider.basic else POST
        self._client = ClientAtServer(
            server=ServerMetadata(provider.authorize_url, provider.token_url),
            registration=Registration(provider.authorize_url, client_id, client_secret, method),
            resource=None,
            redirect_uri=redirect_uri,
        )

    def authorization_url(self, state: str, challenge: str) -> str:
        """Return the URL at which a user logs in."""
        return with_query(
            self.provider.authorize_url,
            {
                "response_type": "code",
                "client_id": self._client.registration.client_id,
                "redirect_uri": self._client.redirect_uri,
                "scope": " ".join(self.provider.scopes) or None,
                "state": state,
                "code_challenge": challenge,
                "code_challenge_method": S256,
                **self.provider.parameters,
            },
        )

    async def redeem(self, code: str, verifier: str) -> Tokens:
        """Return the tokens for a code. Raises `Rejected`."""
        where = {"redirect_uri": self._client.redirect_uri, "code_verifier": verifier}
        return await self._tokens(
            token_request(self._client, {"grant_type": "authorization_code", "code": code, **where}, None)
        )

    async def refresh(self, token: str) -> Tokens:
        """Return new tokens; the refresh token in them may be the same. Raises `Rejected`."""
        return await self._tokens(refresh(self._client, Tokens("", "bearer", refresh=token)))

    async def _tokens(self, steps: Steps[Tokens]) -> Tokens:
        try:
            return await Driver(reach=Reach.CONFIGURED, clock=time.time).run(steps)
        except AuthorizationError as error:
            refused = error.kind is Kind.TOKEN and error.oauth_error in REFUSALS
            raise (log_in_again if refused else try_later)(f"{self.provider.name}: {error}") from None

    async def user(self, token: str) -> JsonObject:
        """Return what the provider says of the user of an access token. Raises `Rejected`."""
        name = self.provider.name
        try:
            headers = {"authorization": f"Bearer {token}"}
            reply = await fetch(self.provider.user_url, Reach.CONFIGURED, headers=headers)
            if reply.status == 401:
                raise log_in_again(f"{name} does not accept the access token")
            if reply.status != 200:
                raise try_later(f"{name} answered HTTP {reply.status} when it was asked about the user")
            return reply.document(f"what {name} says of the user")
        except AuthorizationError as error:
            raise try_later(f"{name}: {error}") from None

    async def revoke(self, token: str) -> None:
        """Revoke a token (RFC 7009). Raises `Rejected`, also if the provider does not do that."""
        client, url = self._client, self.provider.revoke_url
        if url is None:
            raise Rejected(f"{self.provider.name} revokes no tokens", "unsupported_token_type")
        signed = authenticated({"token": token}, client.registration, client.server, None, time.time())
        try:
            reply = await fetch(url, Reach.CONFIGURED, form=signed.form, headers=signed.headers)
        except AuthorizationError as error:
            raise try_later(f"{self.provider.name}: {error}") from None
        # Google answers 400 for a token that is no longer good.
        if reply.status not in (200, 400):
            raise try_later(f"{self.provider.name} answered HTTP {reply.status} to a revocation")
