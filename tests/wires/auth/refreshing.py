"""A process that refreshes one login: `refreshing.py FOLDER URL ROUNDS`. Each round waits for a line on stdin.

It writes a line for each round: the access token's digest, or the kind of the error.
"""

from __future__ import annotations

import hashlib
import sys

import trio

from trio_mcp.auth import AuthorizationError, OAuth, TokenFiles


async def main(folder: str, url: str, rounds: int) -> None:
    files = TokenFiles(folder)
    async with OAuth(interactive=False, store=files).open(url) as authorizer:
        for _ in range(rounds):
            sent = await authorizer.stored_tokens()
            assert sent is not None
            print("ready", flush=True)
            await trio.to_thread.run_sync(sys.stdin.readline)
            try:
                await authorizer.refresh(sent)
                tokens = await authorizer.stored_tokens()
                said = "none" if tokens is None else hashlib.sha256(tokens.access.encode()).hexdigest()
            except AuthorizationError as error:
                said = str(error.kind)
            print(said, flush=True)


trio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
