"""An `OAuthProxy` in this process: the provider behind it, the browser of a user, and the client that logs in."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from trio_mcp import Caller
from trio_mcp.auth import GITHUB, OAuthProvider, OAuthProxy, ProtectedResource, fetching
from trio_mcp.auth.addresses import Reach
from trio_mcp.auth.client.code import challenge_of
from trio_mcp.auth.replies import Reply
from trio_mcp.errors import AuthorizationError, AuthorizationErrorKind
from trio_mcp.http import HttpRequest, HttpResponse
from trio_mcp.session import KeyRing

RESOURCE = "https://mcp.example.com/mcp"
ORIGIN = "https://mcp.example.com"
COOKIE = "__Host-mcp-login"
REDIRECT = "http://127.0.0.1:8765/callback"
SECRET = "the-secret-of-this-server"
KEYS = KeyRing([b"k" * 32])
FORM = {"content-type": "application/x-www-form-urlencoded"}


class StandIn:
    """A provider that speaks as its documentation says.

    Attributes:
        users: what it says of each user, by access token.
        codes: the challenge of each code that was not redeemed.
        refreshable: the refresh tokens that are good.
        expires_in: of access tokens; None for those that do not expire.
        issues_refresh: whether it issues refresh tokens.
        token_reply: what the token endpoint answers, in place of its answer.
        user_reply: what it answers when it is asked about a user.
        revoke_status: of the answer to a revocation.
        down: whether it cannot be reached.
        silent: the URL at which it never answers; empty for none.
        documents: what is at other URLs.
        document_type: the content type of all of them.
        seen: the requests, with their forms and headers.
    """

    def __init__(self, provider: OAuthProvider, user: Mapping[str, Any]) -> None:
        self.provider = provider
        self.user = dict(user)
        self.codes: dict[str, str] = {}
        self.refreshable: set[str] = set()
        self.access: set[str] = set()
        self.expires_in: int | None = 3600
        self.issues_refresh = True
        self.token_reply: Reply | None = None
        self.user_reply: Reply | None = None
        self.revoke_status = 200
        self.down = False
        self.silent = ""
        self.documents: dict[str, Any] = {}
        self.document_type = "application/json"
        self.seen: list[tuple[str, Mapping[str, str], Mapping[str, str]]] = []
        self._issued = 0

    def log_in(self, url: str) -> dict[str, str]:
        """Do what the provider does for a user who agrees, and return the query of the redirect."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert url.startswith(f"{self.provider.authorize_url}?")
        assert query["redirect_uri"] == f"{RESOURCE}/oauth/callback"
        assert query["code_challenge_method"] == "S256"
        code = self._new("code")
        self.codes[code] = query["code_challenge"]
        return {"code": code, "state": query["state"]}

    async def fetch(
        self,
        url: str,
        reach: Reach,
        *,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        **_options: Any,
    ) -> Reply:
        self.seen.append((url, form or {}, headers or {}))
        if self.down:
            raise AuthorizationError(f"{url} cannot be reached", kind=AuthorizationErrorKind.UNAVAILABLE)
        if url == self.silent:
            return await fetching.fetch(url, reach, form=form, headers=headers)
        if url == self.provider.token_url:
            assert form is not None
            return self.token_reply or self._token(form, headers or {})
        if url == self.provider.user_url:
            return self.user_reply or self._user(headers or {})
        if url == self.provider.revoke_url:
            self.refreshable.discard(form["token"])
            return Reply(self.revoke_status)
        return answer(self.documents[url], kind=self.document_type) if url in self.documents else Reply(404)

    def _new(self, kind: str) -> str:
        self._issued += 1
        return f"{kind}-of-the-provider-{self._issued}"

    def _token(self, form: Mapping[str, str], headers: Mapping[str, str]) -> Reply:
        if self.provider.basic:
            assert "client_secret" not in form
            assert headers["authorization"] == f"Basic {b64encode(f'proxy:{SECRET}'.encode()).decode()}"
        else:
            assert (form["client_id"], form["client_secret"]) == ("proxy", SECRET)
        if form["grant_type"] == "authorization_code":
            challenge = self.codes.pop(form["code"], None)
            if challenge is None or challenge != challenge_of(form["code_verifier"]):
                return self._rejected("bad_verification_code", "invalid_grant")
        elif form["refresh_token"] not in self.refreshable:
            return self._rejected("bad_refresh_token", "invalid_grant")
        access = self._new("token")
        self.access.add(access)
        tokens: dict[str, Any] = {"access_token": access, "token_type": "bearer", "scope": ""}
        if self.expires_in is not None:
            tokens["expires_in"] = self.expires_in
        if self.issues_refresh:
            tokens["refresh_token"] = self._new("refresh")
            self.refreshable.add(tokens["refresh_token"])
        return answer(tokens)

    def _rejected(self, of_github: str, usual: str) -> Reply:
        # GitHub answers errors with 200.
        return answer({"error": of_github}) if self.provider is GITHUB else answer({"error": usual}, 400)

    def _user(self, headers: Mapping[str, str]) -> Reply:
        token = headers["authorization"].removeprefix("Bearer ")
        return answer(self.user) if token in self.access else Reply(401)


def answer(value: Any, status: int = 200, kind: str = "application/json") -> Reply:
    return Reply(status, {"content-type": kind}, json.dumps(value).encode())


class World:
    """The proxy, and the browser of one user.

    Attributes:
        cookie: what the browser has; empty for none.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        provider: OAuthProvider = GITHUB,
        user: Mapping[str, Any] = {"id": 583231, "login": "octocat", "name": "Octocat", "email": None, "plan": {}},
        *,
        keys: KeyRing = KEYS,
        resource: str = RESOURCE,
        scopes: Sequence[str] = ("read", "write"),
        **options: Any,
    ) -> None:
        self.stand_in = StandIn(provider, user)
        for place in ("client.driver", "proxy.upstream", "proxy.clients"):
            monkeypatch.setattr(f"trio_mcp.auth.{place}.fetch", self.stand_in.fetch)
        proxy = OAuthProxy(provider, client_id="proxy", client_secret=SECRET, keys=keys, **options)
        self.hook = ProtectedResource(resource, proxy, required=["read"], scopes=scopes)
        self.hook.check()
        self.routes = {(route.path, *(route.methods - {"HEAD"})): route for route in self.hook.routes(["/mcp"], list)}
        self.cookie = ""

    def restarted(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> World:
        """Return another process with the same keys, and the same browser before it."""
        other = World(monkeypatch, self.stand_in.provider, self.stand_in.user, **options)
        other.cookie, other.stand_in.__dict__ = self.cookie, self.stand_in.__dict__
        return other

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | str = "",
        body: Mapping[str, str] | bytes = b"",
        headers: Mapping[str, str] = FORM,
        client: str | None = None,
    ) -> HttpResponse:
        text = query if isinstance(query, str) else urlencode(query)
        content = body if isinstance(body, bytes) else urlencode(body).encode()
        sent = {**headers, **({"cookie": f"other=1; {COOKIE}={self.cookie}"} if self.cookie else {})}
        route = self.routes[path, method]
        assert len(content) <= route.max_body
        response = await route.handler(HttpRequest(method, path, text, sent, content, client=client))
        cookie = response.headers.get("set-cookie", "")
        if cookie:
            self.cookie = cookie.partition("=")[2].partition(";")[0]
        return response

    async def get(self, path: str, query: Mapping[str, str] | str = "") -> HttpResponse:
        return await self.request("GET", f"/mcp/oauth/{path}", query)

    async def post(self, path: str, form: Mapping[str, str], **headers: str) -> HttpResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.request("POST", f"/mcp/oauth/{path}", body=form, headers={**FORM, **named})

    async def register(self, **metadata: Any) -> HttpResponse:
        document = {"client_name": "A program", "redirect_uris": [REDIRECT], **metadata}
        return await self.request("POST", "/mcp/oauth/register", body=json.dumps(document).encode())

    async def consent(self, page: HttpResponse, choice: str = "allow", **headers: str) -> HttpResponse:
        form = {"ticket": ticket_in(page), "answer": choice}
        return await self.post("consent", form, **{"origin": ORIGIN, **headers})

    async def back_from(self, page: HttpResponse) -> HttpResponse:
        """Agree on the page and at the provider, and return the redirect to the client."""
        return await self.get("callback", self.stand_in.log_in(target_of(await self.consent(page))))

    async def caller(self, token: str) -> Caller | None:
        return await self.hook({"authorization": f"Bearer {token}"})


class Program:
    """A client of the proxy.

    Attributes:
        client_id: as it is registered.
    """

    verifier = "v" * 43

    def __init__(self, world: World, client_id: str, redirect_uri: str = REDIRECT) -> None:
        self.world = world
        self.client_id = client_id
        self.redirect_uri = redirect_uri

    @classmethod
    async def registered(cls, world: World, **metadata: Any) -> Program:
        return cls(world, members(await world.register(**metadata))["client_id"])

    def request(self, **changed: str) -> dict[str, str]:
        """Return the query of an authorization request; a parameter with no text is left out."""
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "state": "state-of-the-client",
            "code_challenge": challenge_of(self.verifier),
            "code_challenge_method": "S256",
            "scope": "read",
            "resource": RESOURCE,
            **changed,
        }
        return {name: value for name, value in query.items() if value}

    async def authorize(self, **changed: str) -> HttpResponse:
        return await self.world.get("authorize", self.request(**changed))

    async def code(self, **changed: str) -> str:
        """Log in up to the redirect to the client, and return the code in it."""
        return query_of(await self.world.back_from(await self.authorize(**changed)))["code"]

    async def redeem(self, code: str, /, **changed: str) -> HttpResponse:
        form = {
            "grant_type": "authorization_code",
            "client_id": self.client_id,
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": self.verifier,
            **changed,
        }
        return await self.world.post("token", form)

    async def tokens(self, **changed: str) -> dict[str, Any]:
        """Log in, and return the answer with the tokens."""
        return members(await self.redeem(await self.code(**changed)))

    async def refresh(self, token: str, **changed: str) -> HttpResponse:
        form = {"grant_type": "refresh_token", "client_id": self.client_id, "refresh_token": token, **changed}
        return await self.world.post("token", form)


def members(response: HttpResponse) -> dict[str, Any]:
    return dict(json.loads(response.content))


def failure(response: HttpResponse) -> tuple[int, str]:
    return response.status, members(response)["error"]


def is_page(response: HttpResponse, status: int = 400) -> bool:
    """Whether a response is a page that sends the browser nowhere."""
    kind, text = response.content_type or "", response.content.decode()
    ends_here = "location" not in response.headers and "http-equiv" not in text and "<form" not in text
    return response.status == status and kind.startswith("text/html") and ends_here


def ticket_in(page: HttpResponse) -> str:
    found = re.search(r'name="ticket" value="([^"]+)"', page.content.decode())
    assert found is not None, page.content.decode()
    return html.unescape(found[1])


def target_of(page: HttpResponse) -> str:
    """Return where a page sends the browser on to."""
    found = re.search(r'http-equiv="refresh" content="0; url=([^"]+)"', page.content.decode())
    assert found is not None, page.content.decode()
    return html.unescape(found[1])


def query_of(redirect: HttpResponse) -> dict[str, str]:
    assert redirect.status == 302
    return {name: value for name, (value,) in parse_qs(urlsplit(redirect.headers["location"]).query).items()}
