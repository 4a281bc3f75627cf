"""Our server verifies the tokens of a real provider: algorithms, opaque tokens, new keys, revocation, a provider that fails."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from base64 import b64encode, urlsafe_b64decode
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from asgi_peer import modern_call
from oidc_provider import ROBOT, Provider, free_port, protected, provider
from serving import IMPORTS

from trio_mcp.auth import introspection
from trio_mcp.auth.challenges import parse_challenges

LIMIT = 60.0


async def token(idp: Provider, resource: str, scope: str = "notes:read") -> str:
    """Return a token that a client got for itself."""
    form = {"grant_type": "client_credentials", "resource": resource, "scope": scope}
    async with httpx2.AsyncClient(auth=("robot", "a-secret-of-the-robot")) as http:
        response = await http.post(f"{idp.issuer}/token", data=form)
    assert response.status_code == 200, response.text
    return str(response.json()["access_token"])


async def call(url: str, token: str | None, tool: str = "read", **arguments: Any) -> httpx2.Response:
    body, headers = modern_call(tool, arguments)
    del headers["host"]
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    async with httpx2.AsyncClient(timeout=LIMIT) as http:
        return await http.post(url, json=body, headers=headers)


def claims_of(token: str) -> Any:
    part = token.split(".")[1]
    return json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_a_token_of_the_provider_is_accepted_for_its_resource_only(modules: Path, algorithm: str) -> None:
    async with provider(modules, clients=[ROBOT], alg=algorithm) as idp, protected(idp.issuer) as url:
        good = await token(idp, url)
        assert claims_of(good)["aud"] == url
        reply = await call(url, good, "whoami")
        assert (reply.status_code, reply.json()["result"]["content"][0]["text"]) == (200, "robot robot-team False")
        assert (await call(url, await token(idp, url + "/other"))).status_code == 401
        assert (await call(url, good[:-4] + "AAAA")).status_code == 401
        assert (await call(url, None)).status_code == 401
        refused = await call(url, good, "write", text="x")
        (challenge,) = parse_challenges(refused.headers["www-authenticate"])
        assert (refused.status_code, challenge.scope) == (403, "notes:read notes:write")
        more = await token(idp, url, "notes:read notes:write")
        assert (await call(url, more, "write", text="x")).status_code == 200
        assert await idp.requests("/jwks") == 1


async def test_an_opaque_token_is_asked_about_and_refused_after_its_revocation(modules: Path) -> None:
    async with provider(modules, clients=[ROBOT], tokens="opaque") as idp:
        verifier = introspection(idp.issuer, client_id="robot", client_secret="a-secret-of-the-robot", cache_seconds=0)
        async with protected(idp.issuer, verifier=verifier) as url:
            good = await token(idp, url)
            assert "." not in good
            assert (await call(url, good)).status_code == 200
            assert (await call(url, "made-up")).status_code == 401
            assert (await call(url, await token(idp, url + "/other"))).status_code == 401
            async with httpx2.AsyncClient(auth=("robot", "a-secret-of-the-robot")) as http:
                await http.post(f"{idp.issuer}/token/revocation", data={"token": good})
            assert (await call(url, good)).status_code == 401
            await idp.control("fail", path="/token/introspection", status=500)
            assert (await call(url, good)).status_code == 503


async def test_a_file_is_protected_by_the_options_of_the_command(modules: Path, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        'from trio_mcp import Server\nserver = Server("notes")\n@server.tool\ndef read() -> str:\n    return "a note"\n'
    )
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    async with provider(modules, clients=[ROBOT]) as idp:
        arguments = ["serve", str(app), "--port", str(port), "--resource", url, "--auth", f"jwt:{idp.issuer}"]
        command = [sys.executable, "-m", "trio_mcp", *arguments]
        process = await trio.lowlevel.open_process(
            command, env={**os.environ, **IMPORTS}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            with trio.fail_after(LIMIT):
                await listening(port)
                assert (await call(url, None)).status_code == 401
                assert (await call(url, await token(idp, url))).status_code == 200
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


async def listening(port: int) -> None:
    """Wait until something listens on a port."""
    while True:
        try:
            await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
        except OSError:
            await trio.sleep(0.05)
        else:
            return


async def test_no_token_or_secret_of_a_real_exchange_is_in_a_log(
    modules: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with provider(modules, clients=[ROBOT], tokens="opaque") as idp:
        secret = "a-secret-of-the-robot"
        verifier = introspection(idp.issuer, client_id="robot", client_secret=secret)
        async with protected(idp.issuer, verifier=verifier) as url:
            good = await token(idp, url)
            caplog.clear()
            assert (await call(url, good)).status_code == 200
            assert (await call(url, "made-up-canary")).status_code == 401
    assert "httpcore2" in caplog.text
    for hidden in (good, secret, "made-up-canary", b64encode(f"robot:{secret}".encode()).decode()):
        assert hidden not in caplog.text
