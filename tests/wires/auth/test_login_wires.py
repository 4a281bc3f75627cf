"""Our client logs in through a real provider."""

from __future__ import annotations

import json
import logging
import stat
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import trio
from joserfc.jwk import ECKey
from oidc_provider import ROBOT, Provider, agree, free_port, protected, provider

from trio_mcp import Client
from trio_mcp.auth import ClientCredentials, Login, OAuth, TokenFiles
from trio_mcp.auth.client.logins import log_in, log_out


@pytest.fixture
def files(tmp_path: Path) -> TokenFiles:
    return TokenFiles(tmp_path / "auth")


class User:
    """A user who agrees, and counts the pages."""

    def __init__(self) -> None:
        self.pages = 0

    async def __call__(self, url: str) -> str:
        self.pages += 1
        return await agree(url)


@pytest.mark.parametrize(("transport", "mode"), [("http", "auto"), ("http", "legacy"), ("websocket", "auto")])
async def test_a_user_logs_in_once_and_the_next_client_uses_the_stored_tokens(
    idp: Provider, files: TokenFiles, transport: str, mode: str
) -> None:
    user = User()
    async with protected(idp.issuer, transport) as url:
        for _ in range(2):
            async with Client.connect(url, mode=mode, auth=OAuth(browser=user, store=files)) as client:
                assert (await client.call_tool("read")).text == "a note"
        async with Client.connect(url, mode=mode, auth=OAuth(interactive=False, store=files)) as client:
            assert (await client.call_tool("read")).text == "a note"
    assert user.pages == 1
    assert modes(files) == [0o600]


def modes(files: TokenFiles) -> list[int]:
    return [stat.S_IMODE(each.stat().st_mode) for each in Path(files.folder).glob("*.json")]


async def test_a_slow_user_does_not_make_a_modern_server_look_legacy(idp: Provider, files: TokenFiles) -> None:
    async def slow(url: str) -> str:
        await trio.sleep(0.5)
        return await agree(url)

    async with protected(idp.issuer) as url:
        async with Client.connect(url, auth=OAuth(browser=slow, store=files), probe_timeout=0.2) as client:
            assert client.protocol_version == "2026-07-28"


async def test_a_tool_that_needs_more_scopes_asks_the_user_again_for_all_of_them(
    idp: Provider, files: TokenFiles
) -> None:
    user = User()
    async with protected(idp.issuer) as url:
        async with Client.connect(url, auth=OAuth(browser=user, store=files)) as client:
            assert (await client.call_tool("write", {"text": "x"})).text == "written: x"
        login = await files.read(url)
    assert login is not None
    assert user.pages == 2
    assert {*(login.tokens.scope or "").split()} >= {"notes:read", "notes:write"}


async def test_tokens_that_expire_are_refreshed_without_the_user(modules: Path, files: TokenFiles) -> None:
    user = User()
    # Below the 30 seconds at which tokens are refreshed: each request refreshes.
    async with provider(modules, accessTokenSeconds=20) as idp, protected(idp.issuer) as url:
        async with Client.connect(url, auth=OAuth(browser=user, store=files)) as client:
            for _ in range(3):
                assert (await client.call_tool("read")).text == "a note"
    assert user.pages == 1


@pytest.mark.parametrize("nonce", [False, True])
async def test_bound_tokens_are_sent_with_proofs(modules: Path, files: TokenFiles, nonce: bool) -> None:
    async with provider(modules, dpopNonce=nonce) as idp, protected(idp.issuer) as url:
        login = await log_in(OAuth(browser=agree, store=files, dpop=True), url)
    assert login.tokens.kind == "dpop"
    assert login.dpop_key is not None
    assert await files.read(url) == login


@pytest.mark.parametrize("transport", ["http", "websocket"])
async def test_a_program_logs_in_as_itself(modules: Path, transport: str) -> None:
    auth = ClientCredentials("robot", "a-secret-of-the-robot", scopes=["notes:read", "notes:write"])
    async with provider(modules, clients=[ROBOT]) as idp, protected(idp.issuer, transport) as url:
        async with Client.connect(url, auth=auth) as client:
            assert (await client.call_tool("write", {"text": "x"})).text == "written: x"


async def test_logging_out_revokes_the_tokens_and_deletes_the_login(idp: Provider, files: TokenFiles) -> None:
    async with protected(idp.issuer) as url:
        login = await log_in(OAuth(browser=agree, store=files), url)
        assert await log_out(files, url) is None
        assert await files.read(url) is None
        # The provider no longer knows the refresh token.
        await files.write(login)
        assert await refreshed(files, url) == "login_required"


async def refreshed(files: TokenFiles, url: str) -> str:
    """Return why the tokens of a login cannot be refreshed, or else nothing."""
    login = await files.read(url)
    assert login is not None
    async with OAuth(interactive=False, store=files).open(url) as authorizer:
        return "" if await authorizer.refresh(login.tokens) else "login_required"


async def test_a_provider_that_forgot_the_client_gets_another_registration(idp: Provider, files: TokenFiles) -> None:
    async with protected(idp.issuer) as url:
        first = await log_in(OAuth(browser=agree, store=files), url)
        await idp.control("rotate-keys")
        assert await refreshed(files, url) == "login_required"
        second = await log_in(OAuth(browser=agree, store=files), url)
    assert first.registration.client_id != second.registration.client_id


async def test_a_client_may_be_known_by_the_url_of_its_metadata(idp: Provider, files: TokenFiles) -> None:
    port, client_id = free_port(), "https://client.example/metadata.json"
    document = {
        "client_id": client_id,
        "client_name": "A client",
        "redirect_uris": [f"http://localhost:{port}/callback"],
        "application_type": "native",
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
    }
    await idp.control("documents", url=client_id, document=document)
    async with protected(idp.issuer) as url:
        settings = OAuth(browser=agree, store=files, metadata_url=client_id, redirect_port=port)
        login = await log_in(settings, url)
    assert login.registration.client_id == client_id
    assert await idp.requests("/reg") == 0


async def test_a_program_may_sign_who_it_is(modules: Path) -> None:
    key = ECKey.generate_key("P-256", {"alg": "ES256", "use": "sig", "kid": "k"}, private=True)
    method = {"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": [key.as_dict(private=False)]}}
    robot = {name: value for name, value in (ROBOT | method).items() if name != "client_secret"}
    auth = ClientCredentials("robot", private_key=json.dumps(key.as_dict(private=True)), scopes=["notes:read"])
    async with provider(modules, clients=[robot]) as idp, protected(idp.issuer) as url:
        async with Client.connect(url, auth=auth) as client:
            assert (await client.call_tool("read")).text == "a note"


async def test_a_refresh_token_that_is_used_twice_ends_the_login_and_the_user_logs_in(
    idp: Provider, files: TokenFiles
) -> None:
    user = User()
    async with protected(idp.issuer) as url:
        first = await log_in(OAuth(browser=user, store=files), url)
        assert await refreshed(files, url) == ""
        # As without a lock: another process has used the refresh token.
        await files.write(first)
        assert await refreshed(files, url) == "login_required"
        await files.write(expired(first))
        async with Client.connect(url, auth=OAuth(browser=user, store=files)) as client:
            assert (await client.call_tool("read")).text == "a note"
    assert user.pages == 2


def expired(login: Login) -> Login:
    return replace(login, tokens=replace(login.tokens, access="an.old.token", expires_at=0.0, refresh=None))


async def test_no_log_of_a_real_login_has_a_secret(
    idp: Provider, files: TokenFiles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    redirects: list[str] = []

    async def user(url: str) -> str:
        # What the browser of the test logs is not ours.
        logging.disable()
        redirects.append(await agree(url))
        logging.disable(logging.NOTSET)
        return redirects[-1]

    async with protected(idp.issuer) as url:
        async with Client.connect(url, auth=OAuth(browser=user, store=files)) as client:
            assert (await client.call_tool("write", {"text": "x"})).text == "written: x"
        login = await files.read(url)
        assert login is not None
        assert await refreshed(files, url) == ""
    after = await files.read(url)
    assert after is not None
    codes = [parse_qs(urlsplit(each).query)["code"][0] for each in redirects]
    tokens = [each for one in (login, after) for each in (one.tokens.access, one.tokens.refresh)]
    assert "logged in to" in caplog.text
    assert [secret for secret in (*codes, *tokens) if secret and secret in caplog.text] == []
