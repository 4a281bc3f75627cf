"""Real servers for tests: over HTTP in this process, and as processes that can be killed and started again."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import trio
from talk import EVERYTHING, modern_meta
from wire_terms import headers_of

from trio_mcp import Server

ROOT = Path(__file__).parents[1]
IMPORTS = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "transports")])}
"""What a child process needs to import what this process imports."""

MODULE = Path("-m")
"""In the place of a script: what follows is the name of a module, and its arguments."""

START = 30.0
SOON = 10.0

Json = dict[str, Any]


def free_port() -> int:
    """Return a port that is free now: some processes need to be given one before they listen."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@asynccontextmanager
async def served(server: Server, transport: str = "http", **options: Any) -> AsyncIterator[str]:
    """The first URL at which a server of this process is served, with sockets and all, for the length of the block."""
    serve = partial(server.serve, transport, **{"port": 0, "announce": False, "signals": False, **options})
    async with trio.open_nursery() as nursery:
        with trio.fail_after(START):
            (url, *_) = await nursery.start(serve)
        yield url
        nursery.cancel_scope.cancel()


class Child:
    """A process whose pipes the test holds.

    Attributes:
        url: that it has announced.
    """

    url = ""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr

    async def send(self, line: bytes) -> None:
        await self.stdin.send_all(line)

    async def line(self) -> bytes:
        """Return the next line on stdout."""
        return await line_of(self.stdout)

    async def error_line(self) -> bytes:
        """Return the next line on stderr."""
        return await line_of(self.stderr)

    async def announced(self, after: bytes = b"") -> str:
        """Return the URL in the next line on stderr that has one, right after these words."""
        while not (found := re.search(after + rb'(\w+://[^\s",]+)', line := await self.error_line())):
            assert line, "the process ended before it served anything"
        self.url = found[1].decode()
        return self.url

    async def errors(self) -> bytes:
        """Return what it still writes on stderr until it ends."""
        return await all_of(self.stderr)

    async def end(self) -> int:
        """Wait for the end of the process and return its status."""
        with trio.fail_after(SOON):
            return await self.process.wait()


async def line_of(stream: trio.abc.ReceiveStream | None) -> bytes:
    """Return the next line of a stream, or what there is of it at the end."""
    assert stream is not None
    line = b""
    while not line.endswith(b"\n") and (byte := await stream.receive_some(1)):
        line += byte
    return line.rstrip(b"\n")


async def all_of(stream: trio.abc.ReceiveStream | None) -> bytes:
    assert stream is not None
    return b"".join([bytes(chunk) async for chunk in stream])


@asynccontextmanager
async def child(
    script: Path,
    *arguments: str,
    limit: float = START,
    strict: bool = True,
    variables: Mapping[str, str] | None = None,
    **popen: Any,
) -> AsyncIterator[Child]:
    """A script as a separate process, which is killed at the end of the block if it still runs.

    Args:
        script: or `MODULE`, if a module and its arguments follow.
        strict: in development mode; that takes more memory.
        variables: of the environment, besides those of this process.
    """
    flags = ["-X", "dev", "-W", "error"] if strict else []
    command = [sys.executable, *flags, str(script), *arguments]
    environment = {**os.environ, **IMPORTS, **(variables or {})}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = await trio.lowlevel.open_process(command, **{"env": environment, **pipes, **popen})
    try:
        with trio.fail_after(limit):
            yield Child(process)
    finally:
        if popen.get("start_new_session"):
            # With its workers, which a killed host leaves behind.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
                await stream.aclose()


class HttpProcess:
    """A script that serves HTTP when it is called with `http PORT`. Starting it again takes the port it had.

    Args:
        port: by default a free one.

    Attributes:
        environment: with which it is started.
    """

    def __init__(self, script: Path, *, port: int = 0, **environment: str) -> None:
        self._script = script
        self.environment = {**os.environ, **IMPORTS, **environment}
        self._process: trio.Process | None = None
        self._port = port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/mcp"

    @property
    def port(self) -> int:
        return self._port

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the process for the length of the block."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    async def start(self) -> None:
        """Start it, and return when it listens."""
        command = [sys.executable, str(self._script), "http", str(self._port)]
        self._process = await trio.lowlevel.open_process(command, stderr=subprocess.PIPE, env=self.environment)
        with trio.fail_after(START):
            said = await self._announcement()
        self._port = int(said.rpartition(":")[2].partition("/")[0])

    async def kill(self) -> None:
        """End it with SIGKILL; what it had in memory is gone."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            assert process.stderr is not None
            await process.stderr.aclose()

    async def ended(self) -> None:
        """Return when the process has ended by itself."""
        assert self._process is not None
        await self._process.wait()

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    async def _announcement(self) -> str:
        assert self._process is not None
        assert self._process.stderr is not None
        said = b""
        async for data in self._process.stderr:
            said += data
            if b" serves MCP at " in said and said.endswith(b"\n"):
                # A second line names the public URL, where that is another one.
                return next(line for line in said.decode().splitlines() if " serves MCP at " in line)
        raise AssertionError(f"the server ended before it served anything: {said.decode()}")


@asynccontextmanager
async def http_process(script: Path, **environment: str) -> AsyncIterator[HttpProcess]:
    process = HttpProcess(script, **environment)
    try:
        await process.start()
        yield process
    finally:
        await process.kill()


class HttpClient:
    """Sends modern requests as they are written, each as a separate POST."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self._ids = itertools.count(1)

    async def call(
        self,
        url: str,
        tool: str,
        arguments: Json | None = None,
        *,
        state: str | None = None,
        answers: Json | None = None,
        capabilities: Json = EVERYTHING,
        meta: Json | None = None,
    ) -> Json:
        """One leg of a call; the whole message that answers it."""
        params: Json = {"name": tool, "arguments": arguments or {}}
        params |= {} if state is None else {"requestState": state}
        params |= {} if answers is None else {"inputResponses": answers}
        return await self.ask(url, "tools/call", capabilities, meta, **params)

    async def ask(self, url: str, method: str, capabilities: Json, meta: Json | None = None, **params: Any) -> Json:
        """One request; the whole message that answers it."""
        request_id = next(self._ids)
        params = {**params, "_meta": modern_meta(capabilities, meta)}
        body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        headers = {"accept": "application/json, text/event-stream", **headers_of(method, params)}
        reply = await self._http.post(url, json=body, headers=headers)
        assert reply.headers["content-type"] == "application/json", reply.text
        message: Json = reply.json()
        assert message["id"] == request_id
        return message

    async def round(self, url: str, tool: str, arguments: Json | None = None, **more: Any) -> Json:
        """The interim result that ends a leg."""
        result: Json = (await self.call(url, tool, arguments, **more))["result"]
        assert result["resultType"] == "input_required", result
        return result

    async def result(self, url: str, tool: str, arguments: Json | None = None, **more: Any) -> Json:
        """The complete result that ends a call."""
        result: Json = (await self.call(url, tool, arguments, **more))["result"]
        assert result["resultType"] == "complete", result
        return result


@asynccontextmanager
async def http_client() -> AsyncIterator[HttpClient]:
    with trio.fail_after(START):
        async with httpx2.AsyncClient(timeout=SOON) as http:
            yield HttpClient(http)


def retry(asked: Mapping[str, Any], *values: Any) -> Json:
    """What carries a call on: the state of a round, and an answer to each of its questions in order."""
    answers = {
        key: {"action": "accept", "content": value if isinstance(value, dict) else {"value": value}}
        for key, value in zip(asked["inputRequests"], values, strict=True)
    }
    return {"state": asked["requestState"], "answers": answers}
