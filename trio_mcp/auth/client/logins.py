"""Logging in and out at once, apart from any connection: what `trio-mcp login` and `logout` do."""

from __future__ import annotations

import time

from ...client.dialects import probe
from ...errors import AuthorizationError
from ..addresses import Reach, reach_from
from ..fetching import fetch
from ..uris import canonical, over_http, split_url
from .client_authentication import authenticated, sent_values
from .driver import Driver
from .options import OAuth
from .responses import challenge_in
from .steps import Post, Steps, fetched, rejection
from .stored import Login, TokenStore


async def log_in(settings: OAuth, url: str) -> Login:
    """Log in to a server, also if there is a login already, and return the login.

    Raises:
        AuthorizationError: the login failed; a login that was there stays.
        ValueError: the URL is malformed.
    """
    place = canonical(over_http(url))
    request = probe()
    # The program names the server, wherever it is.
    reply = await fetch(place, Reach.CONFIGURED, json=request.message, headers=request.headers)
    async with settings.open(place) as authorizer:
        challenge = challenge_in(reply.headers.get("www-authenticate", ""))
        return await authorizer.log_in(challenge, await authorizer.stored_tokens())


async def log_out(store: TokenStore, url: str) -> AuthorizationError | None:
    """Revoke the tokens for a server, and delete its login.

    Returns:
        why the tokens could not be revoked; None if they were, or there was no login.

    Raises:
        AuthorizationError: the store cannot be used.
    """
    place = canonical(over_http(url))
    async with store.lock(place):
        login = await store.read(place)
        if login is None or not login.has_tokens:
            return None
        failure = None
        try:
            reach = reach_from(split_url(place).hostname or "")
            driver = Driver(reach=reach, clock=time.time, named=login.named_origins)
            await driver.run(revoke(login, time.time()))
        except AuthorizationError as error:
            failure = error
        await store.delete(place)
        return failure


def revoke(login: Login, now: float) -> Steps[None]:
    """Revoke the tokens of a login, the refresh token first (RFC 7009).

    Raises:
        AuthorizationError: the authorization server revokes no tokens, or not these.
    """
    endpoint = login.server.endpoint("revocation_endpoint", login.server.revocation_endpoint)
    if login.tokens.refresh is not None:
        yield from revoke_one(endpoint, login, "refresh_token", login.tokens.refresh, now)
    try:
        yield from revoke_one(endpoint, login, "access_token", login.tokens.access, now)
    except AuthorizationError as error:
        # Many servers cannot revoke an access token that is a JWT. It expires soon, and cannot be refreshed.
        if login.tokens.refresh is None or error.oauth_error != "unsupported_token_type":
            raise


def revoke_one(endpoint: str, login: Login, hint: str, token: str, now: float) -> Steps[None]:
    form = {"token": token, "token_type_hint": hint}
    signed = authenticated(form, login.registration, login.server, None, now)
    reply = yield from fetched(Post(endpoint, form=signed.form, headers=signed.headers))
    if reply.status != 200:
        raise rejection("the revocation", reply, sent=sent_values(signed, login.registration))
