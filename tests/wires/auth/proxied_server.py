"""A server behind an OAuth proxy, which is called with `http PORT`. The provider is in `PROVIDER`.

`RESOURCE` is its public URL, where that is not the one at which it listens.
"""

from __future__ import annotations

import os
import sys

from trio_mcp import Context, HttpOptions, Server
from trio_mcp.auth import OAuthProvider, OAuthProxy, ProtectedResource

issuer, port = os.environ["PROVIDER"], int(sys.argv[2])

PROVIDER = OAuthProvider(
    "Example",
    authorize_url=f"{issuer}/auth",
    token_url=f"{issuer}/token",
    user_url=f"{issuer}/me",
    revoke_url=f"{issuer}/token/revocation",
    scopes=["openid", "offline_access"],
    parameters={"prompt": "consent"},
)
resource = ProtectedResource(
    os.environ.get("RESOURCE", f"http://127.0.0.1:{port}/mcp"),
    OAuthProxy(PROVIDER, client_id="proxy", client_secret="the-secret-of-the-proxy"),
    required=["notes:read"],
    scopes="all",
)
server = Server("notes", http=HttpOptions(authenticate=resource))


@server.tool
async def read() -> str:
    return "a note"


@server.tool(scopes=["notes:write"])
async def write(text: str, ctx: Context) -> str:
    assert ctx.caller is not None
    return f"{ctx.caller.principal} wrote {text}"


server.run("http", port=port)
