"""A protected server over each real wire: what a client without a good token gets, and with one."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from oidc_provider import free_port
from serving import IMPORTS, child, served
from talk import modern_meta

from trio_mcp import Client, Context, HttpOptions, Server, proxy
from trio_mcp.auth import ProtectedResource, jwt
from trio_mcp.errors import McpError
from trio_mcp.testing import TestIssuer

LIMIT = 30.0
ISSUER = TestIssuer()


@asynccontextmanager
async def protected(port: int) -> AsyncIterator[None]:
    """Serve over all wires at one port."""
    hook = ProtectedResource(f"http://127.0.0.1:{port}/mcp", jwt(ISSUER.url, keys=ISSUER.jwks), required=["read"])
    server = Server("notes", http=HttpOptions(authenticate=hook, sse_path="/sse"))

    @server.tool
    async def whoami(ctx: Context) -> str:
        return f"{ctx.caller.principal if ctx.caller else None} {'authorization' in ctx.request.headers}"

    async with trio.open_nursery() as nursery:
        await nursery.start(partial(server.serve, "http", port=port, announce=False, signals=False))
        yield
        nursery.cancel_scope.cancel()


WIRES = {
    "modern": ("http://127.0.0.1:{}/mcp", {"mode": "modern"}),
    "legacy": ("http://127.0.0.1:{}/mcp", {"mode": "legacy"}),
    "WebSocket": ("ws://127.0.0.1:{}/mcp", {}),
    "HTTP+SSE": ("http://127.0.0.1:{}/sse", {"mode": "legacy"}),
}


@pytest.mark.parametrize("wire", WIRES)
async def test_each_wire_serves_a_good_token_only(wire: str) -> None:
    port = free_port()
    resource = f"http://127.0.0.1:{port}/mcp"
    pattern, options = WIRES[wire]
    good = ISSUER.token("alice", audience=resource, scopes=["read"])
    bad = [ISSUER.token("alice", audience=resource), ISSUER.token("alice", audience="https://other.example"), "opaque"]
    async with protected(port):
        with trio.fail_after(LIMIT):
            headers = {"authorization": f"Bearer {good}"}
            async with Client.connect(pattern.format(port), headers=headers, **options) as client:
                assert (await client.call_tool("whoami")).text == "alice False"
            for token in (None, *bad):
                headers = {} if token is None else {"authorization": f"Bearer {token}"}
                with pytest.raises(McpError):
                    async with Client.connect(pattern.format(port), headers=headers, **options) as client:
                        await client.call_tool("whoami")


async def test_a_protected_proxy_sends_its_own_credentials_and_not_those_of_its_callers() -> None:
    far = Server("far")

    @far.tool
    async def seen(ctx: Context) -> dict[str, str]:
        return dict(ctx.request.headers)

    port = free_port()
    resource = f"http://127.0.0.1:{port}/mcp"
    hook = ProtectedResource(resource, jwt(ISSUER.url, keys=ISSUER.jwks))
    token = ISSUER.token("alice", audience=resource)
    async with served(far) as url, trio.open_nursery() as nursery:
        near = proxy(url, headers={"authorization": "Bearer of-the-proxy"})
        serve = partial(near.serve, "http", port=port, announce=False, signals=False, authenticate=hook)
        await nursery.start(serve)
        with trio.fail_after(LIMIT):
            async with Client.connect(resource, headers={"authorization": f"Bearer {token}"}) as client:
                assert (await client.call_tool("seen")).data["authorization"] == "Bearer of-the-proxy"
        nursery.cancel_scope.cancel()


INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"host","version":"1"}}}\n'
)
DISCOVER = (
    json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": modern_meta()}}).encode()
    + b"\n"
)


@pytest.mark.parametrize(
    "messages", [[INITIALIZE], [INITIALIZE, INITIALIZE], [DISCOVER]], ids=["handshake", "handshake again", "modern"]
)
async def test_a_proxy_without_a_login_names_the_command_to_its_host_and_its_user(
    messages: list[bytes], tmp_path: Path
) -> None:
    port = free_port()
    login = f"log in first: trio-mcp login http://127.0.0.1:{port}/mcp"
    script = tmp_path / "command.py"
    script.write_text("import sys\nfrom trio_mcp.cli.program import main\nsys.exit(main(sys.argv[1:]))\n")
    environment = {**os.environ, **IMPORTS, "TRIO_MCP_AUTH_DIR": str(tmp_path / "auth")}
    async with (
        protected(port),
        child(script, "run", f"http://127.0.0.1:{port}/mcp", strict=False, env=environment) as command,
    ):
        for message in messages:
            await command.send(message)
            assert json.loads(await command.line())["error"]["message"] == login
        if messages == [DISCOVER]:
            assert (await command.error_line()).decode() == f"trio-mcp: {login}"
            assert await command.end() == 4
