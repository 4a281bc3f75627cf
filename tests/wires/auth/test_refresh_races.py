"""Several processes refresh one login at once, at a provider that revokes a login whose refresh token is used twice."""

from __future__ import annotations

import signal
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import trio
from oidc_provider import agree, protected, provider
from serving import child

from trio_mcp.auth import OAuth, TokenFiles
from trio_mcp.auth.client.logins import log_in
from trio_mcp.auth.client.stored import Login

LIMIT = 120.0
PROCESSES = 4
ROUNDS = 15
SCRIPT = Path(__file__).with_name("refreshing.py")


async def test_four_processes_that_refresh_at_once_all_go_on_with_the_tokens_of_one(
    modules: Path, tmp_path: Path
) -> None:
    files = TokenFiles(tmp_path / "auth")
    said: list[set[bytes]] = []
    async with provider(modules) as idp, protected(idp.issuer) as url:
        async with AsyncExitStack() as stack:
            await log_in(OAuth(browser=agree, store=files), url)
            made = partial(child, SCRIPT, str(files.folder), url, str(ROUNDS), limit=LIMIT)
            children = [await stack.enter_async_context(made()) for _ in range(PROCESSES)]
            for _ in range(ROUNDS):
                for each in children:
                    assert await each.line() == b"ready"
                for each in children:
                    await each.send(b"\n")
                said.append({await each.line() for each in children})
            requests = await idp.requests("/token")
    # One digest in each round: 60 of 60 have the tokens that one of them got.
    assert [len(each) for each in said] == [1] * ROUNDS
    assert len(set.union(*said)) == ROUNDS
    assert b"unavailable" not in set.union(*said)
    assert requests == 1 + ROUNDS


async def test_the_lock_of_a_process_that_is_killed_is_free_and_its_login_is_whole(
    modules: Path, tmp_path: Path
) -> None:
    files = TokenFiles(tmp_path / "auth")
    async with provider(modules, rotate=False) as idp, protected(idp.issuer) as url:
        async with AsyncExitStack() as stack:
            before = await log_in(OAuth(browser=agree, store=files), url)
            await idp.control("delay", path="/token", ms=1000)
            victim = await stack.enter_async_context(child(SCRIPT, str(files.folder), url, "1", limit=LIMIT))
            assert await victim.line() == b"ready"
            await victim.send(b"\n")
            while await idp.requests("/token") < 2:  # noqa: ASYNC110  another process requests it
                await trio.sleep(0.02)
            victim.process.send_signal(signal.SIGKILL)
            await victim.process.wait()
            assert await files.read(url) == before
            await idp.control("delay", path="/token", ms=0)
            # The lock is free at once: nothing waits for its timeout.
            with trio.fail_after(10):
                assert (await refreshed(files, url)).tokens.access != before.tokens.access


async def refreshed(files: TokenFiles, url: str) -> Login:
    async with OAuth(interactive=False, store=files).open(url) as authorizer:
        tokens = await authorizer.stored_tokens()
        assert tokens is not None
        assert await authorizer.refresh(tokens)
    login = await files.read(url)
    assert login is not None
    return login
