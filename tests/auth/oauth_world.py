"""A server, its authorization server and a user, in this process: what they answer, and what a client sent them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import trio

from trio_mcp.auth import MemoryTokens, OAuth
from trio_mcp.auth.addresses import Reach
from trio_mcp.auth.client.authorizer import Authorizer
from trio_mcp.auth.client.logins import log_in
from trio_mcp.auth.client.steps import Browse, Get, Post, Steps
from trio_mcp.auth.client.stored import Login
from trio_mcp.auth.replies import Reply

URL = "https://mcp.example/mcp"
ISSUER = "https://as.example"
RESOURCE_METADATA = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
SERVER_METADATA = f"{ISSUER}/.well-known/oauth-authorization-server"


def as_reply(answer: Any, status: int = 200) -> Reply:
    return Reply(status, {}, answer if isinstance(answer, bytes) else json.dumps(answer).encode())


class World:
    """The peers of a client.

    Attributes:
        store: of the client's logins.
        documents: JSON documents by URL; bytes as they are, a number for a status.
        token: members of the next answers of the token endpoint.
        token_errors: error codes of the next token requests; empty when they succeed.
        redirect: members of the redirect after a login; None leaves out one that is usually there.
        requests: what was requested: the method and the URL.
        forms: what was posted to the token endpoint.
        pages: the URLs that were opened.
        seconds: how long each answer takes.
        reach: where the last request was allowed to go.
    """

    def __init__(self) -> None:
        self.store = MemoryTokens()
        self.documents: dict[str, Any] = {
            RESOURCE_METADATA: {"resource": URL, "authorization_servers": [ISSUER], "scopes_supported": ["read"]},
            SERVER_METADATA: {
                "issuer": ISSUER,
                "authorization_endpoint": f"{ISSUER}/authorize",
                "token_endpoint": f"{ISSUER}/token",
                "registration_endpoint": f"{ISSUER}/register",
                "revocation_endpoint": f"{ISSUER}/revoke",
                "token_endpoint_auth_methods_supported": ["none"],
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            },
        }
        self.token: dict[str, Any] = {}
        self.token_errors: list[str | int] = []
        self.redirect: dict[str, str | None] = {}
        self.requests: list[tuple[str, str]] = []
        self.forms: list[Mapping[str, str]] = []
        self.headers: list[Mapping[str, str]] = []
        self.pages: list[str] = []
        self.issued = 0
        self.registered = 0
        self.seconds = 0.0
        self.reach: Reach | None = None

    @property
    def server(self) -> dict[str, Any]:
        """The metadata of the authorization server."""
        return self.documents[SERVER_METADATA]

    @property
    def resource(self) -> dict[str, Any]:
        """The metadata of the server."""
        return self.documents[RESOURCE_METADATA]

    async def fetch(
        self,
        url: str,
        reach: Reach,
        *,
        form: Mapping[str, str] | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Stand for `fetching.fetch`."""
        self.reach = reach
        await trio.sleep(self.seconds)
        return self.reply(Get(url) if form is None and json is None else Post(url, form, json, headers or {}))

    def reply(self, request: Get | Post) -> Reply:
        self.requests.append(("GET" if isinstance(request, Get) else "POST", request.url))
        if isinstance(request, Get):
            answer = self.documents.get(request.url, 404)
            return Reply(answer) if isinstance(answer, int) else as_reply(answer)
        if request.url == f"{ISSUER}/register":
            self.registered += 1
            return as_reply({"client_id": f"client-{self.registered}"}, 201)
        if request.url == URL:
            return Reply(401, {"www-authenticate": "Bearer"})
        self.forms.append(request.form or {})
        self.headers.append(request.headers)
        if self.token_errors:
            error = self.token_errors.pop(0)
            return Reply(error) if isinstance(error, int) else as_reply({"error": error}, 400)
        self.issued += 1
        issued = {
            "access_token": f"access-{self.issued}",
            "token_type": "Bearer",
            "refresh_token": f"refresh-{self.issued}",
        }
        members = {**issued, "expires_in": 3600, **self.token}
        return as_reply({name: value for name, value in members.items() if value is not None})

    async def browser(self, url: str) -> str:
        """Agree to a login, as `OAuth(browser=)`."""
        return self.redirected(url)

    def redirected(self, url: str) -> str:
        self.pages.append(url)
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        members = {"code": "the-code", "state": query["state"], "iss": ISSUER, **self.redirect}
        return f"{query['redirect_uri']}?{urlencode({name: value for name, value in members.items() if value is not None})}"

    def paths(self) -> list[str]:
        """The URLs that were requested, in order."""
        return [url for _, url in self.requests]

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the client reach this world, and nothing else."""
        monkeypatch.setattr("trio_mcp.auth.client.driver.fetch", self.fetch)
        monkeypatch.setattr("trio_mcp.auth.client.logins.fetch", self.fetch)

    def settings(self, **options: Any) -> OAuth:
        return OAuth(**{"browser": self.browser, "store": self.store, **options})

    async def log_in(self, **options: Any) -> Login:
        return await log_in(self.settings(**options), URL)

    async def stored(self) -> Login:
        """The login in the store."""
        login = await self.store.read(URL)
        assert login is not None
        return login


def played(steps: Steps[Any], world: World) -> Any:
    """Run steps to their end without I/O, and return their result."""
    reply: Any = None
    try:
        while True:
            request = steps.send(reply)
            reply = world.redirected(request.url) if isinstance(request, Browse) else world.reply(request)
    except StopIteration as end:
        return end.value


class ResourceServer:
    """The server: which tokens it accepts, and which scopes a request needs.

    Attributes:
        answers: the next responses, as a status and a challenge; then it accepts every token.
        sent: the header `Authorization` of each request.
    """

    def __init__(self, *answers: tuple[int, str]) -> None:
        self.answers = [*answers]
        self.sent: list[str | None] = []

    def respond(self, headers: Mapping[str, str]) -> tuple[int, dict[str, str]]:
        token = headers.get("authorization")
        self.sent.append(token)
        if self.answers:
            status, challenge = self.answers.pop(0)
            return status, {"www-authenticate": challenge} if challenge else {}
        return (200, {}) if token is not None else (401, {"www-authenticate": "Bearer"})


async def send(authorizer: Authorizer, server: ResourceServer, url: str = URL) -> int:
    """Send one request with its repetitions, as a transport does, and return the last status."""
    attempts = authorizer.attempts("POST", url)
    while True:
        status, headers = server.respond(await attempts.headers())
        if not await attempts.retry(status, headers):
            return status


def expired(login: Login) -> Login:
    """Return a login whose access token has expired."""
    return replace(login, tokens=replace(login.tokens, expires_at=0.0))
