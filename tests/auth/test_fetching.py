"""Requests of authorization: limits of size and time, and connections to checked addresses only. Nothing is on a network here."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterable
from typing import Any

import httpcore2
import pytest
import trio

from trio_mcp.auth.addresses import Reach
from trio_mcp.auth.fetching import FETCH_SECONDS, MAX_LOOKUPS, fetch
from trio_mcp.auth.replies import MAX_REPLY, Reply
from trio_mcp.errors import AuthorizationError, AuthorizationErrorKind

URL = "http://localhost:9/metadata?code=canary-code"


class Network(httpcore2.AsyncNetworkBackend):
    """The network: every connection gets these bytes, the last piece after a wait without end if it is None."""

    def __init__(self, *pieces: bytes | None) -> None:
        self.pieces = pieces
        self.connected = list[str]()
        self.sent = bytearray()

    async def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        self.connected.append(host)
        if self.pieces == ():
            raise httpcore2.ConnectError("connection refused")
        return Stream(self)


class Stream(httpcore2.AsyncNetworkStream):
    def __init__(self, network: Network) -> None:
        self._network, self._pieces = network, iter(network.pieces)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        piece = next(self._pieces, b"")
        if piece is None:
            await trio.sleep_forever()
        return piece or b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._network.sent += buffer

    async def aclose(self) -> None:
        pass


class Names:
    """The names of the network; each look-up takes the next list of addresses."""

    def __init__(self, *answers: Iterable[str]) -> None:
        self.answers = [list(each) for each in answers]

    async def look_up(self, host: str, port: int, limiter: object) -> list[str]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def serve(monkeypatch: pytest.MonkeyPatch, *pieces: bytes | None, names: Names | None = None) -> Network:
    network = Network(*pieces)
    monkeypatch.setattr(httpcore2, "TrioBackend", lambda: network)
    monkeypatch.setattr("trio_mcp.auth.fetching.look_up", (names or Names(["127.0.0.1"])).look_up)
    return network


def response(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body


async def refused(url: str, reach: Reach, kind: AuthorizationErrorKind) -> str:
    with pytest.raises(AuthorizationError) as caught:
        await fetch(url, reach)
    assert caught.value.kind is kind
    assert "canary" not in f"{caught.value!r} {caught.value.__cause__!r}"
    return str(caught.value)


async def test_a_document_is_fetched_with_its_status_and_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    network = serve(monkeypatch, response(b'{"a": 1}', headers="Cache-Control: max-age=60\r\nX: 1\r\nx: 2\r\n"))
    reply = await fetch(URL, Reach.LOOPBACK)
    assert (reply.status, reply.document("the metadata")) == (200, {"a": 1})
    assert (reply.headers["cache-control"], reply.headers["x"]) == ("max-age=60", "1, 2")
    assert network.sent.startswith(b"GET /metadata?code=canary-code HTTP/1.1\r\n")
    assert b"cookie" not in network.sent.lower()


async def test_a_form_and_a_json_object_are_posted(monkeypatch: pytest.MonkeyPatch) -> None:
    network = serve(monkeypatch, response(b"{}"))
    await fetch(URL, Reach.LOOPBACK, form={"a": "b c", "d": "&"}, headers={"authorization": "Basic x"})
    assert network.sent.endswith(b"\r\n\r\na=b+c&d=%26")
    assert b"authorization: Basic x\r\n" in network.sent
    network.sent.clear()
    await fetch(URL, Reach.LOOPBACK, json={"a": ["b"]})
    assert json.loads(network.sent.partition(b"\r\n\r\n")[2]) == {"a": ["b"]}


async def test_a_redirect_is_a_reply_and_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    network = serve(monkeypatch, response(b"", "302 Found", "location: https://evil.example/\r\n"))
    assert (await fetch(URL, Reach.LOOPBACK)).status == 302
    assert len(network.connected) == 1


async def test_a_body_over_the_limit_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, b"HTTP/1.1 200 OK\r\ncontent-length: 20000000\r\n\r\n", b"x" * (MAX_REPLY + 1), None)
    await refused(URL, Reach.LOOPBACK, AuthorizationErrorKind.METADATA)


@pytest.mark.parametrize("pieces", [(None,), (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", b"x", None)])
async def test_an_exchange_ends_after_its_time(
    pieces: tuple[bytes | None, ...], monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    serve(monkeypatch, *pieces)
    await refused(URL, Reach.LOOPBACK, AuthorizationErrorKind.UNAVAILABLE)
    assert trio.current_time() == FETCH_SECONDS


@pytest.mark.parametrize("pieces", [(), (b"",), (b"garbage\r\n\r\n",)])
async def test_an_unreachable_server_is_unavailable(pieces: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, *pieces)
    await refused(URL, Reach.LOOPBACK, AuthorizationErrorKind.UNAVAILABLE)


async def test_lookups_of_what_peers_name_leave_the_threads_of_the_program_free(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """A lookup cannot be cancelled: it keeps its thread for as long as the name servers of an attacker are silent."""
    begun, is_over = threading.Semaphore(0), threading.Event()

    def silent(host: str, *_: Any, flags: int = 0, **__: Any) -> Any:
        if not flags & socket.AI_NUMERICHOST:
            begun.release()
            is_over.wait()
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    async def ask(number: int) -> None:
        with pytest.raises(AuthorizationError):
            await fetch(f"https://slow-{number}.example/", Reach.PUBLIC)

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    try:
        async with trio.open_nursery() as nursery:
            for number in range(MAX_LOOKUPS + 5):
                nursery.start_soon(ask, number)
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
        assert all(begun.acquire(timeout=10) for _ in range(MAX_LOOKUPS))
        assert not begun.acquire(blocking=False)
    finally:
        is_over.set()


@pytest.mark.parametrize("answers", [["10.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["8.8.8.8", "::ffff:127.0.0.1"]])
async def test_a_name_with_an_address_that_may_not_be_reached_is_not_contacted(
    answers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = serve(monkeypatch, response(b"{}"), names=Names(answers))
    await refused("https://as.example/?code=canary", Reach.PUBLIC, AuthorizationErrorKind.ADDRESS)
    assert network.connected == []


async def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    # A second look-up would find this machine.
    network = serve(monkeypatch, names=Names(["8.8.8.8", "9.9.9.9"], ["127.0.0.1"]))
    await refused("https://as.example/?code=canary", Reach.PUBLIC, AuthorizationErrorKind.UNAVAILABLE)
    assert network.connected == ["8.8.8.8", "9.9.9.9"]


async def test_behind_a_proxy_of_the_environment_the_proxy_resolves_names(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, names=Names(["10.0.0.1"]))
    made = list[tuple[Any, Any]]()

    class Proxy(httpcore2.AsyncConnectionPool):
        def __init__(self, url: str, *, proxy_auth: Any, ssl_context: Any) -> None:
            super().__init__(network_backend=Network(), ssl_context=ssl_context)
            made.append((url, proxy_auth))

    monkeypatch.setattr(httpcore2, "AsyncHTTPProxy", Proxy)
    monkeypatch.setenv("https_proxy", "http://user:pass%20word@proxy.example:3128")
    monkeypatch.setenv("no_proxy", "direct.example")
    await refused("https://as.example/", Reach.PUBLIC, AuthorizationErrorKind.UNAVAILABLE)
    assert made == [("http://proxy.example:3128", ("user", "pass word"))]
    await refused("https://10.0.0.1/", Reach.PUBLIC, AuthorizationErrorKind.ADDRESS)
    await refused("https://direct.example/", Reach.PUBLIC, AuthorizationErrorKind.ADDRESS)
    assert len(made) == 1


@pytest.mark.parametrize(
    "proxy", ["socks5://u:canary@h:1", "http://u:canary@[", "http://u:canary@h:x", "://u:canary@h"]
)
async def test_a_proxy_of_the_environment_that_is_none_of_http_is_an_error(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("all_proxy", proxy)
    why = await refused("https://as.example/?code=canary", Reach.PUBLIC, AuthorizationErrorKind.UNAVAILABLE)
    assert "the environment names a proxy" in why


async def test_a_host_that_the_proxy_of_the_environment_refuses_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    class Proxy(httpcore2.AsyncHTTPProxy):
        def __init__(self, url: str, **options: Any) -> None:
            super().__init__(url, network_backend=Network(response(b"", "403 Forbidden")), **options)

    monkeypatch.setattr(httpcore2, "AsyncHTTPProxy", Proxy)
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    why = await refused("https://as.example/?code=canary", Reach.PUBLIC, AuthorizationErrorKind.UNAVAILABLE)
    assert "403" in why


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>canary</html>", b'{"a": 1, "a": 2}', b'{"a": NaN}', b"\xff"])
def test_a_body_that_is_no_json_object_is_no_document(body: bytes) -> None:
    reply = Reply(200, body=body)
    with pytest.raises(AuthorizationError) as caught:
        reply.document("the answer", AuthorizationErrorKind.TOKEN)
    assert caught.value.kind is AuthorizationErrorKind.TOKEN
    assert "canary" not in f"{caught.value} {reply!r}"


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example"])
async def test_a_host_name_that_idna_does_not_allow_cannot_be_reached(host: str) -> None:
    with pytest.raises(AuthorizationError) as caught:
        await fetch(f"https://{host}/", Reach.PUBLIC)
    assert caught.value.kind is AuthorizationErrorKind.UNAVAILABLE
