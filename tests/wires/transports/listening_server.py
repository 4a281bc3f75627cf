"""An HTTP server that writes down every request it gets, and answers each as the test says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import hypercorn_peer
import trio
from hypercorn_peer import Client

LIMIT = 10.0
SERVER = {"name": "listening", "version": "1"}
JSON = {"content-type": "application/json"}
STREAM = {"content-type": "text/event-stream"}
CACHING = {"ttlMs": 0, "cacheScope": "private"}

Json = dict[str, Any]


@dataclass(frozen=True)
class Heard:
    """One request."""

    method: str
    headers: Mapping[str, str]
    body: Json

    @property
    def asks(self) -> str:
        """The JSON-RPC method; empty for anything else."""
        return str(self.body.get("method", "")) if isinstance(self.body, dict) else ""


@dataclass(frozen=True)
class Said:
    """One response. An unfinished one never ends; one that is cut ends without its last chunk."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    ending: str = "finished"


Answer = Callable[[Heard], Said | None]


class ListeningServer:
    """Answers with what `answer` says, else as any server would; it names a session in every result.

    Attributes:
        heard: every request, in order.
        connections: how many there were.
        gone: set when a connection with an unfinished response has ended.
    """

    def __init__(self, answer: Answer = lambda _heard: None, *, session_id: str | None = "session-1") -> None:
        self.heard: list[Heard] = []
        self.connections = 0
        self.gone = trio.Event()
        self._answer = answer
        self._given = {"mcp-session-id": session_id} if session_id else {}
        self._news = trio.Condition()

    def asked(self, method: str) -> list[Heard]:
        return [heard for heard in self.heard if heard.asks == method]

    async def answer_to(self, request_id: str) -> Heard:
        """Wait for the client's answer to a question."""
        async with self._news:
            while True:
                for heard in self.heard:
                    if heard.body.get("id") == request_id and not heard.asks:
                        return heard
                await self._news.wait()

    async def __call__(self, client: Client) -> None:
        self.connections += 1
        ending = ""
        with suppress(EOFError, trio.BrokenResourceError):
            while ending != "cut":
                heard = await read(client)
                await self._note(heard)
                said = self._answer(heard) or self._usual(heard)
                ending = said.ending
                await client.send(written(said))
        if ending == "unfinished":
            self.gone.set()

    async def _note(self, heard: Heard) -> None:
        async with self._news:
            self.heard.append(heard)
            self._news.notify_all()

    def _usual(self, heard: Heard) -> Said:
        match heard.asks:
            case "server/discover":
                result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **CACHING}
                return answered(heard, {**result, "resultType": "complete"}, self._given)
            case "initialize":
                version = heard.body["params"]["protocolVersion"]
                result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": SERVER}
                return answered(heard, result, self._given)
            case "tools/list":
                return answered(heard, {"tools": [], "resultType": "complete", **CACHING}, self._given)
            case "tools/call":
                result = {"content": [{"type": "text", "text": "fine"}], "resultType": "complete"}
                return answered(heard, result, self._given)
        return Said(405 if heard.method in ("GET", "DELETE") else 202)


def answered(heard: Heard, result: Json, headers: Mapping[str, str]) -> Said:
    body = json.dumps({"jsonrpc": "2.0", "id": heard.body["id"], "result": result}).encode()
    return Said(200, body, {**JSON, **headers})


def refused(heard: Heard, status: int, code: int) -> Said:
    error = {"code": code, "message": f"refused with {code}"}
    body = json.dumps({"jsonrpc": "2.0", "id": heard.body["id"], "error": error}).encode()
    return Said(status, body, JSON)


def streamed(*messages: Json, ending: str = "finished") -> Said:
    return events(*[{"jsonrpc": "2.0", **message} for message in messages], ending=ending)


def events(*values: object, ending: str = "finished") -> Said:
    """A stream whose events hold these values."""
    body = b"".join(b"data: %b\n\n" % json.dumps(value).encode() for value in values)
    return Said(200, body, STREAM, ending)


async def read(client: Client) -> Heard:
    """The next request. Raises EOFError at the end of the connection."""
    line, *lines = (await client.until(b"\r\n\r\n")).decode().rstrip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
    body = await client.exactly(int(headers.get("content-length", 0)))
    return Heard(line.split()[0], headers, json.loads(body) if body else {})


def written(said: Said) -> bytes:
    head = f"HTTP/1.1 {said.status} Said\r\ntransfer-encoding: chunked\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in said.headers.items())
    chunk = b"%x\r\n%b\r\n" % (len(said.body), said.body) if said.body else b""
    return head.encode() + b"\r\n" + chunk + (b"0\r\n\r\n" if said.ending == "finished" else b"")


@asynccontextmanager
async def listening(server: ListeningServer) -> AsyncIterator[str]:
    """The URL at which the server listens, for the length of the block."""
    with trio.fail_after(LIMIT):
        async with hypercorn_peer.listening(server) as address:
            yield f"http://{address}/mcp"
