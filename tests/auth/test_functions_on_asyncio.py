"""Functions of a program that authorization calls: they run where the other functions of the program do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from both_loops import in_program, in_this_loop
from oauth_world import URL, ResourceServer, World, send

from trio_mcp import HttpOptions, Server
from trio_mcp.auth import ProtectedResource, WorkloadIdentity, any_of, jwt, static
from trio_mcp.testing import TestIssuer
from trio_mcp_transports.http import asgi_app

ISSUER = TestIssuer()
RESOURCE = "https://mcp.example.com/mcp"


def test_the_function_that_opens_a_page_runs_where_the_client_was_opened(world: World) -> None:
    async def browser(url: str) -> str | None:
        await asyncio.sleep(0)
        return await in_this_loop(lambda: world.browser(url))

    async def main() -> None:
        async with world.settings(browser=browser).open(URL) as authorizer:
            assert await send(authorizer, ResourceServer()) == 200

    in_program(main)
    assert len(world.pages) == 1


def test_the_function_that_returns_an_assertion_runs_where_the_client_was_opened(world: World) -> None:
    async def assertion() -> str:
        await asyncio.sleep(0)
        return "an-assertion"

    async def main() -> None:
        async with WorkloadIdentity("robot", assertion).open(URL) as authorizer:
            assert await send(authorizer, ResourceServer()) == 200

    in_program(main)
    assert world.forms[0]["assertion"] == "an-assertion"


async def check(claims: dict[str, Any]) -> dict[str, Any] | None:
    await asyncio.sleep(0)
    return {**claims, "sub": "checked"}


VERIFIER = jwt(ISSUER.url, keys=ISSUER.jwks, audience=RESOURCE, check=check)
HOOKS = {
    "verifier": VERIFIER,
    "resource": ProtectedResource(RESOURCE, VERIFIER),
    "several": ProtectedResource(RESOURCE, any_of(static({"a-token-of-many-letters": "bob"}), VERIFIER)),
}


@pytest.mark.parametrize("kind", HOOKS)
@pytest.mark.parametrize("is_passed", [True, False])
def test_the_check_of_claims_runs_on_asyncio_where_the_server_does(kind: str, is_passed: bool) -> None:
    hook = HOOKS[kind]
    if is_passed:
        app = asgi_app(Server("notes", asyncio=True), authenticate=hook)
    else:
        app = asgi_app(Server("notes", asyncio=True, http=HttpOptions(authenticate=hook)))
    headers = {"authorization": f"Bearer {ISSUER.token('alice', audience=RESOURCE)}"}

    async def main() -> None:
        for _ in range(2):
            assert await app.principal_of(headers) == "checked"

    in_program(main)
