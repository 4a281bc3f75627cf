"""A server on the official SDK that trusts an OpenID provider: `official_protected.py ISSUER`."""

from __future__ import annotations

import json
import socket
import sys
import time
import urllib.request

import uvicorn
from joserfc import jwt
from joserfc.jwk import KeySet
from mcp.server import MCPServer
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings


class Verifier:
    """Verifies the JWTs of the provider."""

    def __init__(self, issuer: str, resource: str) -> None:
        with urllib.request.urlopen(f"{issuer}/jwks") as response:
            self._keys = KeySet.import_key_set(json.load(response))
        self._issuer, self._resource = issuer, resource

    async def verify_token(self, token: str) -> AccessToken | None:
        claims = jwt.decode(token, self._keys, algorithms=["RS256"]).claims
        good = claims["iss"] == self._issuer and claims["aud"] == self._resource and claims["exp"] > time.time()
        if not good:
            return None
        return AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims["scope"].split(),
            expires_at=claims["exp"],
            resource=self._resource,
        )


def main(issuer: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        settings = AuthSettings(
            issuer_url=issuer, resource_server_url=url, required_scopes=["notes:read"], validate_token_resource=True
        )
        server = MCPServer("official", auth=settings, token_verifier=Verifier(issuer, url), log_level="WARNING")

        @server.tool()
        def read() -> str:
            return "a note"

        print(url, flush=True)
        app = server.streamable_http_app()
        uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none")).run(sockets=[listener])


main(sys.argv[1])
