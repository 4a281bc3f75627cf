"""The page to which a browser is redirected after a login."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import urlsplit

import pytest
import trio

from trio_mcp.auth import AuthorizationError
from trio_mcp.auth.client.redirects import RedirectPage, open_redirect_page


def port_of(page: RedirectPage) -> int:
    port = urlsplit(page.uri).port
    assert port is not None
    return port


async def request(page: RedirectPage, data: bytes) -> bytes:
    """Send bytes to the page, with its address in place of HOST; return its whole answer, or nothing if it just closes."""
    port = port_of(page)
    data = data.replace(b"HOST", urlsplit(page.uri).netloc.encode())
    with trio.fail_after(10), suppress(trio.BrokenResourceError):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(data)
            return b"".join([bytes(chunk) async for chunk in stream])
    return b""


def get(target: str, method: str = "GET", host: str = "HOST") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()


GOOD = get("/callback?code=good&state=s")


async def test_the_first_redirect_is_the_answer_and_nothing_of_it_is_sent_back() -> None:
    async with open_redirect_page(0) as page:
        page.expect("s")
        assert page.uri.startswith("http://127.0.0.1:")
        first = await request(page, get("/callback?code=canary&state=s"))
        second = await request(page, get("/callback?code=later&state=s"))
        assert await page.wait() == f"{page.uri}?code=canary&state=s"
    assert first.startswith(b"HTTP/1.1 200")
    assert b"referrer-policy: no-referrer" in first
    assert b"canary" not in first
    assert second.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "data",
    [
        get("/"),
        get("/favicon.ico"),
        get("/callback"),
        get("/callback/?code=x&state=s"),
        get("/other?code=x&state=s"),
        get("/callback?code=x&state=s", "POST"),
        get("http://127.0.0.1/callback?code=x&state=s"),
        # of another login, or made up by a page or a scanner
        get("/callback?code=x"),
        get("/callback?code=x&state=other"),
        get("/callback?code=x&state=s&state=other"),
        get("/callback?code=x&state=%FF"),
        get("/callback?error=access_denied"),
        get("/callback?state=s&" + "x=1&" * 100),
        # by a name that leads to this machine (DNS rebinding)
        get("/callback?code=x&state=s", host="evil.example"),
        get("/callback?code=x&state=s", host="127.0.0.1"),
        b"GET /callback?code=x&state=s HTTP/1.0\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET /" + b"x" * 100_000,
        b"",
    ],
)
async def test_any_other_request_does_not_end_the_login(data: bytes) -> None:
    async with open_redirect_page(0) as page:
        page.expect("s")
        if data:
            assert not (await request(page, data)).startswith(b"HTTP/1.1 200")
        assert (await request(page, GOOD)).startswith(b"HTTP/1.1 200")
        assert await page.wait() == f"{page.uri}?code=good&state=s"


async def test_a_redirect_counts_for_the_login_that_is_waiting() -> None:
    async with open_redirect_page(0) as page:
        assert (await request(page, GOOD)).startswith(b"HTTP/1.1 400")
        page.expect("s")
        assert (await request(page, GOOD)).startswith(b"HTTP/1.1 200")
        page.expect("t")
        assert (await request(page, GOOD)).startswith(b"HTTP/1.1 400")


async def test_a_refused_login_has_another_page() -> None:
    async with open_redirect_page(0) as page:
        page.expect("s")
        refused = await request(page, get("/callback?error=access_denied&state=s"))
        page.expect("s")
        assert await request(page, GOOD) != refused
    assert refused.startswith(b"HTTP/1.1 200")


async def test_a_connection_that_sends_nothing_blocks_no_other() -> None:
    async with open_redirect_page(0) as page:
        page.expect("s")
        async with await trio.open_tcp_stream("127.0.0.1", port_of(page)):
            assert (await request(page, GOOD)).startswith(b"HTTP/1.1 200")


async def test_the_port_of_an_earlier_login_is_used_again_unless_it_is_taken() -> None:
    async with open_redirect_page(0) as page:
        known = page.uri
        async with open_redirect_page(0, known) as other:
            assert other.uri != known
    async with open_redirect_page(0, known) as page:
        assert page.uri == known


async def test_a_fixed_port_has_the_name_of_the_host_and_is_an_error_if_it_is_taken() -> None:
    async with open_redirect_page(0) as page:
        port = port_of(page)
        with pytest.raises(AuthorizationError, match=str(port)):
            async with open_redirect_page(port):
                pass
    async with open_redirect_page(port) as page:
        assert page.uri == f"http://localhost:{port}/callback"
        page.expect("s")
        other_name = get("/callback?code=x&state=s", host=f"127.0.0.1:{port}")
        assert (await request(page, other_name)).startswith(b"HTTP/1.1 404")
        assert (await request(page, GOOD)).startswith(b"HTTP/1.1 200")
