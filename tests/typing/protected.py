"""What type checkers infer of protecting a server; checked and never run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_type

from trio_mcp import Caller, Context, HttpOptions, Server
from trio_mcp.auth import CannotVerify, CredentialsRejected, ProtectedResource, any_of, introspection, jwt, static
from trio_mcp.auth.server.verifier import Verifier
from trio_mcp.http.authenticator import Authenticator
from trio_mcp.testing import MockClient, TestIssuer
from trio_mcp.types import JsonObject
from trio_mcp_transports.http import asgi_app


async def is_employee(claims: JsonObject) -> JsonObject | None:
    return claims if claims.get("company") == "example" else None


verifier = any_of(
    jwt("https://a.example", check=is_employee, algorithms=["ES256"]),
    introspection("https://b.example", client_id="a", client_secret="b", realm="b"),
    static({"a-long-random-token": Caller("bot", ["notes:read"]), "another-long-token": "ci"}),
)
assert_type(verifier, Verifier)
resource = ProtectedResource(
    "https://mcp.example.com/mcp", verifier, scopes="all", required=["notes:read"], implied={"admin": ["notes:read"]}
)
server = Server("notes", http=HttpOptions(authenticate=resource))
asgi_app(server, authenticate=static({"a-long-random-token": "bot"}))


class Session(Authenticator):
    """One that an author writes."""

    async def __call__(self, headers: Mapping[str, str]) -> Caller | None:
        if "cookie" not in headers:
            return None
        if headers["cookie"] == "down":
            raise CannotVerify("the store of sessions does not answer", retry_after=2)
        raise CredentialsRejected(401, "invalid_token", "unknown session")


HttpOptions(authenticate=Session())


@server.resource("notes://{name}", scopes=["notes:read"], visible=lambda caller: caller is not None)
async def note(name: str, ctx: Context) -> str:
    assert_type(ctx.caller, Caller | None)
    return name


@server.prompt(scopes={"notes:read"})
async def review() -> str:
    return "Review."


issuer = TestIssuer()
assert_type(issuer.token("alice", scopes=["notes:read"], audience="https://mcp.example.com/mcp"), str)
jwt(issuer.url, keys=issuer.jwks)
MockClient(caller=Caller("alice", scopes=["notes:read"]))
