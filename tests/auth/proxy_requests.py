"""Requests of an `OAuthProxy` that are never answered: a function makes one for a caller, and returns why it is refused."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Never, TypeAlias
from urllib.parse import urlencode

import pytest
import trio

from trio_mcp.auth import GITHUB, OAuthProxy, ProtectedResource
from trio_mcp.auth.proxy import clients, upstream
from trio_mcp.auth.proxy.rejections import Rejected
from trio_mcp.auth.proxy.sealed import Box, Client, Refresh, digest
from trio_mcp.auth.replies import Reply
from trio_mcp.http import HttpRequest
from trio_mcp.session import KeyRing

Attempt: TypeAlias = Callable[[str | None], Awaitable[str]]


async def silent(*_: object, **__: object) -> Reply:
    await trio.sleep_forever()
    raise AssertionError


@contextmanager
def fetched_clients() -> Iterator[Attempt]:
    """Ask for the document of a client."""

    async def find(caller: str | None) -> str:
        with pytest.raises(Rejected) as refused:
            await known.find("https://app.example.com/client.json", caller)
        return str(refused.value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clients, "fetch", silent)
        known = clients.Clients(Box(KeyRing.random(), "a"), "https://mcp.example.com")
        yield find


@contextmanager
def provider_requests() -> Iterator[Attempt]:
    """Ask the provider for other tokens."""
    resource, keys = "https://mcp.example.com/mcp", KeyRing([b"k" * 32])
    box = Box(keys, f"{resource} {GITHUB.authorize_url} proxy")
    client_id = box.seal(Client(name="", redirect_uris=()))
    kept = box.seal(Refresh(client=digest(client_id), principal="1", scopes=(), refresh=None, access="token"))
    form = {"grant_type": "refresh_token", "client_id": client_id, "refresh_token": kept}
    headers = {"content-type": "application/x-www-form-urlencoded"}

    async def refresh(caller: str | None) -> str:
        body = urlencode(form).encode()
        request = HttpRequest[Never]("POST", "/mcp/oauth/token", "", headers, body, client=caller)
        return str(json.loads((await token(request)).content)["error_description"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upstream, "fetch", silent)
        github = OAuthProxy(GITHUB, client_id="proxy", client_secret="secret", keys=keys)
        routes = ProtectedResource(resource, github).routes(["/mcp"], list)
        (token,) = (route.handler for route in routes if route.path == "/mcp/oauth/token")
        yield refresh
