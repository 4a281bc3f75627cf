"""Requests whose target is a whole URI (RFC 9112, 3.2.2): its host is the one that counts, whatever the Host field says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypercorn_peer import Server as RunningServer, get, over_tls, reply, running, serving, upgrade
from peer import EVERYTHING, modern_meta
from wire_terms import headers_of

from trio_mcp import Context, Server
from trio_mcp_transports.asgi.requests import Request
from trio_mcp_transports.asgi.responses import Response
from trio_mcp_transports.http import asgi_app
from trio_mcp_transports.hypercorn.config import guarded_config

OWN = "127.0.0.1"
FOREIGN = "evil.example"
LISTED = "mcp.example.com"


def whole(host: str, path: str = "/mcp", scheme: str = "http") -> str:
    return f"{scheme}://{host}{path}"


def call(target: str, host: str | None = OWN, *headers: str, version: str = "1.1") -> bytes:
    """A call of the tool `host`."""
    params = {"name": "host", "arguments": {}, "_meta": modern_meta(EVERYTHING)}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    lines = [
        f"POST {target} HTTP/{version}",
        *([] if host is None else [f"Host: {host}"]),
        "Accept: application/json, text/event-stream",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers_of("tools/call", params).items()),
        *headers,
    ]
    return "\r\n".join([*lines, "", body]).encode()


@asynccontextmanager
async def shop(**options: Any) -> AsyncIterator[RunningServer]:
    server = Server("shop")

    @server.tool
    async def host(ctx: Context) -> str:
        return "called"

    async with running(asgi_app(server, **options), guarded_config()) as running_server:
        yield running_server


SERVED = {
    "a port": whole(f"{OWN}:8000"),
    "no port": whole(OWN),
    "an empty port": whole(f"{OWN}:"),
    "another port": whole(f"{OWN}:9"),
    "upper case": whole("LOCALHOST", scheme="HTTP"),
    "an address of IPv6": whole("[::1]:8000"),
}


@pytest.mark.parametrize("target", SERVED.values(), ids=SERVED)
@pytest.mark.parametrize("host", [OWN, FOREIGN, ""])
async def test_a_whole_uri_is_served_whatever_the_host_field_says(target: str, host: str) -> None:
    async with shop() as server:
        status, body = await server.ask(call(target, host))
    assert status == 200
    assert b"called" in body


async def test_the_connection_goes_on_with_targets_of_both_kinds() -> None:
    async with shop() as server, server.client() as client:
        for target in ("/mcp", whole(OWN), "/mcp", whole(OWN)):
            assert (await client.ask(call(target)))[0] == 200


async def test_http_1_0_needs_no_host_field_then() -> None:
    async with shop() as server:
        assert (await server.ask(call(whole(OWN), None, version="1.0")))[0] == 200
        assert (await server.ask(call(whole(FOREIGN), None, version="1.0")))[0] == 421


REFUSED = {
    "another host": (421, whole(FOREIGN)),
    "another host with our port": (421, whole(f"{FOREIGN}:8000")),
    "another host in upper case": (421, whole(FOREIGN.upper(), scheme="HTTP")),
    "our host as a part of another": (421, whole(f"{OWN}.{FOREIGN}")),
    "our host, encoded": (421, whole("127%2e0.0.1")),
    "https without TLS": (421, whole(OWN, scheme="https")),
    "https in upper case": (421, whole(OWN, scheme="HTTPS")),
    "another scheme": (421, whole(OWN, scheme="ftp")),
    "the scheme of a WebSocket": (421, whole(OWN, scheme="ws")),
    "a user": (400, whole(f"{OWN}@{FOREIGN}")),
    "a user of our host": (400, whole(f"user@{OWN}")),
    "a user and a password": (400, whole(f"user:secret@{OWN}")),
    "no host": (400, whole("")),
    "no host but a port": (400, whole(":8000")),
    "a port that is none": (400, whole(f"{OWN}:http")),
    "two ports": (400, whole(f"{OWN}:80:80")),
    "a backslash": (400, whole(f"{FOREIGN}\\@{OWN}")),
    "an open bracket": (400, whole("[::1")),
    "another path": (404, whole(OWN, "/elsewhere")),
    "no path": (404, whole(OWN, "")),
    "a query in place of the path": (404, whole(OWN, "?/mcp")),
    "a fragment in place of the path": (404, whole(OWN, "#/mcp")),
    "a whole URI as the path": (404, whole(OWN, f"/{whole(OWN)}")),
    "a scheme without an authority": (404, "http:/mcp"),
    "a relative reference to a host": (404, f"//{OWN}/mcp"),
}


@pytest.mark.parametrize(("status", "target"), REFUSED.values(), ids=REFUSED)
async def test_a_whole_uri_that_is_not_ours_is_refused_although_the_host_field_is(status: int, target: str) -> None:
    async with shop() as server:
        assert (await server.ask(call(target)))[0] == status
        # What it does to the memory of heads that passed, it must not do to the next request.
        assert (await server.ask(call("/mcp")))[0] == 200
        assert (await server.ask(call(target)))[0] == status


@pytest.mark.parametrize("host", ["a b", "user@127.0.0.1", "127.0.0.1:http", "127.0.0.1/x", "127.0.0.1, 127.0.0.1"])
async def test_a_host_field_that_is_none_is_400_although_it_is_not_used(host: str) -> None:
    async with shop() as server:
        assert (await server.ask(call(whole(OWN), host)))[0] == 400


@pytest.mark.parametrize("lines", [[], [f"Host: {OWN}", f"Host: {OWN}"]])
async def test_http_1_1_needs_one_host_field_all_the_same(lines: list[str]) -> None:
    async with shop() as server:
        assert (await server.ask(call(whole(OWN), None, *lines)))[0] == 400


async def test_the_allowed_hosts_are_those_of_the_target() -> None:
    async with shop(allowed_hosts=[LISTED]) as server:
        assert (await server.ask(call(whole(LISTED), OWN)))[0] == 200
        assert (await server.ask(call(whole(OWN), LISTED)))[0] == 421
        status, body = await server.ask(call(whole(FOREIGN), LISTED))
    assert status == 421
    assert FOREIGN in json.loads(body)["error"]["message"]


async def test_the_checks_of_browsers_are_those_of_any_other_target() -> None:
    async with shop() as server:
        assert (await server.ask(call(whole(OWN), OWN, f"Origin: http://{FOREIGN}")))[0] == 403
        assert (await server.ask(call(whole(OWN), OWN, "Sec-Fetch-Site: cross-site")))[0] == 403


async def test_a_trusted_proxy_has_the_last_word_on_the_host() -> None:
    proxies = {"trusted_proxies": ["127.0.0.1"], "allowed_hosts": [LISTED]}
    async with shop(**proxies) as server:
        assert (await server.ask(call(whole(OWN), OWN, f"X-Forwarded-Host: {LISTED}")))[0] == 200
        assert (await server.ask(call(whole(LISTED), LISTED, f"X-Forwarded-Host: {FOREIGN}")))[0] == 421


async def test_a_websocket_may_be_asked_for_with_a_whole_uri() -> None:
    async with shop() as server:
        for target, host, status in ((whole(OWN), FOREIGN, 101), (whole(FOREIGN), OWN, 421)):
            async with server.client() as client:
                await client.send(upgrade("sec-websocket-protocol: mcp", path=target, host=host))
                assert (await client.head())[0] == status


async def test_over_tls_the_uri_is_one_of_https(certificate: Path) -> None:
    async with running(asgi_app(Server("shop")), over_tls(certificate)) as server:
        for scheme, host, status in (("https", OWN, 200), ("http", OWN, 421), ("https", FOREIGN, 421)):
            async with server.secured(certificate) as (client, _):
                assert (await client.ask(call(whole(host, scheme=scheme))))[0] == status


# What applications receive


async def received(asked: bytes, config: Any = None) -> tuple[int, list[Request]]:
    """The status of the answer to a request, and the requests that the application got."""
    requests: list[Request] = []

    async def app(request: Request) -> Response:
        requests.append(request)
        return reply()

    async with running(serving(app), config or guarded_config()) as server:
        status, _ = await server.ask(asked)
    return status, requests


async def test_an_application_receives_the_path_and_one_host() -> None:
    status, (request,) = await received(get("http://Shop.example:81/a%20b?c=d", "x-other: 1"))
    assert status == 200
    assert (request.path, request.query) == ("/a b", "c=d")
    assert request.headers == {"host": "Shop.example:81", "x-other": "1"}


@pytest.mark.parametrize(("host", "status"), [("shop.example", 200), (FOREIGN, 404)])
async def test_the_names_of_hypercorn_are_compared_with_the_host_of_the_target(host: str, status: int) -> None:
    config = guarded_config()
    config.server_names = ["shop.example"]
    assert (await received(get(f"http://{host}/"), config))[0] == status


TARGETS = {
    "OPTIONS *": ("*", "x"),
    "CONNECT shop.example:80": ("shop.example:80", "x"),
    "CONNECT http://shop.example/": ("http://shop.example/", "x"),
    "OPTIONS http://shop.example": ("*", "shop.example"),
    "OPTIONS http://shop.example?a": ("/", "shop.example"),
    "GET http://shop.example": ("/", "shop.example"),
    "GET shop.example:80": ("shop.example:80", "x"),
}


@pytest.mark.parametrize("line", TARGETS)
async def test_other_forms_of_targets_are_passed_on_unchanged(line: str) -> None:
    path, host = TARGETS[line]
    _, (request,) = await received(f"{line} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    assert (request.path, request.headers["host"]) == (path, host)


async def test_a_long_uri_counts_towards_the_limit_of_the_head() -> None:
    config = guarded_config()
    config.h11_max_incomplete_size = 1000
    assert (await received(get(f"http://{'a' * 1000}/"), config))[0] == 431
