"""Sockets that systemd opens, and its notifications."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import trio
from serving import IMPORTS, SOON, START, served

from trio_mcp import Client, Server
from trio_mcp.base.service_notices import notify
from trio_mcp.errors import ConfigurationError
from trio_mcp_transports.http import serve_http
from trio_mcp_transports.systemd import activated_sockets, watchdog_seconds

HERE = Path(__file__).parent
APP = HERE / "activated_app.py"


@asynccontextmanager
async def activated(*sockets: socket.socket, **environment: str) -> AsyncIterator[trio.Process]:
    fds = [sock.fileno() for sock in sockets]
    process = await trio.lowlevel.open_process(
        [sys.executable, str(APP), ",".join(map(str, fds))],
        env={**os.environ, **IMPORTS, **environment},
        pass_fds=fds,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            assert process.stderr is not None
            await process.stderr.aclose()


def listening(address: str | None = None) -> socket.socket:
    sock = socket.socket(socket.AF_INET if address is None else socket.AF_UNIX)
    sock.bind(("127.0.0.1", 0) if address is None else address)
    sock.listen()
    return sock


async def received(sock: socket.socket) -> bytes:
    with trio.fail_after(START):
        while True:
            try:
                return sock.recv(1000)
            except BlockingIOError:
                await trio.sleep(0.01)


async def test_sockets_of_systemd_are_served_and_it_hears_of_the_start_and_the_end(tmp_path: Path) -> None:
    unix, news = str(tmp_path / "mcp.sock"), str(tmp_path / "notify.sock")
    with ExitStack() as open_sockets:
        notified = open_sockets.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        notified.bind(news)
        notified.setblocking(False)
        over_tcp, over_unix = (open_sockets.enter_context(listening(each)) for each in (None, unix))
        async with activated(over_tcp, over_unix, NOTIFY_SOCKET=news) as process:
            assert await received(notified) == b"READY=1"
            url = f"http://127.0.0.1:{over_tcp.getsockname()[1]}/mcp"
            with trio.fail_after(START):
                async with Client.connect(url) as client:
                    # Children of tools do not take the sockets for theirs.
                    assert (await client.call_tool("environment")).data == []
                transport = httpx2.AsyncHTTPTransport(uds=unix)
                async with httpx2.AsyncClient(transport=transport) as http:
                    assert (await http.get("http://localhost/ready")).text == "ready"
            process.send_signal(signal.SIGTERM)
            assert await received(notified) == b"STOPPING=1"
            with trio.fail_after(SOON):
                assert await process.wait() == 0


async def test_systemd_hears_again_and_again_that_the_event_loop_turns(tmp_path: Path) -> None:
    news = str(tmp_path / "notify.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified, listening() as sock:
        notified.bind(news)
        notified.setblocking(False)
        async with activated(sock, NOTIFY_SOCKET=news, WATCHDOG_USEC="200000"):
            heard = [await received(notified) for _ in range(4)]
    assert heard.count(b"WATCHDOG=1") == 3
    assert b"READY=1" in heard


@pytest.mark.parametrize("limit", ["0", "-1", "many", "9" * 20])
def test_a_wrong_limit_of_the_watchdog_is_an_error(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", limit)
    with pytest.raises(ConfigurationError):
        watchdog_seconds()


def test_the_watchdog_of_another_process_is_none_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert watchdog_seconds() is None


async def test_a_socket_that_the_network_reaches_needs_allowed_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as sock:
        sock.bind(("0.0.0.0", 0))
        sock.listen()
        async with activated(sock) as process:
            with trio.fail_after(START):
                assert await process.wait() == 1
                assert process.stderr is not None
                assert b"allowed_hosts" in b"".join([bytes(data) async for data in process.stderr])


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd-socket-activate is not installed")
async def test_the_tool_of_systemd_activates_a_server() -> None:
    with listening() as free:
        port = free.getsockname()[1]
    names = [f"-E{name}={value}" for name, value in IMPORTS.items()]
    command = ["systemd-socket-activate", *names, "-l", f"127.0.0.1:{port}", sys.executable, str(APP)]
    process = await trio.lowlevel.open_process(command, stderr=subprocess.PIPE)
    try:
        with trio.fail_after(START):
            assert process.stderr is not None
            while b"Listening" not in await process.stderr.receive_some():
                pass
            async with Client.connect(f"http://127.0.0.1:{port}/mcp") as client:
                assert (await client.call_tool("environment")).data == []
        process.send_signal(signal.SIGTERM)
        with trio.fail_after(SOON):
            assert await process.wait() == 0
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stderr.aclose()


def test_variables_for_another_process_mean_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_PID", "1")
    monkeypatch.setenv("LISTEN_FDS", "1")
    assert activated_sockets() is None
    assert os.environ["LISTEN_FDS"] == "1"


@pytest.mark.parametrize("count", ["", "0", "many", "-1", "9999", "100"])
async def test_a_wrong_number_of_sockets_is_an_error(monkeypatch: pytest.MonkeyPatch, count: str) -> None:
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", count)
    with pytest.raises(ConfigurationError, match="LISTEN_FDS"):
        await serve_http(Server("shop"), port=0, announce=False)


async def test_a_connection_in_place_of_a_listening_socket_is_an_error() -> None:
    one, two = socket.socketpair()
    with one, two:
        async with activated(one) as process:
            with trio.fail_after(START):
                assert await process.wait() == 1
                assert process.stderr is not None
                said = b"".join([bytes(data) async for data in process.stderr])
    assert len(said.splitlines()) == 1
    assert b"Accept=no" in said


def test_news_reach_a_socket_in_the_abstract_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"trio-mcp-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + name)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        assert notify("READY=1")
        assert sock.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/socket"])
async def test_a_server_is_served_also_if_systemd_cannot_be_notified(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not notify("READY=1")
    async with served(Server("shop")) as url:
        assert url.startswith("http://")
