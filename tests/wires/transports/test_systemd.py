"""Sockets that systemd opens, and its notifications."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx2
import pytest
import trio
from serving import IMPORTS, SOON, START, Child, child, free_port, served

from trio_mcp import Client, Server
from trio_mcp.errors import ConfigurationError
from trio_mcp_transports.http import serve_http
from trio_mcp_transports.systemd import activated_sockets, watchdog_seconds

HERE = Path(__file__).parent
APP = HERE / "activated_app.py"


def activated(*sockets: socket.socket, **variables: str) -> AbstractAsyncContextManager[Child]:
    fds = [sock.fileno() for sock in sockets]
    return child(APP, ",".join(map(str, fds)), strict=False, variables=variables, pass_fds=fds)


def listening(address: str | None = None) -> socket.socket:
    sock = socket.socket(socket.AF_INET if address is None else socket.AF_UNIX)
    sock.bind(("127.0.0.1", 0) if address is None else address)
    sock.listen()
    return sock


@pytest.fixture
async def notified(tmp_path: Path) -> AsyncIterator[trio.socket.SocketType]:
    """The socket on which systemd hears of a process."""
    with trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        await sock.bind(str(tmp_path / "notify.sock"))
        yield sock


async def received(sock: trio.socket.SocketType) -> bytes:
    with trio.fail_after(START):
        return await sock.recv(1000)


async def test_sockets_of_systemd_are_served_and_it_hears_of_the_start_and_the_end(
    tmp_path: Path, notified: trio.socket.SocketType
) -> None:
    unix = str(tmp_path / "mcp.sock")
    with listening() as over_tcp, listening(unix) as over_unix:
        async with activated(over_tcp, over_unix, NOTIFY_SOCKET=notified.getsockname()) as server:
            assert await received(notified) == b"READY=1"
            async with Client.connect(f"http://127.0.0.1:{over_tcp.getsockname()[1]}/mcp") as client:
                # Children of tools do not take the sockets for theirs.
                assert (await client.call_tool("environment")).data == []
            async with httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds=unix)) as http:
                assert (await http.get("http://localhost/ready")).text == "ready"
            server.process.send_signal(signal.SIGTERM)
            assert await received(notified) == b"STOPPING=1"
            assert await server.end() == 0


async def test_systemd_hears_again_and_again_that_the_event_loop_turns(notified: trio.socket.SocketType) -> None:
    with listening() as sock:
        async with activated(sock, NOTIFY_SOCKET=notified.getsockname(), WATCHDOG_USEC="200000"):
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


async def errors_of(sock: socket.socket) -> list[str]:
    """The lines that a server which is given this socket says before it ends."""
    async with activated(sock) as server:
        lines = (await server.errors()).decode().splitlines()
        assert await server.end() == 1
        return lines


async def test_a_socket_that_the_network_reaches_needs_allowed_hosts() -> None:
    with socket.create_server(("0.0.0.0", 0)) as sock:
        assert "allowed_hosts" in "".join(await errors_of(sock))


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd-socket-activate is not installed")
async def test_the_tool_of_systemd_activates_a_server() -> None:
    port = free_port()
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
        (line,) = await errors_of(one)
    assert "Accept=no" in line


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/socket"])
async def test_a_server_is_served_also_if_systemd_cannot_be_notified(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    async with served(Server("shop")) as url:
        assert url.startswith("http://")
