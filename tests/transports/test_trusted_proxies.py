"""What proxies say of their clients is believed if they are trusted, and in no other case."""

from __future__ import annotations

import json

import pytest
from asgi_peer import JSON_HEADERS, modern_call, served as served_app
from hypothesis import given, strategies as st

from trio_mcp import HttpOptions, HttpRequest, HttpResponse, Server
from trio_mcp_transports.asgi.access import HttpRejection
from trio_mcp_transports.asgi.forwarded import TrustedProxies
from trio_mcp_transports.asgi.requests import NO_BODY, Request
from trio_mcp_transports.http import asgi_app

PROXIES = TrustedProxies(["10.0.0.0/8", "fd00::1"])


def seen(client: str | None = "10.0.0.1", path: str = "/mcp", **headers: str) -> Request:
    named = {"host": "inside", **{name.replace("_", "-"): value for name, value in headers.items()}}
    request = Request("GET", path, named, NO_BODY, client=None if client is None else (client, 5000))
    PROXIES.restore(request)
    return request


def summary(request: Request) -> tuple[str | None, str, str]:
    client = request.client
    return client and client[0], request.scheme, request.headers["host"]


FOR = {"x_forwarded_for": "1.2.3.4", "x_forwarded_proto": "https", "x_forwarded_host": "mcp.example.com"}


@pytest.mark.parametrize("client", ["10.9.8.7", "fd00::1", "::ffff:10.0.0.1"])
def test_a_trusted_proxy_is_believed(client: str) -> None:
    assert summary(seen(client, **FOR)) == ("1.2.3.4", "https", "mcp.example.com")
    standard = 'for=1.2.3.4;proto=https;host="mcp.example.com"'
    assert summary(seen(client, forwarded=standard)) == ("1.2.3.4", "https", "mcp.example.com")


@pytest.mark.parametrize("client", ["11.0.0.1", "fd00::2", None, "not an address"])
def test_the_headers_of_other_peers_are_ignored(client: str | None) -> None:
    assert summary(seen(client, **FOR, forwarded="for=9.9.9.9"))[1:] == ("http", "inside")
    assert summary(seen(client, **FOR))[0] == client


def test_a_unix_socket_is_trusted_by_its_name() -> None:
    for proxies, client in ((TrustedProxies(["unix"]), ("1.2.3.4", 0)), (PROXIES, None)):
        request = Request("GET", "/", {"x-forwarded-for": "1.2.3.4"}, NO_BODY)
        proxies.restore(request)
        assert request.client == client


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        # What the client has made up is on the left of what the first trusted proxy has added.
        ({"x_forwarded_for": "6.6.6.6, 1.2.3.4"}, "1.2.3.4"),
        ({"x_forwarded_for": "6.6.6.6, 1.2.3.4, 10.0.0.7"}, "1.2.3.4"),
        ({"x_forwarded_for": "10.0.0.7"}, "10.0.0.7"),
        ({"x_forwarded_for": "1.2.3.4:5678"}, "1.2.3.4"),
        ({"x_forwarded_for": "[2001:db8::1]:5678"}, "2001:db8::1"),
        ({"x_forwarded_for": "6.6.6.6, unknown"}, None),
        ({"forwarded": "for=6.6.6.6, for=1.2.3.4, for=10.0.0.7"}, "1.2.3.4"),
        ({"forwarded": 'For="[2001:db8::1]:80";By=10.0.0.1'}, "2001:db8::1"),
        ({"forwarded": "for=_hidden"}, None),
    ],
)
def test_the_client_is_the_first_address_that_is_no_proxys(headers: dict[str, str], expected: str | None) -> None:
    assert summary(seen(**headers))[0] == expected


def test_scheme_and_host_are_those_of_the_outermost_trusted_proxy() -> None:
    lists = {
        "x_forwarded_for": "6.6.6.6, 1.2.3.4, 10.0.0.7",
        "x_forwarded_proto": "ftp, https, http",
        "x_forwarded_host": "evil.example, mcp.example.com, inner",
    }
    assert summary(seen(**lists)) == ("1.2.3.4", "https", "mcp.example.com")
    standard = "for=6.6.6.6;host=evil.example, for=1.2.3.4;proto=https, for=10.0.0.7;host=inner;proto=http"
    assert summary(seen(forwarded=standard)) == ("1.2.3.4", "https", "inner")


def test_a_websocket_through_wss_is_secure() -> None:
    assert seen(x_forwarded_proto="wss").scheme == "https"


def test_two_kinds_of_headers_must_agree() -> None:
    """A proxy that writes one kind may pass on the other as its client has made it up."""
    assert summary(seen(**FOR, forwarded='for="1.2.3.4:99";proto=https;host=mcp.example.com'))[0] == "1.2.3.4"
    with pytest.raises(HttpRejection) as refused:
        seen(**FOR, forwarded="for=9.9.9.9")
    assert refused.value.status == 400
    only_one = seen(x_forwarded_for="1.2.3.4", forwarded="for=1.2.3.4;host=evil.example;proto=https")
    assert summary(only_one) == ("1.2.3.4", "http", "inside")


@pytest.mark.parametrize(
    "headers",
    [
        {"forwarded": "for"},
        {"forwarded": "for=a;for=b"},
        {"forwarded": 'for="a'},
        {"x_forwarded_proto": "gopher"},
        {"x_forwarded_host": "a b"},
        {"x_forwarded_host": "user@host"},
        {"x_forwarded_prefix": "//evil?x"},
    ],
)
def test_what_cannot_be_read_is_rejected(headers: dict[str, str]) -> None:
    with pytest.raises(HttpRejection) as refused:
        seen(**headers)
    assert refused.value.status == 400


@pytest.mark.parametrize("path", ["/mcp", "/tools/mcp"])
def test_the_prefix_of_a_proxy_is_the_root_whether_it_was_removed_or_not(path: str) -> None:
    request = seen(path=path, x_forwarded_prefix="/tools/")
    assert (request.root_path, request.path, request.route) == ("/tools", "/tools/mcp", "/mcp")


@given(st.text(st.characters(max_codepoint=255), max_size=40), st.text(st.characters(max_codepoint=255), max_size=60))
def test_no_header_does_more_than_to_be_rejected(forwarded: str, clients: str) -> None:
    try:
        request = seen(forwarded=forwarded, x_forwarded_for=clients)
    except HttpRejection as refused:
        # One kind, so that no other error can hide.
        if refused.status != 400:
            raise
    else:
        assert request.scheme in ("http", "https")


async def test_the_host_that_a_trusted_proxy_reports_is_checked() -> None:
    server = Server("shop", http=HttpOptions(allowed_hosts=["mcp.example.com"], trusted_proxies=["10.0.0.1"]))
    clients: list[str | None] = []

    @server.tool
    async def nothing() -> None:
        """Do nothing."""

    @server.route("/client")
    async def client(request: HttpRequest) -> HttpResponse:
        clients.append(request.client)
        return HttpResponse(request.scheme)

    message, headers = modern_call("nothing")
    async with served_app(asgi_app(server)) as peer:

        async def status(address: str, host: str) -> int:
            lines = [(k.encode(), v.encode()) for k, v in {**headers, "x-forwarded-host": host}.items()]
            reply = peer.start_raw(json.dumps(message).encode(), lines, "POST", "/mcp", client=(address, 1))
            return (await reply.end()).status

        assert await status("10.0.0.1", "mcp.example.com") == 200
        assert await status("10.0.0.1", "evil.example") == 421
        assert await status("10.0.0.2", "mcp.example.com") == 421
        lines = [(b"host", b"mcp.example.com"), (b"x-forwarded-for", b"1.2.3.4"), (b"x-forwarded-proto", b"https")]
        reply = await peer.start_raw(b"", lines, "GET", "/client", client=("10.0.0.1", 1)).end()
        assert (reply.body, clients) == (b"https", ["1.2.3.4"])


async def test_the_uri_of_an_http_sse_stream_has_the_prefix_of_the_proxy() -> None:
    server = Server("shop", http=HttpOptions(sse_path="/sse", trusted_proxies=["10.0.0.1"], root_path="/own"))
    async with served_app(asgi_app(server)) as peer:
        for given, prefix in (({}, "/own"), ({"x-forwarded-prefix": "/tools"}, "/tools")):
            lines = [(k.encode(), v.encode()) for k, v in {**JSON_HEADERS, **given}.items()]
            stream = peer.start_raw(None, lines, "GET", "/sse", client=("10.0.0.1", 1))
            await stream.until(f"data: {prefix}/message?session_id=")
            stream.gone.set()
