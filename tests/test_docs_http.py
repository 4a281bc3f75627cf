"""The code of docs/http.md does what the page says."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache

import httpx2
import pytest
import trio
from pages import Names, Page
from trio.testing import MockClock

from trio_mcp.errors import ProtocolError
from trio_mcp.http import HttpLimits
from trio_mcp_transports.http import asgi_app


@cache
def page() -> Names:
    return Page("http").run()


@pytest.mark.parametrize(
    ("authorization", "principal"),
    [
        ("Bearer a-long-random-token", "alice"),
        ("bearer another-long-random-token", "bob"),
        ("Bearer wrong", None),
        ("Basic a-long-random-token", None),
        ("Bearer", None),
        ("", None),
        ("Bearer \xff", None),
    ],
)
async def test_who_calls_is_known_by_a_token(authorization: str, principal: str | None) -> None:
    app = asgi_app(page()["server"], authenticate=page()["authenticate"])
    with nullcontext() if principal else pytest.raises(ProtocolError):
        assert await app.principal_of({"authorization": authorization}) == principal


@pytest.mark.parametrize(
    ("app", "path", "status"),
    [
        ("app", "/mcp", 401),
        ("app", "/sse", 401),
        ("both", "/mcp", 204),
        ("both", "/message", 204),
        ("alone", "/message", 204),
        ("alone", "/mcp", 404),
    ],
)
async def test_the_applications_are_reached_where_the_page_says(
    autojump_clock: MockClock, app: str, path: str, status: int
) -> None:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=page()[app])) as client:
        with trio.fail_after(10):
            assert (await client.options(f"http://localhost{path}")).status_code == status


async def test_a_caller_has_the_scopes_that_the_page_gives_it() -> None:
    names = page()
    bob = await names["editors"].caller_of({"authorization": "Bearer another-long-random-token"})
    alice = await names["editors"].caller_of({"authorization": "Bearer a-long-random-token"})
    assert (sorted(bob.scopes), sorted(alice.scopes)) == (["notes:read"], ["notes:read", "notes:write"])
    assert [names["is_editor"](caller) for caller in (None, bob, alice)] == [False, False, True]
    assert alice.claims == {"team": "blue"}


def test_the_page_says_how_often_open_streams_are_checked_again() -> None:
    assert f"every `HttpLimits.recheck_seconds` ({HttpLimits().recheck_seconds:g})" in Page("http").prose
