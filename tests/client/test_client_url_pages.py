"""A client that opens pages for its user: what it opens, and which completion notices it ignores (L-ELI-9c)."""

from __future__ import annotations

import pytest
from connected import connected
from talk import offering

from trio_mcp import Context, PeerError, UrlElicitationRequired, accept
from trio_mcp.types import ElicitRequestURLParams

URL = "https://example.com/connect"
URL_REQUIRED = -32042


async def connect(ctx: Context) -> str:
    return (await ctx.elicit_url("Connect your account", URL, elicitation_id="visit-1")).action


async def needs_page() -> str:
    raise UrlElicitationRequired("Connect your account", URL, elicitation_id="visit-1")


async def test_our_client_opens_the_page_and_ignores_a_notice_that_it_does_not_know(mode: str) -> None:
    opened: list[str] = []
    server = offering(connect)

    def open_page(asked: ElicitRequestURLParams) -> object:
        opened.append(asked.url)
        server.complete_elicitation("visit-1")
        return accept()

    async with connected(server, mode=mode, on_elicit_url=open_page) as client:
        result = await client.call_tool("connect")
        assert (result.text or "").startswith("accept")
        await client.ping()
    assert opened == [URL]


async def test_our_client_raises_the_error_and_ignores_the_notice_of_a_page_that_it_never_opened() -> None:
    server = offering(needs_page)
    async with connected(server, mode="legacy", on_elicit_url=lambda _: accept()) as client:
        with pytest.raises(PeerError) as refused:
            await client.call_tool("needs_page")
        assert refused.value.code == URL_REQUIRED
        assert server.complete_elicitation("visit-1")
        await client.ping()
