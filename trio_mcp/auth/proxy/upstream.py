"""The requests of an `OAuthProxy` to its provider."""

from __future__ import annotations

import time
from typing import Final

from ...errors import AuthorizationError, AuthorizationErrorKind as Kind
from ...types import JsonObject
from ..addresses import Reach
from ..client.client_authentication import authenticated
from ..client.discovery import ServerMetadata
from ..client.driver import Driver
from ..client.grants import ClientAtServer, Tokens, refresh as refresh_grant, token_request
from ..client.registration import BASIC, POST, Registration
from ..fetching import fetch
from .providers import OAuthProvider

REFUSALS: Final = frozenset(
    {
        # RFC 6749, 5.2
        "invalid_grant",
        # GitHub
        "bad_verification_code",
        "bad_refresh_token",
        # OpenID Connect, 3.1.2.6: what Entra answers when the user must do something
        "interaction_required",
        "login_required",
        "consent_required",
        "access_denied",
    }
)
"""Errors that mean that a user must log in again. Any other is about this server, or passes."""


class GrantRefused(Exception):
    """The provider does not accept a code or a token: the user must log in again. The text is for the log."""


class ProviderFailed(Exception):
    """The provider cannot be asked now, or does not accept this server. The text is for the log."""


class Upstream:
    """Makes the requests to a provider. A cancel ends one; it may have arrived.

    Args:
        redirect_uri: to which the provider sends browsers.
    """

    def __init__(self, provider: OAuthProvider, client_id: str, client_secret: str, redirect_uri: str) -> None:
        self.provider = provider
        self.client_id = client_id
        self.redirect_uri = redirect_uri
        method = BASIC if provider.basic else POST
        self._client = ClientAtServer(
            server=ServerMetadata(provider.authorize_url, provider.token_url),
            registration=Registration(provider.authorize_url, client_id, client_secret, method),
            resource=None,
        )
        self._driver = Driver(reach=Reach.CONFIGURED, clock=time.time)

    async def redeem(self, code: str, verifier: str) -> Tokens:
        """Return the tokens for a code. Raises `GrantRefused`, `ProviderFailed`."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": verifier,
        }
        try:
            return await self._driver.run(token_request(self._client, form, None))
        except AuthorizationError as error:
            raise self._failure(error) from None

    async def refresh(self, token: str) -> Tokens:
        """Return new tokens; the refresh token in them may be the same. Raises `GrantRefused`, `ProviderFailed`."""
        try:
            return await self._driver.run(refresh_grant(self._client, Tokens("", "bearer", refresh=token)))
        except AuthorizationError as error:
            raise self._failure(error) from None

    async def user(self, token: str) -> JsonObject:
        """Return what the provider says of the user of an access token. Raises `GrantRefused`, `ProviderFailed`."""
        provider = self.provider
        try:
            headers = {"authorization": f"Bearer {token}"}
            reply = await fetch(provider.user_url, Reach.CONFIGURED, headers=headers)
            if reply.status == 401:
                raise GrantRefused(f"{provider.name} does not accept the access token")
            if reply.status != 200:
                raise ProviderFailed(f"{provider.name} answered HTTP {reply.status} when it was asked about the user")
            return reply.document(f"what {provider.name} says of the user")
        except AuthorizationError as error:
            raise self._failure(error) from None

    async def revoke(self, url: str, token: str) -> None:
        """Revoke a refresh token (RFC 7009). Raises `ProviderFailed`."""
        client = self._client
        form = {"token": token, "token_type_hint": "refresh_token"}
        signed = authenticated(form, client.registration, client.server, None, time.time())
        try:
            reply = await fetch(url, Reach.CONFIGURED, form=signed.form, headers=signed.headers)
        except AuthorizationError as error:
            raise self._failure(error) from None
        # Google answers 400 for a token that is no longer good.
        if reply.status not in (200, 400):
            raise ProviderFailed(f"{self.provider.name} answered HTTP {reply.status} to a revocation")

    def _failure(self, error: AuthorizationError) -> GrantRefused | ProviderFailed:
        kind = GrantRefused if error.kind is Kind.TOKEN and error.oauth_error in REFUSALS else ProviderFailed
        return kind(f"{self.provider.name}: {error}")
