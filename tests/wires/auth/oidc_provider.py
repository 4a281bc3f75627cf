"""A real OpenID provider as a child process, a user who agrees to everything, and a server that trusts the provider."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import trio
from serving import free_port

from trio_mcp import Context, HttpOptions, Server
from trio_mcp.auth import ProtectedResource, jwt
from trio_mcp.auth.server.verifier import Verifier

HERE = Path(__file__).parent
START = 30.0
LIMIT = 60.0
"""Seconds for what a test does with a server."""
ROBOT = {
    "client_id": "robot",
    "client_secret": "a-secret-of-the-robot",
    "grant_types": ["client_credentials"],
    "redirect_uris": [],
    "response_types": [],
    "scope": "notes:read notes:write",
}
"""A client that the provider knows: a program that logs in as itself."""
HOPS = 12
"""Redirects between the authorization URL and the redirect URI, at most."""


class Provider:
    """A running provider.

    Attributes:
        issuer: its URL.
    """

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer

    async def control(self, what: str, **members: Any) -> None:
        """Disturb it: `fail`, `delay`, `deny`, `rotate-keys`, `documents`."""
        async with httpx2.AsyncClient() as http:
            (await http.post(f"{self.issuer}/test/{what}", json=members)).raise_for_status()

    async def requests(self, path: str) -> int:
        """Return how often an endpoint was requested."""
        async with httpx2.AsyncClient() as http:
            seen = (await http.get(f"{self.issuer}/test/requests")).json()
        return sum(each["path"] == path for each in seen)


@asynccontextmanager
async def provider(modules: Path, **settings: Any) -> AsyncIterator[Provider]:
    """Run the provider for the length of the block.

    Args:
        modules: the folder with `node_modules`.
        settings: those of `server.mjs`.
    """
    command = ["node", str(HERE / "oidc" / "server.mjs"), json.dumps({"port": 0, **settings})]
    process = await trio.lowlevel.open_process(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OIDC_MODULES": str(modules)},
    )
    try:
        assert process.stdout is not None
        said = b""
        with trio.fail_after(START):
            while b"\n" not in said:
                said += await process.stdout.receive_some(4096)
        yield Provider(json.loads(said)["issuer"])
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def agree(url: str) -> str:
    """Do what a browser does for a user who agrees, and return the URL of the redirect; for `OAuth(browser=)`."""
    # The provider needs its cookies.
    async with httpx2.AsyncClient() as http:
        for _ in range(HOPS):
            response = await http.get(url)
            url = str(response.url.join(response.headers["location"]))
            if "/callback?" in url:
                return url
    raise AssertionError("the provider does not come to an end")


@asynccontextmanager
async def protected(
    issuer: str, transport: str = "http", verifier: Verifier | None = None, **options: Any
) -> AsyncIterator[str]:
    """Serve a server whose callers need a token of the provider, and yield its URL.

    Args:
        verifier: of the tokens; by default that of JWTs.
        options: of the `ProtectedResource`.
    """
    port = free_port()
    verify = jwt(issuer) if verifier is None else verifier
    resource = ProtectedResource(f"http://127.0.0.1:{port}/mcp", verify, **{"required": ["notes:read"], **options})
    server = Server("notes", http=HttpOptions(authenticate=resource))

    @server.tool
    async def read() -> str:
        return "a note"

    @server.tool(scopes=["notes:read", "notes:write"])
    async def write(text: str) -> str:
        return f"written: {text}"

    @server.tool
    async def whoami(ctx: Context) -> str:
        assert ctx.caller is not None
        return f"{ctx.caller.principal} {ctx.caller.claims.get('team')} {'authorization' in ctx.request.headers}"

    async with trio.open_nursery() as nursery:
        serve = partial(server.serve, transport, port=port, announce=False, signals=False)
        with trio.fail_after(START):
            (url, *_) = await nursery.start(serve)
        with trio.fail_after(LIMIT):
            yield url
        nursery.cancel_scope.cancel()
