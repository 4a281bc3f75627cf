"""What a file says of serving counts wherever it is served: by itself, by the command, and by `hypercorn -k trio`."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from serving import IMPORTS, MODULE, START, Child, child, served

from trio_mcp import Client, Disconnected, HttpOptions, Server

HERE = Path(__file__).parent
FILE = HERE / "signed_app.py"
TOKEN = {"authorization": "Bearer a"}

BY_ITSELF = [FILE, "http", "0"]
BY_COMMAND = [MODULE, "trio_mcp", "serve", str(FILE), "--port", "0"]
BY_HYPERCORN = [MODULE, "hypercorn", "-k", "trio", "-b", "127.0.0.1:0", "signed_app:app"]


@asynccontextmanager
async def process(arguments: Sequence[Any], **variables: str) -> AsyncIterator[tuple[str, Child]]:
    """A process that serves over HTTP, and its URL."""
    async with child(*arguments, strict=False, cwd=HERE, variables=variables, start_new_session=True) as started:
        yield await started.announced(b"Running on " if arguments is BY_HYPERCORN else b" serves MCP at "), started
        started.process.send_signal(signal.SIGTERM)
        assert await started.end() == 0


@pytest.mark.parametrize(
    "arguments", [BY_ITSELF, BY_COMMAND, BY_HYPERCORN], ids=["by itself", "by the command", "by hypercorn"]
)
async def test_a_file_that_asks_for_authentication_is_never_served_open(arguments: Sequence[Any]) -> None:
    async with process(arguments) as (url, _), httpx2.AsyncClient() as http:
        base = url.removesuffix("/shop")
        assert (await http.post(f"{base}/shop", json={})).status_code == 401
        assert (await http.post(f"{base}/mcp", json={}, headers=TOKEN)).status_code == 404
        assert (await http.post(f"{base}/hook")).status_code == 401
        answer = await http.post(f"{base}/hook", content=b"abc", headers=TOKEN)
        assert answer.json() == {"principal": "ann", "bytes": 3}
        for path, word in (("/health", "ok"), ("/ready", "ready")):
            assert (await http.get(base + path, headers={"host": "10.1.2.3"})).text == word
        async with Client.connect(f"{base}/shop", headers=TOKEN) as client:
            assert (await client.call_tool("greet")).text == "hello"


async def test_a_file_is_served_over_the_tls_that_it_asks_for(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.create_default_context(cafile=certificate)
    async with process(BY_ITSELF, TEST_CERTIFICATE=str(certificate)) as (url, _):
        assert url.startswith("https://")
        own = url.replace("127.0.0.1", "localhost")
        ready = own.replace("/shop", "/ready")
        async with httpx2.AsyncClient(verify=context) as http:
            assert (await http.get(ready)).text == "ready"
        for wire in ("https", "wss"):
            target = own.replace("https", wire)
            with pytest.raises(Disconnected, match=r"CERTIFICATE_VERIFY_FAILED.*SSL_CERT_FILE"):
                await Client.connect(target, headers=TOKEN).open()
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            async with Client.connect(target, headers=TOKEN) as client:
                assert (await client.call_tool("greet")).text == "hello"
            monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(Disconnected, match="wss:// instead of ws://"):
            await Client.connect(own.replace("https", "ws"), headers=TOKEN).open()


BY_COMMAND_WITH_LOG = [*BY_COMMAND, "--access-log", "--log-format", "json"]


@pytest.mark.parametrize("arguments", [BY_ITSELF, BY_COMMAND_WITH_LOG], ids=["by itself", "by the command"])
async def test_the_log_of_a_process_is_lines_of_json_with_requests_and_calls(arguments: Sequence[Any]) -> None:
    async with process(arguments) as (url, started):
        async with Client.connect(url, headers=TOKEN) as client:
            await client.call_tool("greet")
        started.process.send_signal(signal.SIGTERM)
        written = await started.errors()
    lines = [line for line in written.splitlines() if line.startswith(b"{")]
    records = [json.loads(line) for line in lines]
    (call,) = [record for record in records if record["logger"] == "trio_mcp.calls"]
    assert (call["call"]["name"], call["call"]["outcome"], call["principal"]) == ("greet", "ok", "ann")
    requests = [record for record in records if record["logger"] == "trio_mcp.access"]
    assert call["request"] in [record["request"] for record in requests]
    assert {record["http"]["client"] for record in requests} == {"127.0.0.1"}
    assert b"Bearer" not in b"".join(lines)


@pytest.mark.parametrize(
    ("variables", "warnings"), [({}, 1), ({"TRIO_MCP_ONE_CLIENT": "1"}, 0)], ids=["host", "command"]
)
async def test_stdio_logs_that_it_ignores_the_options_except_to_a_command_that_starts_the_file_for_itself(
    variables: Mapping[str, str], warnings: int
) -> None:
    async with child(FILE, "stdio", variables=variables) as server:
        await server.stdin.aclose()
        records = [json.loads(line) for line in (await server.errors()).splitlines() if b"HTTP options" in line]
        assert await server.end() == 0
    assert [(each["logger"], each["level"]) for each in records] == [("trio_mcp.stdio", "warning")] * warnings


def error_of(program: str) -> str:
    """What a program says in one line before it ends with status 1."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env={**os.environ, **IMPORTS}, capture_output=True, text=True, timeout=START)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    return line


SERVER = "from trio_mcp import Server\nServer('shop').run('http', port=%d)\n"
PROXY = "from trio_mcp import proxy\nproxy(['true']).run('http', port=%d)\n"


@pytest.mark.parametrize("program", [SERVER, PROXY], ids=["server", "proxy"])
def test_a_port_in_use_is_one_line_and_an_exit_status(program: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "the port is taken" in error_of(program % taken.getsockname()[1])


def test_a_certificate_that_cannot_be_used_is_one_line_and_an_exit_status() -> None:
    program = "from trio_mcp import HttpOptions, Server\nfrom trio_mcp.http import Tls\n"
    options = "HttpOptions(tls=Tls('/nothing.pem'))"
    assert error_of(f"{program}Server('shop', http={options}).run('http', port=0)\n").startswith("shop: TLS: ")


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
    async with process(command, TRIO_MCP_KEYFILE_PASSWORD="secret") as (url, _):
        assert url.startswith("https://")
        context = ssl.create_default_context(cafile=certificate)
        async with httpx2.AsyncClient(verify=context) as http:
            assert (await http.post(url.replace("127.0.0.1", "localhost"), json={})).status_code == 401


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
