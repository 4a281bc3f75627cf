"""What type checkers see of the settings of a login."""

from __future__ import annotations

from typing import assert_type

import httpx2

from trio_mcp import Client, ClientGroup, GroupServer, proxy
from trio_mcp.auth import (
    AuthorizationError,
    ClientCredentials,
    EnterpriseManaged,
    Login,
    MemoryTokens,
    OAuth,
    TokenFiles,
    TokenStore,
    WorkloadIdentity,
)
from trio_mcp.errors import AuthorizationErrorKind

URL = "https://mcp.example.com/mcp"


async def browser(url: str) -> str | None:
    return None


async def assertion() -> str:
    return "a-token"


def token() -> str:
    return "a-token"


async def connect(store: TokenStore) -> None:
    for auth in (
        OAuth(browser=browser, store=store),
        ClientCredentials("robot", "secret"),
        WorkloadIdentity("robot", assertion),
        EnterpriseManaged("robot", "secret", idp=URL, idp_client_id="c", id_token="t"),
    ):
        async with Client.connect(URL, auth=auth) as client:
            await client.ping()
    Client.connect(URL, auth="a-token")
    Client.connect(URL, auth=token)
    Client.connect(URL, auth=assertion)
    Client.connect(URL, auth=httpx2.BasicAuth("user", "word"))
    ClientGroup({"a": GroupServer(URL, options={"auth": OAuth()})}, auth=OAuth(store=TokenFiles()))
    proxy(URL, auth=OAuth(interactive=False))
    try:
        assert_type(await store.read(URL), Login | None)
        assert_type(await MemoryTokens().urls(), list[str])
    except AuthorizationError as error:
        assert_type(error.kind, AuthorizationErrorKind)
