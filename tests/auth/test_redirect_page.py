"""The page to which a browser is redirected after a login."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio

from trio_mcp.auth import AuthorizationError
from trio_mcp.auth.client.redirects import RedirectPage, open_redirect_page


async def request(page: RedirectPage, data: bytes) -> bytes:
    """Send bytes to the page and return its whole answer; nothing if it closes the connection instead."""
    port = int(page.uri.split(":")[2].partition("/")[0])
    with trio.fail_after(10), suppress(trio.BrokenResourceError):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(data)
            return b"".join([bytes(chunk) async for chunk in stream])
    return b""


def get(target: str, method: str = "GET") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()


async def test_the_first_redirect_is_the_answer_and_nothing_of_it_is_sent_back() -> None:
    async with open_redirect_page(0) as page:
        assert page.uri.startswith("http://127.0.0.1:")
        first = await request(page, get("/callback?code=canary&state=s"))
        second = await request(page, get("/callback?code=later&state=s"))
        assert await page.wait() == f"{page.uri}?code=canary&state=s"
    assert first.startswith(b"HTTP/1.1 200")
    assert b"referrer-policy: no-referrer" in first
    assert b"canary" not in first
    assert second.startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize(
    "data",
    [
        get("/"),
        get("/favicon.ico"),
        get("/callback"),
        get("/callback/?code=x"),
        get("/other?code=x"),
        get("/callback?code=x", "POST"),
        get("http://127.0.0.1/callback?code=x"),
        b"nonsense\r\n\r\n",
        b"GET /" + b"x" * 100_000,
        b"",
    ],
)
async def test_any_other_request_is_no_answer(data: bytes) -> None:
    async with open_redirect_page(0) as page:
        if data:
            assert not (await request(page, data)).startswith(b"HTTP/1.1 200")
        assert (await request(page, get("/callback?code=good"))).startswith(b"HTTP/1.1 200")
        assert await page.wait() == f"{page.uri}?code=good"


async def test_a_connection_that_sends_nothing_blocks_no_other() -> None:
    async with open_redirect_page(0) as page:
        port = int(page.uri.split(":")[2].partition("/")[0])
        async with await trio.open_tcp_stream("127.0.0.1", port):
            assert (await request(page, get("/callback?code=good"))).startswith(b"HTTP/1.1 200")


async def test_the_port_of_an_earlier_login_is_used_again_unless_it_is_taken() -> None:
    async with open_redirect_page(0) as page:
        known = page.uri
        async with open_redirect_page(0, known) as other:
            assert other.uri != known
    async with open_redirect_page(0, known) as page:
        assert page.uri == known


async def test_a_fixed_port_has_the_name_of_the_host_and_is_an_error_if_it_is_taken() -> None:
    async with open_redirect_page(0) as page:
        port = int(page.uri.split(":")[2].partition("/")[0])
        with pytest.raises(AuthorizationError, match=str(port)):
            async with open_redirect_page(port):
                pass
    async with open_redirect_page(port) as page:
        assert page.uri == f"http://localhost:{port}/callback"
