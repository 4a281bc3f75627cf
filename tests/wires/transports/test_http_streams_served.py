"""Legacy streams over real sockets: a client that polls, one whose connection is cut, one that stops reading."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import trio
from asgi_peer import JSON_HEADERS, LEGACY, initialize, legacy_call
from hypercorn_peer import Client
from serving import served

from trio_mcp import Context, Server

LIMIT = 30.0
AT_ONCE = 8.0
"""Seconds: less than the time after which a silent stream gets a comment."""


class Stage:
    """A server whose tools hang up, count when told to, and flood."""

    def __init__(self) -> None:
        self.server = Server("stage")
        self.go_on = trio.Event()
        for tool in (self.poll, self.count, self.flood):
            self.server.tool(tool)

    async def poll(self, ctx: Context) -> str:
        await ctx.end_stream(0.25)
        await self.go_on.wait()
        return "done"

    async def count(self, ctx: Context) -> str:
        await ctx.progress(1)
        await self.go_on.wait()
        return "done"

    async def flood(self, ctx: Context) -> str:
        for number in range(1, 201):
            await ctx.progress(number, message="x" * 30_000)
        return "done"


@dataclass
class LegacyClient:
    """One session; each request has a connection of its own."""

    port: int
    headers: dict[str, str]
    version: str = LEGACY

    @asynccontextmanager
    async def call(self, tool: str) -> AsyncIterator[Client]:
        async with self._send("POST", self.headers, legacy_call(tool, _meta={"progressToken": "t"})) as answer:
            yield answer

    @asynccontextmanager
    async def get(self, last: str | None = None) -> AsyncIterator[Client]:
        headers = self.headers if last is None else {**self.headers, "last-event-id": last}
        async with self._send("GET", headers) as answer:
            yield answer

    async def open(self) -> None:
        async with self._send("POST", self.headers, initialize({}, self.version)) as answer:
            head = (await answer.until(b"\r\n\r\n")).decode().split("\r\n")
        (session_id,) = (line.partition(": ")[2] for line in head if line.lower().startswith("mcp-session-id"))
        self.headers |= {"mcp-session-id": session_id, "mcp-protocol-version": self.version}
        async with self._send(
            "POST", self.headers, {"jsonrpc": "2.0", "method": "notifications/initialized"}
        ) as answer:
            assert (await answer.head())[0] == 202

    @asynccontextmanager
    async def _send(self, method: str, headers: dict[str, str], body: object = None) -> AsyncIterator[Client]:
        raw = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} /mcp HTTP/1.1", "connection: close", f"content-length: {len(raw)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            client = Client(stream)
            await client.send("\r\n".join([*lines, "", ""]).encode() + raw)
            yield client


@asynccontextmanager
async def session(server: Server, version: str = LEGACY) -> AsyncIterator[LegacyClient]:
    with trio.fail_after(LIMIT):
        async with served(server) as url:
            client = LegacyClient(int(url.rpartition(":")[2].partition("/")[0]), dict(JSON_HEADERS), version)
            await client.open()
            yield client


async def heard(answer: Client) -> list[object]:
    """What the rest of a stream says. Every write of ours is a chunk of its own, so the lines are whole."""
    messages = [json.loads(line[6:]) for line in (await answer.rest()).split(b"\n") if line.startswith(b"data: {")]
    return [
        message["params"]["progress"] if "method" in message else message["result"]["content"][0]["text"]
        for message in messages
    ]


async def test_a_client_is_let_go_and_comes_back_for_its_answer() -> None:
    stage = Stage()
    async with session(stage.server) as client:
        async with client.call("poll") as answer:
            await answer.until(b"id: 1-0\ndata: \n\n")
            assert b"retry: 250\n\n\r\n0\r\n\r\n" in await answer.rest()
        stage.go_on.set()
        async with client.get("1-0") as answer:
            assert await heard(answer) == ["done"]


async def test_a_reader_that_stopped_reading_is_replaced_by_the_one_that_resumes() -> None:
    stage = Stage()
    async with session(stage.server) as client, client.call("flood") as stuck:
        await stuck.until(b"id: 1-0\n")
        async with client.get("1-0") as answer:
            assert await heard(answer) == [*range(1, 201), "done"]


async def test_the_standalone_stream_opens_at_once() -> None:
    stage = Stage()
    async with session(stage.server) as client, client.get() as answer:
        status, headers = await answer.head()
        assert (status, headers["content-type"], headers["x-accel-buffering"]) == (200, "text/event-stream", "no")
        await answer.until(b"id: 1-0\ndata: \n\n")


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
async def test_a_stream_that_has_nothing_to_say_yet_is_answered_at_once(version: str) -> None:
    stage = Stage()
    async with session(stage.server, version) as client:
        with trio.fail_after(AT_ONCE):
            async with client.get() as answer:
                assert (await answer.head())[0] == 200
        async with client.call("count") as answer:
            await answer.until(b'"progress":1')
        with trio.fail_after(AT_ONCE):
            async with client.get("2-1") as answer:
                assert (await answer.head())[0] == 200
