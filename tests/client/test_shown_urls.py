"""The URL of a server in the errors of its clients: others read them, so they show no part that may be a secret."""

from __future__ import annotations

import traceback

import pytest
import trio

from trio_mcp import Client
from trio_mcp.base.values import shown_url
from trio_mcp.errors import Disconnected
from trio_mcp.session import find_transport


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h:1/mcp", "http://h:1/mcp"),
        ("http://h/mcp?key=secret", "http://h/mcp?..."),
        ("http://h/mcp#secret", "http://h/mcp"),
        ("http://h?secret#secret", "http://h?..."),
        ("http://user:secret@h/mcp@1", "http://h/mcp@1"),
        ("wss://secret@secret@h/mcp", "wss://h/mcp"),
    ],
)
def test_a_url_is_shown_without_its_query_its_user_and_its_fragment(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.trio(run=trio.run)
@pytest.mark.parametrize("scheme", ["http", "ws", "sse"])
async def test_an_error_of_a_connection_names_the_server_without_its_query(scheme: str) -> None:
    url = f"{scheme.replace('sse', 'http')}://127.0.0.1:1/mcp?key=secret"
    opened = find_transport("sse").connect(url) if scheme == "sse" else Client.connect(url)
    with trio.fail_after(20), pytest.raises(Disconnected, match=r"127\.0\.0\.1:1/mcp") as raised:
        async with opened:
            raise AssertionError("it was opened")
    assert "secret" not in "".join(traceback.format_exception_only(raised.value))
