"""What a file says of serving counts wherever it is served: by itself, by the command, and by `hypercorn -k trio`."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import trio
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from serving import IMPORTS, SOON, START, child, served

from trio_mcp import Client, Disconnected, HttpOptions, Server
from trio_mcp.base import logs
from trio_mcp.cli import arguments

HERE = Path(__file__).parent
FILE = HERE / "signed_app.py"
TOKEN = {"authorization": "Bearer a"}

BY_ITSELF = [str(FILE), "http", "0"]
BY_COMMAND = ["-m", "trio_mcp", "serve", str(FILE), "--port", "0"]
BY_HYPERCORN = ["-m", "hypercorn", "-k", "trio", "-b", "127.0.0.1:0", "signed_app:app"]


@asynccontextmanager
async def process(arguments: Sequence[str], says: bytes, **environment: str) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A process that serves over HTTP: the URL after `says` on its stderr, and the list of what it writes there."""
    started = await trio.lowlevel.open_process(
        [sys.executable, *arguments],
        cwd=HERE,
        env={**os.environ, **IMPORTS, **environment},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    stderr = started.stderr
    assert stderr is not None
    written: list[bytes] = []

    async def read(task_status: trio.TaskStatus[str]) -> None:
        url = ""
        async for data in stderr:
            written.append(bytes(data))
            rest = b"".join(written).partition(says)[2]
            if not url and rest.split() and rest[-1:].isspace():
                # In a record of a JSON log, a quote or a comma follows.
                url = re.split(r'[\s",]', rest.decode(), maxsplit=1)[0]
                task_status.started(url)

    try:
        async with trio.open_nursery() as nursery:
            with trio.fail_after(START):
                url: str = await nursery.start(read)
            yield url, written
            started.send_signal(signal.SIGTERM)
            with trio.fail_after(SOON):
                # The reader ends when the process does.
                assert await started.wait() == 0
    finally:
        started.kill()
        with trio.CancelScope(shield=True):
            await started.wait()
            await stderr.aclose()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(BY_ITSELF, b" serves MCP at "), (BY_COMMAND, b" serves MCP at "), (BY_HYPERCORN, b"Running on ")],
    ids=["by itself", "by the command", "by hypercorn"],
)
async def test_a_file_that_asks_for_authentication_is_never_served_open(arguments: Sequence[str], says: bytes) -> None:
    async with process(arguments, says) as (url, _), httpx2.AsyncClient() as http:
        base = url.removesuffix("/shop")
        assert (await http.post(f"{base}/shop", json={})).status_code == 401
        assert (await http.post(f"{base}/mcp", json={}, headers=TOKEN)).status_code == 404
        assert (await http.post(f"{base}/hook")).status_code == 401
        answer = await http.post(f"{base}/hook", content=b"abc", headers=TOKEN)
        assert answer.json() == {"principal": "ann", "bytes": 3}
        for path, word in (("/health", "ok"), ("/ready", "ready")):
            assert (await http.get(base + path, headers={"host": "10.1.2.3"})).text == word
        with trio.fail_after(START):
            async with Client.connect(f"{base}/shop", headers=TOKEN) as client:
                assert (await client.call_tool("greet")).text == "hello"


async def test_a_file_is_served_over_the_tls_that_it_asks_for(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.create_default_context(cafile=certificate)
    async with process(BY_ITSELF, b" serves MCP at ", TEST_CERTIFICATE=str(certificate)) as (url, _):
        assert url.startswith("https://")
        own = url.replace("127.0.0.1", "localhost")
        ready = own.replace("/shop", "/ready")
        async with httpx2.AsyncClient(verify=context) as http:
            assert (await http.get(ready)).text == "ready"
        for wire in ("https", "wss"):
            target = own.replace("https", wire)
            with trio.fail_after(START), pytest.raises(Disconnected, match=r"CERTIFICATE_VERIFY_FAILED.*SSL_CERT_FILE"):
                await Client.connect(target, headers=TOKEN).open()
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            with trio.fail_after(START):
                async with Client.connect(target, headers=TOKEN) as client:
                    assert (await client.call_tool("greet")).text == "hello"
            monkeypatch.delenv("SSL_CERT_FILE")
        with trio.fail_after(START), pytest.raises(Disconnected, match="wss:// instead of ws://"):
            await Client.connect(own.replace("https", "ws"), headers=TOKEN).open()


BY_COMMAND_WITH_LOG = [*BY_COMMAND, "--access-log", "--log-format", "json"]


@pytest.mark.parametrize("arguments", [BY_ITSELF, BY_COMMAND_WITH_LOG], ids=["by itself", "by the command"])
async def test_the_log_of_a_process_is_lines_of_json_with_requests_and_calls(arguments: Sequence[str]) -> None:
    async with process(arguments, b" serves MCP at ") as (url, written):
        with trio.fail_after(START):
            async with Client.connect(url, headers=TOKEN) as client:
                await client.call_tool("greet")
    lines = [line for line in b"".join(written).splitlines() if line.startswith(b"{")]
    records = [json.loads(line) for line in lines]
    (call,) = [record for record in records if record["logger"] == "trio_mcp.calls"]
    assert (call["call"]["name"], call["call"]["outcome"], call["principal"]) == ("greet", "ok", "ann")
    requests = [record for record in records if record["logger"] == "trio_mcp.access"]
    assert call["request"] in [record["request"] for record in requests]
    assert {record["http"]["client"] for record in requests} == {"127.0.0.1"}
    assert b"Bearer" not in b"".join(lines)


async def test_a_command_that_starts_the_file_for_itself_does_not_say_that_stdio_ignores_the_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRIO_MCP_ONE_CLIENT", "1")
    async with child(FILE, "stdio") as server:
        await server.stdin.aclose()
        assert b"HTTP options" not in await server.errors()
        assert await server.end() == 0


async def test_stdio_ignores_the_options_and_logs_that_it_does() -> None:
    async with child(FILE, "stdio") as server:
        await server.stdin.aclose()
        errors = await server.errors()
        assert await server.end() == 0
    (record,) = [json.loads(line) for line in errors.splitlines() if b"trio_mcp.stdio" in line]
    assert record["level"] == "warning"
    assert "HTTP options" in record["message"]


RUN = (
    "import sys\nfrom trio_mcp import HttpOptions, Server\nfrom trio_mcp.http import Tls\n"
    "Server('shop', http=HttpOptions(%s)).run('http', port=%d)\n"
)


def run(values: str, port: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN % (values, port)]
    return subprocess.run(command, env={**os.environ, **IMPORTS}, capture_output=True, text=True, timeout=START)


PROXY = "from trio_mcp import proxy\nproxy(['true']).run('http', port=%d)\n"


@pytest.mark.parametrize("program", [RUN.replace("%s", ""), PROXY], ids=["server", "proxy"])
def test_a_port_in_use_is_one_line_and_an_exit_status(program: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-c", program % taken.getsockname()[1]]
        done = subprocess.run(command, env={**os.environ, **IMPORTS}, capture_output=True, text=True, timeout=START)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "the port is taken" in done.stderr


@pytest.mark.parametrize("missing", ["certificate", "key", "unreadable", "no certificate"])
def test_a_certificate_or_key_that_cannot_be_used_is_one_line_and_an_exit_status(
    certificate: Path, tmp_path: Path, missing: str
) -> None:
    nothing, empty = tmp_path / "nothing.pem", tmp_path / "empty.pem"
    empty.touch()
    files = {
        "certificate": (nothing, certificate),
        "key": (certificate, nothing),
        "unreadable": (tmp_path, certificate),
        "no certificate": (empty, certificate),
    }[missing]
    done = run(f"tls=Tls({str(files[0])!r}, {str(files[1])!r})", 0)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("shop: TLS: ")


def key_file(certificate: Path, path: Path, secret: bytes | None) -> Path:
    """Write the key of a certificate into a file, encrypted if there is a secret."""
    pem = certificate.read_bytes()
    key = load_pem_private_key(pem[pem.index(b"-----BEGIN PRIVATE") :], None)
    cipher = BestAvailableEncryption(secret) if secret else NoEncryption()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, cipher))
    return path


@pytest.mark.parametrize("encrypted", [False, True])
async def test_the_command_serves_with_a_certificate_and_an_encrypted_key(
    certificate: Path, tmp_path: Path, encrypted: bool
) -> None:
    keyfile = key_file(certificate, tmp_path / "key.pem", b"secret" if encrypted else None)
    command = [*BY_COMMAND, "--certfile", str(certificate), "--keyfile", str(keyfile)]
    async with process(command, b" serves MCP at ", TRIO_MCP_KEYFILE_PASSWORD="secret") as (url, _):
        assert url.startswith("https://")
        context = ssl.create_default_context(cafile=certificate)
        async with httpx2.AsyncClient(verify=context) as http:
            assert (await http.post(url.replace("127.0.0.1", "localhost"), json={})).status_code == 401


def test_the_command_line_has_the_values_that_logging_has() -> None:
    assert (arguments.LOG_LEVELS, arguments.LOG_FORMATS) == (logs.LOG_LEVELS, logs.LOG_FORMATS)


async def test_a_websocket_is_one_record_of_the_access_log(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("shop")
    with caplog.at_level(logging.INFO, "trio_mcp.access"):
        async with served(server, "websocket", access_log=True) as url:
            async with Client.connect(url):
                pass
        records = [record.fields["http"] for record in caplog.records if record.name == "trio_mcp.access"]  # type: ignore[attr-defined]
    assert [(record["method"], record["status"], record["path"]) for record in records] == [("WEBSOCKET", 101, "/mcp")]


async def test_proxies_on_a_unix_address_or_network_are_believed_over_a_real_socket() -> None:
    server = Server("shop", http=HttpOptions(allowed_hosts=["mcp.example.com"]))

    @server.tool
    async def greet() -> str:
        return "hello"

    forwarded = {"x-forwarded-host": "mcp.example.com"}
    async with served(server, trusted_proxies=["127.0.0.0/8"]) as url:
        async with Client.connect(url, headers=forwarded) as client:
            assert (await client.call_tool("greet")).text == "hello"
    async with served(server) as url, httpx2.AsyncClient() as http:
        assert (await http.post(url, json={}, headers=forwarded)).status_code == 421
