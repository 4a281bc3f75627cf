"""The credentials for one server: sends tokens, refreshes them, and logs in when the server asks for it."""

# Before a request, tokens that expire within 30 seconds are refreshed. A refresh runs under the lock of the store: the second
# client to get the lock finds new tokens there, and adopts them. A login runs in a task of the channel, survives the request that
# asked for it, and is joined by others that need one.

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ...base.groups import UnwrappedErrors
from ...base.logs import peer_logger
from ...base.values import shown_url
from ...errors import AuthorizationError, AuthorizationErrorKind as Kind
from .. import client as late
from ..addresses import reach_from
from ..challenges import Challenge
from ..uris import canonical, origin, over_http, split_url
from .browsing import browse
from .driver import BrowserFunction, Driver, no_browser
from .flow import INVALID_CLIENT, Flow, LoginRequest, client_of, log_in, without_refresh
from .grants import DPOP, Tokens, refresh
from .redirects import RedirectPage, open_redirect_page
from .responses import MAX_STEP_UPS, SCHEMES, Action, Tries, challenge_in, next_action
from .stored import Login, login_required

if TYPE_CHECKING:
    from .dpop import Proofs

logger = peer_logger("trio_mcp.auth")

EXPIRES_SOON: Final = 30.0
"""Seconds before the end of a token at which it is refreshed."""
REFRESH_SECONDS: Final = 20.0
"""Seconds from sending a refresh token until its answer is stored, in which no cancel comes through."""
LOGIN_SECONDS: Final = 300.0
STORE_SECONDS: Final = 5.0
"""Seconds in which what a login that failed leaves is stored, in which no cancel comes through."""
MAX_REMEMBERED: Final = 1000
"""Scopes that are remembered; a server that asks for more gets no further login."""


class Attempts:
    """One request and its repetitions; made by `Authorizer.attempts`."""

    def __init__(self, authorizer: Authorizer, method: str, url: str) -> None:
        self._authorizer = authorizer
        self._method = method
        self._url = url
        self._tries = Tries()
        self._sent: Tokens | None = None

    async def headers(self) -> Mapping[str, str]:
        """Return the headers to send now; none before the first login. Raises `AuthorizationError`."""
        self._sent = await self._authorizer.tokens()
        if self._sent is None:
            return {}
        return self._authorizer.headers_for(self._sent, self._method, self._url)

    async def retry(self, status: int, headers: Mapping[str, str]) -> bool:
        """Return whether to send the request again, with new `headers`, after whatever that needs.

        Args:
            headers: of the response, with names in lower case.

        Raises:
            AuthorizationError: there are no tokens that the server accepts.
        """
        is_new_nonce = self._authorizer.learn_nonce(self._url, headers)
        if status not in (401, 403):
            return False
        challenge = challenge_in(headers.get("www-authenticate", ""))
        while True:
            stored = await self._authorizer.stored_tokens()
            tried = max(self._tries.step_ups, self._authorizer.step_ups_for(challenge))
            tries = replace(self._tries, step_ups=tried)
            action = next_action(status, challenge.error, self._sent, stored, tries, is_new_nonce=is_new_nonce)
            if action is Action.RETURN:
                return False
            if await self._carry_out(action, challenge):
                return True

    async def _carry_out(self, action: Action, challenge: Challenge) -> bool:
        """Do what an action says, and return whether the request can be sent again."""
        authorizer, tries = self._authorizer, self._tries
        match action:
            case Action.PROVE:
                tries.proofs += 1
            case Action.ADOPT:
                tries.adoptions += 1
            case Action.REFRESH:
                tries.refreshes += 1
                assert self._sent is not None
                return await authorizer.refresh(self._sent)
            case Action.LOG_IN:
                tries.logins += 1
                await authorizer.log_in(challenge, self._sent)
            case Action.STEP_UP:
                tries.step_ups += 1
                await authorizer.log_in(challenge, self._sent, is_step_up=True)
            case _:
                text = f"{authorizer.shown} refuses every token that its own authorization server returns"
                raise AuthorizationError(text, kind=Kind.REFUSED)
        return True


class RunningLogin:
    """A login that requests wait for.

    Attributes:
        failure: why it failed; None after it succeeded.
    """

    def __init__(self) -> None:
        self.done = trio.Event()
        self.failure: AuthorizationError | None = AuthorizationError(
            "the client was closed during the login", kind=Kind.LOGIN_REQUIRED
        )


@asynccontextmanager
async def open_authorizer(flow: Flow, url: str) -> AsyncGenerator[Authorizer]:
    """Yield the credentials for a server. A login that still runs at the end of the block is cancelled.

    Raises:
        ValueError: the URL is malformed.
    """
    with UnwrappedErrors():
        async with trio.open_nursery() as nursery:
            yield Authorizer(flow, url, nursery)
            nursery.cancel_scope.cancel()


class Authorizer:
    """The credentials for one server, in one channel.

    Args:
        nursery: for logins.
        clock: returns the time, in seconds since 1970.

    Attributes:
        shown: the URL of the server, for errors.
    """

    def __init__(self, flow: Flow, url: str, nursery: trio.Nursery, clock: Callable[[], float] = time.time) -> None:
        self._flow = flow
        self._url = canonical(over_http(url))
        self.shown = shown_url(self._url)
        self._nursery = nursery
        self._clock = clock
        self._reach = reach_from(split_url(self._url).hostname or "")
        self._login: Login | None = None
        self._proofs: Proofs | None = None
        self._running: RunningLogin | None = None
        self._step_ups = Counter[str]()
        """How often each challenged scope led to a login in this channel."""

    # for requests

    def attempts(self, method: str, url: str) -> Attempts:
        """Return the credentials for a request and its repetitions."""
        return Attempts(self, method, over_http(url))

    async def ready(self) -> bool:
        """Return whether no login is needed that may take long: there is a token that has not expired, or no page may be opened.

        Raises `AuthorizationError`.
        """
        tokens = await self.tokens()
        if self._flow.browser is not None and not self._flow.interactive:
            return True
        return tokens is not None and not tokens.expires_within(0, self._clock())

    async def tokens(self) -> Tokens | None:
        """Return the tokens to send, after refreshing them if they expire soon. Raises `AuthorizationError`."""
        login = self._login or await self._load()
        if login is None or not login.has_tokens:
            return None
        if login.tokens.refresh is not None and login.tokens.expires_within(EXPIRES_SOON, self._clock()):
            await self.refresh(login.tokens)
        return None if self._login is None else self._login.tokens

    async def stored_tokens(self) -> Tokens | None:
        """Return the tokens that the store has now. Raises `AuthorizationError`."""
        login = await self._load()
        return None if login is None or not login.has_tokens else login.tokens

    def headers_for(self, tokens: Tokens, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that send a token; none to another origin."""
        if origin(url) != origin(self._url):
            return {}
        headers = {"authorization": f"{SCHEMES[tokens.kind]} {tokens.access}"}
        if tokens.kind == DPOP and self._proofs is not None:
            headers["dpop"] = self._proofs.proof(method, url, self._clock(), tokens.access)
        return headers

    def learn_nonce(self, url: str, headers: Mapping[str, str]) -> bool:
        """Keep the nonce for DPoP in the headers of a response, and return whether it is a new one."""
        return self._proofs is not None and self._proofs.learn(url, headers)

    def step_ups_for(self, challenge: Challenge) -> int:
        """Return how often the scopes of a challenge led to a login already (L-AUTH-9c)."""
        wanted = (challenge.scope or "").split()
        if len(self._step_ups) > MAX_REMEMBERED:
            return MAX_STEP_UPS
        return min((self._step_ups[scope] for scope in wanted), default=self._step_ups[""])

    # the store

    async def _load(self) -> Login | None:
        """Read the login from the store, and keep it."""
        found = await self._flow.store.read(self._url)
        self._keep(found if found is not None and self._flow.accepts(found) else None)
        return self._login

    def _keep(self, login: Login | None) -> None:
        key = None if login is None else login.dpop_key
        if key is not None and (self._proofs is None or self._proofs.key != key):
            self._proofs = late.dpop.Proofs(key)
        self._login = login

    # refreshing

    async def refresh(self, sent: Tokens) -> bool:
        """Refresh tokens unless another client has done so, and return whether there are others than `sent` now.

        Raises:
            AuthorizationError: the authorization server cannot be asked now; everything is kept.

        A cancel waits until the answer to a request that was sent has been stored: the refresh token is used up.
        """
        async with self._flow.store.lock(self._url):
            login = await self._load()
            if login is None or login.tokens.access != sent.access:
                return login is not None and login.has_tokens
            if login.tokens.refresh is None:
                return False
            with trio.move_on_after(REFRESH_SECONDS, shield=True):
                return await self._refresh_stored(login)
        raise AuthorizationError(f"refreshing took more than {REFRESH_SECONDS:g} seconds", kind=Kind.UNAVAILABLE)

    async def _refresh_stored(self, login: Login) -> bool:
        driver = self._driver(named=login.named_origins)
        renewed = None
        try:
            tokens = await driver.run(refresh(client_of(self._flow, login, self._clock), login.tokens))
            renewed = login.with_tokens(tokens)
        except AuthorizationError as error:
            if error.oauth_error not in ("invalid_grant", INVALID_CLIENT):
                text = f"the tokens cannot be refreshed now: {error.args[0]}"
                raise AuthorizationError(text, kind=Kind.UNAVAILABLE) from None
            logger.info("the refresh token for %s was refused: %s", self.shown, error.oauth_error)
            await self._store(without_refresh(login, forget_client=error.oauth_error == INVALID_CLIENT))
            return False
        await self._store(renewed)
        return True

    async def _store(self, login: Login) -> None:
        # Stored before it is used: a process that ends in between must not lose it.
        await self._flow.store.write(login)
        self._keep(login)

    # logging in

    async def log_in(self, challenge: Challenge, sent: Tokens | None, *, is_step_up: bool = False) -> Login:
        """Log in, or join a login that runs, and return the login when it has other tokens than `sent`.

        Raises:
            AuthorizationError: the login failed, or this program may not ask the user.

        A cancel leaves the login running, for the next request that needs it.
        """
        running = self._running
        if running is None:
            running = self._running = RunningLogin()
            self._nursery.start_soon(partial(self._run_login, running, challenge, sent, is_step_up=is_step_up))
        await running.done.wait()
        if running.failure is not None:
            failure = running.failure
            raise AuthorizationError(*failure.args, kind=failure.kind, oauth_error=failure.oauth_error)
        assert self._login is not None
        return self._login

    async def _run_login(
        self, running: RunningLogin, challenge: Challenge, sent: Tokens | None, *, is_step_up: bool
    ) -> None:
        try:
            with trio.fail_after(LOGIN_SECONDS):
                await self._log_in_once(challenge, sent, is_step_up=is_step_up)
            running.failure = None
        except AuthorizationError as error:
            running.failure = error
        except trio.TooSlowError:
            text = f"the login at {self.shown} was not completed within {LOGIN_SECONDS:g} seconds"
            running.failure = AuthorizationError(text, kind=Kind.LOGIN_REQUIRED)
        finally:
            self._running = None
            running.done.set()

    async def _log_in_once(self, challenge: Challenge, sent: Tokens | None, *, is_step_up: bool) -> None:
        before = await self._load()
        if before is not None and before.has_tokens and (sent is None or before.tokens.access != sent.access):
            return
        if is_step_up:
            self._step_ups.update((challenge.scope or "").split() or [""])
        if self._flow.browser is not None and not self._flow.interactive:
            raise self._login_required(challenge, before, is_step_up=is_step_up)
        if self._flow.dpop and self._proofs is None:
            self._proofs = late.dpop.Proofs()
        key = self._proofs.key if self._flow.dpop and self._proofs is not None else None
        request = LoginRequest(url=self._url, challenge=challenge, before=before, is_step_up=is_step_up, dpop_key=key)
        try:
            login = await self._with_page(request)
        except BaseException:
            with trio.move_on_after(STORE_SECONDS, shield=True):
                await self._keep_registration(request)
            raise
        async with self._flow.store.lock(self._url):
            await self._store(login)
        logger.info("logged in to %s at %s", self.shown, shown_url(login.server.issuer))

    async def _keep_registration(self, request: LoginRequest) -> None:
        """Store the client that was registered for a login that failed, unless another login has succeeded meanwhile."""
        if not request.registered:
            return
        try:
            async with self._flow.store.lock(self._url):
                if await self._flow.store.read(self._url) is None:
                    await self._flow.store.write(request.registered[0])
        except AuthorizationError as error:
            logger.info("the registration at %s was not stored: %s", self.shown, error)

    def _driver(self, browser: BrowserFunction = no_browser, named: frozenset[str] = frozenset()) -> Driver:
        named |= self._flow.named
        return Driver(reach=self._reach, clock=self._clock, proofs=self._proofs, browse=browser, named=named)

    async def _with_page(self, request: LoginRequest) -> Login:
        """Run the steps of a login, with the page of the redirect if its grant has one."""
        if self._flow.browser is None:
            return await self._run_steps(request, None)
        known = None if request.before is None else request.before.registration.redirect_uri
        async with open_redirect_page(self._flow.redirect_port, known) as page:
            return await self._run_steps(request, page)

    async def _run_steps(self, request: LoginRequest, page: RedirectPage | None) -> Login:
        if page is None:
            driver = self._driver()
        else:
            request = replace(request, redirect_uri=page.uri)
            assert self._flow.browser is not None
            driver = self._driver(partial(browse, self._flow.browser, page, self._url))
        grant = await self._flow.grant()
        return await driver.run(log_in(self._flow, grant, request, self._clock))

    def _login_required(self, challenge: Challenge, before: Login | None, *, is_step_up: bool) -> AuthorizationError:
        """Return the error of a program that may open no page; it says what to write in a terminal."""
        if not is_step_up:
            return login_required(self._url)
        wanted = dict.fromkeys([*(before.scopes if before is not None else ()), *(challenge.scope or "").split()])
        options = "".join(f" --scope {shlex.quote(scope)}" for scope in wanted)
        return login_required(self._url, "the token lacks scopes that this needs; log in again", options)
