"""A provider in this process: what it answers, how often it was asked, and how long it takes, in virtual time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import trio

from trio_mcp.auth.addresses import Reach
from trio_mcp.auth.replies import Reply
from trio_mcp.errors import AuthorizationError, AuthorizationErrorKind
from trio_mcp.testing import TestIssuer

METADATA = "/.well-known/oauth-authorization-server"


class Provider:
    """Answers for one issuer.

    Attributes:
        down: whether nothing can be reached.
        seconds: how long each answer takes.
        status: of each answer.
        active: what introspection says, by token.
        requests: how often each URL was asked.
        forms: what was posted.
    """

    def __init__(self, url: str = "https://issuer.test") -> None:
        self.issuer = TestIssuer(url)
        self.url = url
        self.down = False
        self.seconds = 0.0
        self.status = 200
        self.cache_control = ""
        self.active: dict[str, dict[str, Any]] = {}
        self.requests = Counter[str]()
        self.forms: list[tuple[Mapping[str, str], Mapping[str, str]]] = []
        self.metadata: dict[str, Any] = {
            "issuer": url,
            "jwks_uri": f"{url}/jwks",
            "introspection_endpoint": f"{url}/introspect",
        }

    async def fetch(
        self,
        url: str,
        reach: Reach,
        *,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = 10.0,
    ) -> Reply:
        assert url.startswith(f"{self.url}/")
        self.requests[url.removeprefix(self.url)] += 1
        with trio.move_on_after(seconds) as waiting:
            await trio.sleep(self.seconds)
        if self.down or waiting.cancelled_caught:
            raise AuthorizationError(f"{url} cannot be reached", kind=AuthorizationErrorKind.UNAVAILABLE)
        if form is not None:
            self.forms.append((form, headers or {}))
        answers: dict[str, Any] = {
            METADATA: self.metadata,
            "/jwks": self.issuer.jwks,
            "/introspect": self.active.get((form or {}).get("token", ""), {"active": False}),
        }
        answer = answers.get(url.removeprefix(self.url))
        if answer is None:
            return Reply(404)
        return Reply(self.status, {"cache-control": self.cache_control}, json.dumps(answer).encode())


def use(monkeypatch: pytest.MonkeyPatch, *providers: Provider) -> None:
    """Let verifiers reach these providers, and nothing else."""

    async def fetch(url: str, reach: Reach, **options: Any) -> Reply:
        (provider,) = [each for each in providers if url.startswith(f"{each.url}/")]
        return await provider.fetch(url, reach, **options)

    for place in ("client.driver", "server.jwks", "server.introspection"):
        monkeypatch.setattr(f"trio_mcp.auth.{place}.fetch", fetch)
