"""Our client logs in to a server of the official SDK, and the SDK's client to ours, through the same provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import trio
from oidc_provider import Provider, agree, protected
from serving import child

from trio_mcp import Client
from trio_mcp.auth import MemoryTokens, OAuth
from trio_mcp.auth.challenges import parse_challenges

mcp = pytest.importorskip("mcp", reason="the official SDK is not installed")

import httpx2  # noqa: E402
from mcp import Client as OfficialClient  # noqa: E402
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider  # noqa: E402
from mcp.client.streamable_http import streamable_http_client  # noqa: E402
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken  # noqa: E402

LIMIT = 60.0

pytestmark = [
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning"),
]


@pytest.mark.parametrize(("mode", "revision"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_our_client_logs_in_to_a_server_of_the_official_sdk(idp: Provider, mode: str, revision: str) -> None:
    script = Path(__file__).with_name("official_protected.py")
    async with child(script, idp.issuer, limit=LIMIT, strict=False) as server:
        url = (await server.line()).decode()
        async with Client.connect(url, mode=mode, auth=OAuth(browser=agree, store=MemoryTokens())) as client:
            assert client.protocol_version == revision
            assert (await client.call_tool("read")).text == "a note"


class Storage:
    """Where the SDK's client keeps what it gets."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@asynccontextmanager
async def official_client(
    url: str, mode: str, user: Callable[[str], Awaitable[str]] = agree, storage: Storage | None = None
) -> AsyncIterator[tuple[OfficialClient, OAuthClientProvider]]:
    """Open the client of the official SDK, and yield it with what authenticates it.

    Args:
        user: does what a user does in a browser, and returns the URL of the redirect.
        storage: of the tokens; by default a new one.
    """
    redirects: list[str] = []

    async def open_page(url: str) -> None:
        redirects.append(await user(url))

    async def answer() -> AuthorizationCodeResult:
        query = parse_qs(urlsplit(redirects[-1]).query)
        return AuthorizationCodeResult(code=query["code"][0], state=query["state"][0], iss=query["iss"][0])

    metadata = OAuthClientMetadata(
        client_name="official",
        redirect_uris=["http://127.0.0.1:8765/callback"],
        application_type="native",
        token_endpoint_auth_method="none",
    )
    auth = OAuthClientProvider(url, metadata, storage or Storage(), open_page, answer)
    async with httpx2.AsyncClient(auth=auth, timeout=LIMIT) as http:
        transport = streamable_http_client(url, http_client=http)
        async with OfficialClient(transport, mode=mode) as client:
            yield client, auth


async def read_a_note(url: str, mode: str) -> str:
    """Log in with the client of the official SDK, and call a tool."""
    with trio.fail_after(LIMIT):
        async with official_client(url, mode) as (client, _):
            result = await client.call_tool("read")
    return str(result.content[0].text)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_client_of_the_official_sdk_logs_in_to_our_server(idp: Provider, mode: str) -> None:
    async with protected(idp.issuer) as url:
        assert await read_a_note(url, mode) == "a note"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_it_logs_in_to_our_server_mounted_in_fastapi_on_uvicorn(idp: Provider, mode: str) -> None:
    async with child(Path(__file__).with_name("mounted_app.py"), idp.issuer, limit=LIMIT, strict=False) as host:
        url = (await host.line()).decode()
        assert await read_a_note(url, mode) == "a note"
        async with httpx2.AsyncClient() as http:
            rejected = await http.post(url, json={})
            (challenge,) = parse_challenges(rejected.headers["www-authenticate"])
            # The host has nothing at `/.well-known`, so it is below the prefix that clients are sent to.
            documents = url.replace("/tools/mcp", "/tools/.well-known/oauth-protected-resource")
            assert (rejected.status_code, challenge.parameters["resource_metadata"]) == (401, documents)
            found = (await http.get(documents)).json()
            assert (found["resource"], found["authorization_servers"]) == (url, [idp.issuer])
            assert (await http.get(documents.replace("/tools/", "/"))).status_code == 404
