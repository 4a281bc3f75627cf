"""`trio-mcp login`, `whoami` and `logout` as a person runs them, and the commands that use a login."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import trio
from oidc_provider import Provider, agree, protected
from serving import IMPORTS

from trio_mcp.auth import TokenFiles

COMMAND = [sys.executable, "-m", "trio_mcp"]
LIMIT = 60.0


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    without = {
        name: value for name, value in os.environ.items() if name not in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    }
    return {**without, **IMPORTS, "TRIO_MCP_AUTH_DIR": str(tmp_path / "auth")}


async def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[bytes]:
    with trio.fail_after(LIMIT):
        return await trio.run_process(
            [*COMMAND, *arguments], capture_stdout=True, capture_stderr=True, check=False, env=environment
        )


@asynccontextmanager
async def logging_in(environment: dict[str, str], url: str) -> AsyncIterator[tuple[trio.Process, str]]:
    """Yield `trio-mcp login` when it has written the URL of the page, and that URL."""
    command = [*COMMAND, "login", url, "--no-browser"]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    try:
        with trio.fail_after(LIMIT):
            assert process.stdout is not None
            said = b""
            while not said.endswith(b"\n"):
                said += await process.stdout.receive_some(4096)
            yield process, said.decode().strip()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def log_in(environment: dict[str, str], url: str) -> None:
    async with logging_in(environment, url) as (process, page):
        # As a browser does: the last redirect leads to the page of the command.
        async with httpx2.AsyncClient() as http:
            answer = await http.get(await agree(page))
        assert answer.status_code == 200
        assert "code=" not in answer.text
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert await process.wait() == 0


async def test_a_login_in_a_terminal_is_used_by_other_commands_until_the_logout(
    idp: Provider, environment: dict[str, str]
) -> None:
    async with protected(idp.issuer) as url:
        refused = await run(environment, "call", url, "read")
        assert refused.returncode == 4
        assert f"trio-mcp login {url}" in refused.stderr.decode()
        await log_in(environment, url)

        called = await run(environment, "call", url, "read")
        assert (called.returncode, called.stdout) == (0, b"a note\n")
        (shown,) = json.loads((await run(environment, "whoami", "--json")).stdout)
        assert (shown["url"], shown["issuer"]) == (url, idp.issuer)
        assert "notes:read" in shown["scopes"]
        table = await run(environment, "whoami", url)
        assert idp.issuer in table.stdout.decode()

        left = await run(environment, "logout", url)
        assert (left.returncode, b"warning" in left.stderr) == (0, False)
        assert (await run(environment, "whoami", url)).returncode == 4
        assert (await run(environment, "logout", url)).returncode == 4


async def test_no_command_shows_a_token(idp: Provider, environment: dict[str, str]) -> None:
    async with protected(idp.issuer) as url:
        await log_in(environment, url)
        login = await TokenFiles(environment["TRIO_MCP_AUTH_DIR"]).read(url)
        assert login is not None
        assert login.tokens.refresh is not None
        for words in (
            ["whoami", url],
            ["whoami", "--json"],
            ["call", url, "read", "--debug"],
            ["logout", url, "--debug"],
        ):
            done = await run(environment, *words)
            for secret in (login.tokens.access, login.tokens.refresh):
                assert secret not in (done.stdout + done.stderr).decode()


async def test_a_missing_scope_is_named_with_the_login_that_gets_it(idp: Provider, environment: dict[str, str]) -> None:
    async with protected(idp.issuer) as url:
        await log_in(environment, url)
        refused = await run(environment, "call", url, "write", "text=x")
    assert refused.returncode == 4
    assert f"trio-mcp login {url} --scope notes:read" in refused.stderr.decode()
    assert "--scope notes:write" in refused.stderr.decode()


async def test_the_url_of_the_last_page_can_be_pasted(idp: Provider, environment: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    async with protected(idp.issuer) as url:
        process = await trio.lowlevel.open_process(
            [*COMMAND, "login", url, "--no-browser"],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        os.close(theirs)
        try:
            with trio.fail_after(LIMIT):
                assert process.stdout is not None
                page = (await process.stdout.receive_some(65536)).decode().strip()
                os.write(ours, f"\ncode=x\n{await agree(page)}\n".encode())
                assert await process.wait() == 0
                assert process.stderr is not None
                said = b"".join([bytes(chunk) async for chunk in process.stderr]).decode()
                # The empty line and the half of a URL are answered.
                assert said.count("begins with http://") == 2
        finally:
            process.kill()
            os.close(ours)
        assert (await run(environment, "call", url, "read")).returncode == 0


async def test_a_proxy_for_a_host_sends_the_token_of_the_login(idp: Provider, environment: dict[str, str]) -> None:
    async with protected(idp.issuer) as url:
        await log_in(environment, url)
        relayed = f"{' '.join(COMMAND)} run {url}"
        called = await run(environment, "call", relayed, "read")
        assert (called.returncode, called.stdout) == (0, b"a note\n"), called.stderr
        await run(environment, "logout", url)
        refused = await run(environment, "call", relayed, "read")
    assert refused.returncode != 0
    assert f"trio-mcp login {url}" in refused.stderr.decode()
