"""The code of docs/deployment.md is one program, and does what the page says."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import fields
from functools import cache
from typing import Any

import httpx2
import pytest
import trio
from pages import Names, Page
from trio.testing import MockClock

from trio_mcp import HttpOptions
from trio_mcp.errors import ProtocolError
from trio_mcp.protocol.sealing.request_state import KeyRing
from trio_mcp.stores.opening import MAKE_A_KEY
from trio_mcp_transports.http import asgi_app

PAGE = Page("deployment")
SIGNED = {"host": "mcp.example.com", "authorization": "Bearer a-long-random-token"}


@cache
def page() -> Names:
    return PAGE.run()


@asynccontextmanager
async def client_of(name: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an application of the page, which serves meanwhile."""
    app = page()[name]
    with trio.fail_after(10):
        async with app.lifespan(), httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as client:
            yield client


async def test_the_routes_of_the_page_answer_as_it_says(autojump_clock: MockClock) -> None:
    async with client_of("app") as client:
        url = "http://10.1.2.3"
        assert (await client.get(f"{url}/health")).text == "ok"
        assert (await client.get(f"{url}/ready")).text == "ready"
        assert (await client.get(f"{url}/version")).text == "1.0"
        assert (await client.post(f"{url}/webhook", json=3)).status_code == 421
        answer = await client.post(f"{url}/webhook", json=3, headers=SIGNED)
        assert (answer.status_code, answer.json()) == (202, {"caller": "alice", "order": 3})
        assert (await client.post(f"{url}/mcp", json={}, headers={"host": "mcp.example.com"})).status_code == 401


@pytest.mark.parametrize(
    ("authorization", "principal"),
    [
        ("Bearer a-long-random-token", "alice"),
        ("bearer a-long-random-token", "alice"),
        ("a-long-random-token", None),
        ("Basic a-long-random-token", None),
        ("Bearer wrong", None),
    ],
)
async def test_a_token_needs_its_scheme(authorization: str, principal: str | None) -> None:
    app = asgi_app(page()["server"])
    with nullcontext() if principal else pytest.raises(ProtocolError):
        assert await app.principal_of({"authorization": authorization}) == principal


async def test_a_proxy_reaches_the_server_below_its_prefix(autojump_clock: MockClock) -> None:
    async with client_of("behind") as client:
        for path in ("/tools/version", "/version"):
            assert (await client.get(f"http://mcp.example.com{path}")).status_code == 200


@pytest.mark.parametrize("name", ["starlette_app", "fastapi_app"])
async def test_a_framework_serves_it_below_the_prefix(name: str, autojump_clock: MockClock) -> None:
    app: Any = page()[name]
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as client:
        assert (await client.get("http://x/tools/health")).text == "ok"
        assert (await client.get("http://x/tools/version")).text == "1.0"


def test_every_option_is_in_the_table() -> None:
    missing = [each.name for each in fields(HttpOptions) if f"`{each.name}`" not in PAGE.text]
    assert missing == []


def test_the_record_of_the_page_is_one_line_of_json() -> None:
    (line,) = PAGE.text.partition("```json\n")[2].partition("\n```")[0].splitlines()
    record: Mapping[str, Any] = json.loads(line)
    assert record["call"]["outcome"] == "ok"


def test_the_key_of_the_page_is_a_key() -> None:
    assert MAKE_A_KEY in PAGE.text
    command = re.search(r'python -c "(.*)"', MAKE_A_KEY)
    assert command is not None
    said: list[str] = []
    exec(command[1], {"print": said.append})
    KeyRing.parse(said[0])
