"""What a network does to either end (reliability rows 33, 36, 54, 58 and 61): silence, no free files, broken TLS."""

from __future__ import annotations

import re
import resource
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from hypercorn_peer import SOON, Client, Exchanges, get, listening, over_tls, running, serving
from serving import IMPORTS, http_process

import trio_mcp
from trio_mcp import Disconnected
from trio_mcp.errors import RemoteProtocolError, ServerBusy
from trio_mcp_transports.httpx import error_text

HERE = Path(__file__).parent
UNSHARE = shutil.which("unshare")

guarded = running


# Row 33: the peer has vanished without closing its connection


@pytest.mark.skipif(
    UNSHARE is None or subprocess.run([UNSHARE, "-rn", "true"], capture_output=True).returncode != 0,
    reason="a separate network takes unprivileged namespaces",
)
def test_a_client_that_vanished_is_found_by_what_it_does_not_acknowledge() -> None:
    assert UNSHARE is not None
    command = [UNSHARE, "-rn", sys.executable, str(HERE / "half_open.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=dict(IMPORTS))
    assert re.fullmatch(r"notified after (\d\.\d)\n", done.stdout), (done.stdout, done.stderr)


# Row 36: more connections than files

SERVER = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
from trio_mcp import Server

server = Server("few files", version="1")


@server.tool
def echo(text: str) -> str:
    return text


server.run("http", port=int(sys.argv[2]))
"""


async def test_a_server_that_is_short_of_files_sheds_connections_and_recovers(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 300
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    async with http_process(script) as process, trio_mcp.Client.connect(process.url) as client:
        port = int(process.url.rpartition(":")[2].partition("/")[0])
        crowd = [socket.create_connection(("127.0.0.1", port), timeout=SOON) for _ in range(200)]
        try:
            # Of the connections that these files allow, 48, one address has half.
            answers = [await trio.to_thread.run_sync(received, each) for each in crowd[30:]]
            assert any(answer.startswith(b"HTTP/1.1 503") for answer in answers)
            assert all(answer.startswith(b"HTTP/1.1 503") for answer in answers if answer)  # the others were closed
            assert (await client.call_tool("echo", {"text": "meanwhile"})).text == "meanwhile"
        finally:
            for each in crowd:
                each.close()
        with trio.fail_after(SOON):
            async with trio_mcp.Client.connect(process.url) as another:
                assert (await another.call_tool("echo", {"text": "again"})).text == "again"


def received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(64)
    except ConnectionError:
        return b""


# Row 58: TLS


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "half a hello"])
async def test_a_handshake_that_stalls_is_cut(certificate: Path, said: bytes) -> None:
    config = over_tls(certificate)
    config.ssl_handshake_timeout = 0.3
    async with guarded(serving(Exchanges()), config) as server, server.client() as client:
        if said:
            await client.send(said)
        assert await client.rest() == b""


async def test_a_tls_connection_that_breaks_off_is_a_disconnect(certificate: Path) -> None:
    app = Exchanges()
    async with guarded(serving(app), over_tls(certificate)) as server, server.secured(certificate) as (client, tls):
        await client.send(get("/"))
        exchange = await app.next()
        await tls.transport_stream.aclose()  # without the alert that announces it
        await exchange.until_disconnect()


# Row 61: what a client may find instead of a server


def http(status: str, *headers: str, body: bytes = b"") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""]).encode() + body


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[str]:
    """Where every request gets these bytes, or a reset for None; the URL."""

    async def handle(client: Client) -> None:
        await client.stream.receive_some(65536)
        if answer is None:
            client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.stream.socket.close()
        else:
            await client.send(answer)

    async with listening(handle) as address:
        yield f"http://{address}/mcp"


@asynccontextmanager
async def nobody() -> AsyncIterator[str]:
    with socket.socket() as bound:  # and not listening
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"


@asynccontextmanager
async def nowhere() -> AsyncIterator[str]:
    yield "http://no-such-host.invalid/mcp"


@asynccontextmanager
async def no_tls() -> AsyncIterator[str]:
    async with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        yield url.replace("http:", "https:")


@pytest.mark.parametrize("mode", ["auto", "legacy", "modern"])
@pytest.mark.parametrize(
    ("reached", "error", "said"),
    [
        (nowhere, Disconnected, "no-such-host.invalid"),
        (nobody, Disconnected, "refused"),
        (no_tls, Disconnected, "no TLS is spoken there"),
        (partial(answering, b"\x15\x03\x01\x00\x02\x02\x46"), Disconnected, "https:// instead of http://"),
        (partial(answering, None), Disconnected, "disconnected|reset"),
        (partial(answering, b"SSH-2.0-OpenSSH\r\n"), Disconnected, "illegal|malformed|disconnected|broken"),
        (partial(answering, http("200 OK")[:-2]), Disconnected, "disconnected|broken"),
        (partial(answering, http("301 Moved", "location: http://127.0.0.1:1/")), RemoteProtocolError, "HTTP 301"),
        (
            partial(answering, http("307 Away", "location: /shop/?a=b")),
            RemoteProtocolError,
            r"HTTP 307: .* http://\S+/shop/\?\.\.\.;",
        ),
        (partial(answering, http("302 Found", "location: http://a:b/")), RemoteProtocolError, "HTTP 302"),
        (partial(answering, http("308 Found", "location: //@..xn--80")), RemoteProtocolError, "HTTP 308"),
        (partial(answering, http("429 Slow", "retry-after: 7", body=b"Slow down")), ServerBusy, "Slow down"),
        (partial(answering, http("500 Oops", body=b"oops")), RemoteProtocolError, "HTTP 500: oops"),
        (partial(answering, http("502 Bad", body=b"<html>")), Disconnected, "HTTP 502: <html>"),
    ],
    ids=["dns", "refused", "tls", "tls alert", "reset", "ssh", "cut", "301", "307", "302", "308", "429", "500", "502"],
)
async def test_what_keeps_a_client_from_its_server_is_raised_at_once_and_named(
    mode: str, reached: Callable[[], Any], error: type[Exception], said: str
) -> None:
    with trio.fail_after(SOON):
        async with reached() as url:
            with pytest.raises(error, match=f"(?i){said}"):
                await trio_mcp.Client.connect(url, mode=mode).open()


@pytest.mark.parametrize(("scheme", "asked"), [("http", True), ("https", False)])
def test_a_connection_that_is_closed_without_an_answer_may_be_one_to_a_server_of_tls(scheme: str, asked: bool) -> None:
    request = httpx2.Request("POST", f"{scheme}://a.example/mcp")
    closed = httpx2.RemoteProtocolError("Server disconnected without sending a response.", request=request)
    assert ("https:// instead of http://" in error_text(closed)) is asked
