"""Clients log in through an OAuth proxy in front of a real provider that registers no clients by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from agreeing_user import User
from oidc_provider import Provider, free_port, provider
from serving import HttpProcess, child, line_of

from trio_mcp import Client
from trio_mcp.auth import MemoryTokens, OAuth, TokenFiles
from trio_mcp.errors import PeerError

SCRIPT = Path(__file__).with_name("proxied_server.py")
LIMIT = 60.0
MODES = ["auto", "legacy"]
KEY, OTHER_KEY = "A" * 42 + "E", "B" * 42 + "E"


def provider_for(modules: Path, url: str, **settings: Any) -> AbstractAsyncContextManager[Provider]:
    """Return a provider that registers no clients, and knows the server with this URL."""
    registered = {
        "client_id": "proxy",
        "client_secret": "the-secret-of-the-proxy",
        "redirect_uris": [f"{url}/oauth/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "client_secret_post",
    }
    return provider(modules, clients=[registered], dcr=False, cimd=False, **settings)


@asynccontextmanager
async def proxied(modules: Path, **settings: Any) -> AsyncIterator[tuple[HttpProcess, Provider]]:
    """Run a provider that registers no clients, and a server behind a proxy of it."""
    port = free_port()
    async with provider_for(modules, f"http://127.0.0.1:{port}/mcp", **settings) as idp:
        server = HttpProcess(SCRIPT, port=port, PROVIDER=idp.issuer, TRIO_MCP_KEYS=KEY)
        await server.start()
        try:
            yield server, idp
        finally:
            await server.kill()


@pytest.mark.parametrize("mode", MODES)
async def test_our_client_logs_in_steps_up_refreshes_and_goes_on_after_a_crash(
    modules: Path, tmp_path: Path, mode: str
) -> None:
    user, files = User(), TokenFiles(tmp_path / "auth")
    async with proxied(modules) as (server, _):
        with trio.fail_after(LIMIT):
            async with Client.connect(server.url, mode=mode, auth=OAuth(browser=user, store=files)) as client:
                assert (await client.call_tool("read")).text == "a note"
                assert user.logins == 1
                # A step-up: the user is asked again, with the scopes of both.
                assert (await client.call_tool("write", {"text": "x"})).text == "alice wrote x"
                assert user.logins == 2
            await server.kill()
            await server.start()
            stored = OAuth(interactive=False, store=files)
            async with Client.connect(server.url, mode=mode, auth=stored) as client:
                assert (await client.call_tool("write", {"text": "y"})).text == "alice wrote y"
            async with stored.open(server.url) as authorizer:
                before = await authorizer.stored_tokens()
                assert before is not None
                await authorizer.refresh(before)
                after = await authorizer.stored_tokens()
                assert after is not None
                assert after.access != before.access
            async with Client.connect(server.url, mode=mode, auth=stored) as client:
                assert (await client.call_tool("write", {"text": "z"})).text == "alice wrote z"
    assert max(map(len, user.urls)) < 2_000


async def test_a_second_process_with_the_same_keys_serves_and_refreshes_the_tokens_of_the_first(
    modules: Path, tmp_path: Path
) -> None:
    files = TokenFiles(tmp_path / "auth")
    async with proxied(modules) as (server, idp):
        second = HttpProcess(SCRIPT, PROVIDER=idp.issuer, TRIO_MCP_KEYS=KEY, RESOURCE=server.url)
        other = HttpProcess(SCRIPT, PROVIDER=idp.issuer, TRIO_MCP_KEYS=OTHER_KEY, RESOURCE=server.url)
        await second.start()
        await other.start()
        try:
            with trio.fail_after(LIMIT):
                async with Client.connect(server.url, auth=OAuth(browser=User(), store=files)) as client:
                    await client.call_tool("read")
                login = await files.read(server.url)
                assert login is not None
                async with Client.connect(second.url, auth=login.tokens.access) as client:
                    assert (await client.call_tool("read")).text == "a note"
                with pytest.raises(PeerError):
                    async with Client.connect(other.url, auth=login.tokens.access) as client:
                        pass
                form = {
                    "grant_type": "refresh_token",
                    "refresh_token": login.tokens.refresh,
                    "client_id": login.registration.client_id,
                }
                async with httpx2.AsyncClient() as http:
                    answer = await http.post(f"{second.url}/oauth/token", data=form)
                    refused = await http.post(f"{other.url}/oauth/token", data=form)
                assert (answer.status_code, refused.status_code) == (200, 401)
                async with Client.connect(server.url, auth=answer.json()["access_token"]) as client:
                    assert (await client.call_tool("read")).text == "a note"
        finally:
            await second.kill()
            await other.kill()


async def test_new_keys_end_logins_and_clients_register_and_log_in_again_by_themselves(
    modules: Path, tmp_path: Path
) -> None:
    user, files = User(), TokenFiles(tmp_path / "auth")
    async with proxied(modules) as (server, _):
        with trio.fail_after(LIMIT):
            async with Client.connect(server.url, auth=OAuth(browser=user, store=files)) as client:
                await client.call_tool("read")
            first = await files.read(server.url)
            await server.kill()
            server.environment["TRIO_MCP_KEYS"] = OTHER_KEY
            await server.start()
            async with Client.connect(server.url, auth=OAuth(browser=user, store=files)) as client:
                assert (await client.call_tool("read")).text == "a note"
            second = await files.read(server.url)
            assert first is not None
            assert second is not None
            assert first.registration.client_id != second.registration.client_id
    assert user.logins == 2


@pytest.mark.parametrize("mode", MODES)
async def test_users_log_in_to_a_server_mounted_in_fastapi_on_uvicorn(modules: Path, mode: str) -> None:
    port = free_port()
    async with provider_for(modules, f"http://127.0.0.1:{port}/tools/mcp") as idp:
        script = Path(__file__).with_name("mounted_proxy.py")
        async with child(script, idp.issuer, str(port), limit=LIMIT, strict=False) as host:
            url = (await host.line()).decode()
            async with Client.connect(url, mode=mode, auth=OAuth(browser=User(), store=MemoryTokens())) as client:
                assert (await client.call_tool("read")).text == "a note of alice"


# Clients of others.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning")
async def test_the_client_of_the_official_sdk_logs_in_steps_up_refreshes_and_goes_on_after_a_crash(
    modules: Path, mode: str
) -> None:
    official = pytest.importorskip("test_official_logins", reason="the official SDK is not installed")
    user, storage = User(), official.Storage()
    async with proxied(modules) as (server, _):
        with trio.fail_after(LIMIT):
            async with official.official_client(server.url, mode, user, storage) as (client, auth):
                assert (await client.call_tool("read")).content[0].text == "a note"
                assert (await client.call_tool("write", {"text": "x"})).content[0].text == "alice wrote x"
                before = storage.tokens.access_token
                auth.context.token_expiry_time = 1.0
                assert (await client.call_tool("write", {"text": "y"})).content[0].text == "alice wrote y"
                assert storage.tokens.access_token != before
            await server.kill()
            await server.start()
            async with official.official_client(server.url, mode, user, storage) as (client, _auth):
                assert (await client.call_tool("write", {"text": "z"})).content[0].text == "alice wrote z"
    assert user.logins == 2
    assert max(map(len, user.urls)) < 2_000


@pytest.mark.parametrize("mode", MODES)
async def test_the_client_of_fastmcp_does_the_same(
    modules: Path, frameworks_python: str, tmp_path: Path, mode: str
) -> None:
    logins = tmp_path / "logins"
    browser = f"{sys.executable} {Path(__file__).with_name('agreeing_user.py')} {logins} %s &"
    async with proxied(modules) as (server, _):
        script = str(Path(__file__).with_name("fastmcp_login.py"))
        process = await trio.lowlevel.open_process(
            [frameworks_python, script, server.url, mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "BROWSER": browser},
        )
        assert process.stdin is not None
        try:
            with trio.fail_after(LIMIT):
                steps = [(await line_of(process.stdout)).decode() for _ in range(3)]
                assert steps == ["a note", "alice wrote x", "alice wrote y"]
                await server.kill()
                await server.start()
                await process.stdin.send_all(b"\n")
                assert await line_of(process.stdout) == b"alice wrote z"
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                await process.stdin.aclose()
                assert process.stdout is not None
                await process.stdout.aclose()
    assert logins.read_text().splitlines() == ["login"] * 2
