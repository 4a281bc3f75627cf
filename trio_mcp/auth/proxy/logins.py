"""The half of a login that happens in the browser of the user: consent, the provider, and the way back to the client.

Until the user has agreed, the browser is sent nowhere: anyone can register a redirect URI, and a redirect without a question
would lead from this site to any other. So what is wrong before that is shown on a page, and not sent to the client.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Final, Never, TypeVar

from ...http import HttpRequest, HttpResponse
from ..client.code import S256, challenge_of
from ..uris import origin
from .issuer import Issuer
from .pages import consent_page, leaving_page, redirect, with_query
from .rejections import Rejected, form_of, parameters
from .sealed import Code, Login, State, Ticket, digest, is_same

MAX_LONG_URL: Final = 2_000
"""Characters of the URL at the provider: some browsers and proxies take no longer one."""
MAX_CODE: Final = 4_096
"""Characters of a code of the provider."""

_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{32}")

OTHER_BROWSER: Final = (
    "This page is more than ten minutes old, was opened in another browser, or cookies are blocked. Start again in the program "
    "where you want to log in."
)

L = TypeVar("L", bound=Login)


class Logins:
    """The functions of the routes for browsers."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        self._origin = origin(issuer.resource)
        # Only a page of this very host can have set a cookie with this prefix (RFC 6265bis, 4.1.3.2). It needs https.
        secure = self._origin.startswith("https:")
        self._cookie = "__Host-mcp-login" if secure else "mcp-login"
        # For the consent page, and then for the login at the provider.
        lifetime = f"Max-Age={2 * Login.LIFETIME}{'; Secure' if secure else ''}"
        self._attributes = f"Path=/; HttpOnly; SameSite=Lax; {lifetime}"

    async def authorize(self, request: HttpRequest[Never]) -> HttpResponse:
        """Ask the user for consent, each time: the provider may log its user in without a question (GHSA-c2jp-c369-7pvx)."""
        one = parameters(request.query)
        client = await self._issuer.clients.find(one.get("client_id", ""), request.client)
        if one.get("redirect_uri", "") not in client.redirect_uris:
            raise Rejected("The program wants you to be sent back to a place that it has not registered.")
        browser = self._browser(request) or secrets.token_urlsafe(24)
        ticket = self._ticket(one, browser)
        if len(self._provider_url(ticket)) > MAX_LONG_URL:
            raise Rejected("The program has sent more than fits into a URL: a shorter state or redirect URI would do.")
        return consent_page(
            client,
            one["client_id"],
            ticket,
            resource=self._issuer.resource,
            provider=self._issuer.upstream.provider.name,
            sealed=self._issuer.box.seal(ticket),
            cookie=f"{self._cookie}={browser}; {self._attributes}",
        )

    def _ticket(self, one: Mapping[str, str], browser: str) -> Ticket:
        if one.get("response_type") != "code" or one.get("response_mode", "query") != "query":
            raise Rejected("The program asks for another answer than a code in the query.")
        challenge = one.get("code_challenge", "")
        if one.get("code_challenge_method") != S256 or not _CHALLENGE.fullmatch(challenge):
            raise Rejected("The program does not use PKCE with S256.")
        self._issuer.check_resource(one.get("resource"))
        return Ticket(
            redirect_uri=one["redirect_uri"],
            state=one.get("state"),
            scopes=self._issuer.granted(one.get("scope", "")),
            binding=digest(one["client_id"], one["redirect_uri"], challenge),
            browser=digest(browser),
        )

    async def consent(self, request: HttpRequest[Never]) -> HttpResponse:
        """Send the user to the provider, or back to the client."""
        if request.headers.get("origin") != self._origin:
            raise Rejected("This form was not sent by the page that belongs to it.", status=403)
        form = form_of(request)
        ticket = self._of_browser(request, self._issuer.box.open(Ticket, form.get("ticket")))
        if form.get("answer") != "allow":
            return leaving_page(self._response_url(ticket, error="access_denied"), "the program")
        return leaving_page(self._provider_url(ticket), self._issuer.upstream.provider.name)

    def _provider_url(self, ticket: Ticket) -> str:
        verifier = secrets.token_urlsafe(32)
        state = State(**{**ticket.model_dump(), "expires": 0}, verifier=verifier)
        return self._issuer.upstream.authorization_url(self._issuer.box.seal(state), challenge_of(verifier))

    async def callback(self, request: HttpRequest[Never]) -> HttpResponse:
        """Send the browser back to the client, with a code around that of the provider."""
        one = parameters(request.query)
        # Its code goes to the browser that has agreed, and to no other (CVE-2026-27124).
        login = self._of_browser(request, self._issuer.box.open(State, one.get("state")))
        code = one.get("code", "")
        if "error" in one or not 0 < len(code) <= MAX_CODE:
            denied = one.get("error") == "access_denied"
            return redirect(self._response_url(login, error="access_denied" if denied else "server_error"))
        sealed = Code(scopes=login.scopes, binding=login.binding, code=code, verifier=login.verifier)
        return redirect(self._response_url(login, code=self._issuer.box.seal(sealed)))

    def _response_url(self, login: Login, **answer: str) -> str:
        return with_query(login.redirect_uri, {**answer, "state": login.state, "iss": self._issuer.resource})

    def _browser(self, request: HttpRequest[Never]) -> str | None:
        """Return the cookie; None if there is none, or it comes twice: then another site may have added one."""
        # Other spaces belong to the name: with one in front it is no `__Host-` cookie to a browser, and any sibling can set it.
        pairs = [each.strip(" \t").partition("=") for each in request.headers.get("cookie", "").split(";")]
        values = [value for name, _, value in pairs if name == self._cookie]
        return values[0] if len(values) == 1 and _COOKIE.fullmatch(values[0]) else None

    def _of_browser(self, request: HttpRequest[Never], login: L | None) -> L:
        """Return a login if it is one of the browser that sent the request. Raises `Rejected`."""
        browser = self._browser(request)
        if login is None or browser is None or not is_same(login.browser, digest(browser)):
            raise Rejected(OTHER_BROWSER)
        return login
