"""How far a request travels: own calls, files, and changes of file of each leg: `hops.py [--trace] [--json]`.

A leg of the server begins with `jsonrpc.parse` of its request, and ends when its answer has been written. `control_flow.py` says
what counts as a call and as a change of file. There are three conversations with the server, and one of the client's:

- a modern `tools/call` with one question, so with two legs, over the ASGI application without a socket;
- a legacy `tools/call` that reports progress and is cancelled, over two pipes. Its first leg ends with the report, its second,
  which begins with the cancellation, when nothing runs any more;
- a modern `tools/call` over WebSocket, on a loopback port;
- the first of these from the client's side, with its server in another thread, which is not recorded: from `Client.call_tool`
  to the answer, from there to the next answer, and from there to the result.

Each request is made twice and recorded the second time, so that what is built on first use is not counted. The figures may still
vary by one or two: how many bytes a read brings, and which of two tasks goes on first, is not ours to say. `--trace` prints
how each function got control, and which files control passed between.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
import trio.testing
from control_flow import Leg, Recorder
from trio_websocket import open_websocket_url

from trio_mcp import Client, Context, Server, accept
from trio_mcp.protocol import jsonrpc
from trio_mcp.session import find_transport
from trio_mcp.types import TextContent
from trio_mcp_transports.http import asgi_app
from trio_mcp_transports.stdio.channel import LineChannel, Pipe

Json = dict[str, Any]
Conversation = Callable[[Recorder | None], Awaitable[None]]

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
HEADERS = {
    "host": "localhost",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": MODERN,
    "mcp-method": "tools/call",
    "mcp-name": "book",
}
PARSE = jsonrpc.parse.__code__
CALL_TOOL = Client.call_tool.__code__
TRANSPORTS = {name: find_transport(name) for name in ("http", "websocket")}
TWO = accept(value=2)
BOUND = 20
SILENCE = 0.1
"""Seconds without anything to do after which nothing is taken to follow."""


class Offer:
    """The server that is called."""

    def __init__(self) -> None:
        self.server = Server("hops", version="1.0")
        self.ended = trio.Event()
        for tool in (self.book, self.hold, self.echo):
            self.server.tool(tool)

    async def book(self, to: str, ctx: Context) -> str:
        """Book seats, as many as the user says."""
        answer = await ctx.elicit(f"How many to {to}?", int)
        assert answer.action == "accept"
        return f"{answer.content} to {to}"

    async def hold(self, ctx: Context) -> None:
        """Report that it has begun, and wait until it is cancelled."""
        try:
            await ctx.progress(1)
            await trio.sleep_forever()
        finally:
            self.ended.set()

    async def echo(self, text: str) -> str:
        """Echo the text."""
        return text


def call(tool: str, arguments: Json, meta: Json, request_id: int = 1, **params: object) -> Json:
    return request("tools/call", {"name": tool, "arguments": arguments, "_meta": meta, **params}, request_id)


def request(method: str, params: Json, request_id: int = 1) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def notification(method: str, params: Json | None = None) -> Json:
    return {"jsonrpc": "2.0", "method": method, "params": params or {}}


def to_record(recorder: Recorder | None, *names: str) -> Callable[[], None]:
    """Plan legs that begin with `parse`; returns what ends the last of them. Without a recorder, nothing is done."""
    if recorder is None:
        return lambda: None
    recorder.plan((name, PARSE) for name in names)
    return recorder.end


# modern, over HTTP


@asynccontextmanager
async def running_app(server: Server) -> AsyncIterator[Any]:
    """The ASGI application, between its startup and its shutdown."""
    app: Any = asgi_app(server)
    to_app, for_app = trio.open_memory_channel[Json](1)
    from_app, from_app_received = trio.open_memory_channel[Json](1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(app, {"type": "lifespan"}, for_app.receive, from_app.send)
        await to_app.send({"type": "lifespan.startup"})
        assert (await from_app_received.receive())["type"] == "lifespan.startup.complete"
        yield app
        await to_app.send({"type": "lifespan.shutdown"})
        assert (await from_app_received.receive())["type"] == "lifespan.shutdown.complete"


async def post(app: Any, message: Json, end: Callable[[], None]) -> Json:
    """Send a request; its result."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "headers": [(name.encode(), value.encode()) for name, value in HEADERS.items()],
    }
    unread = [json.dumps(message).encode()]
    body = bytearray()

    async def receive() -> Json:
        await trio.lowlevel.checkpoint()
        if not unread:
            await trio.sleep_forever()
        return {"type": "http.request", "body": unread.pop(), "more_body": False}

    async def send(event: Json) -> None:
        await trio.lowlevel.checkpoint()
        body.extend(event.get("body", b""))
        if event["type"] == "http.response.body" and not event.get("more_body", False):
            end()

    await app(scope, receive, send)
    result: Json = json.loads(body)["result"]
    return result


async def modern_over_http(recorder: Recorder | None) -> None:
    async with running_app(Offer().server) as app:
        for each in (None, recorder):
            end = to_record(each, "http, modern: call to question")
            asked = await post(app, call("book", {"to": "Lisbon"}, META), end)
            (key,) = asked["inputRequests"]
            answers = {key: {"action": "accept", "content": {"value": 2}}}
            end = to_record(each, "http, modern: answer to result")
            more = {"inputResponses": answers, "requestState": asked["requestState"]}
            result = await post(app, call("book", {"to": "Lisbon"}, META, 2, **more), end)
            assert result["content"][0]["text"] == "2 to Lisbon", result


# legacy, over pipes


class Lines:
    """The client's end of two pipes."""

    def __init__(self, receiving: int, sending: int) -> None:
        self._receiving = trio.lowlevel.FdStream(receiving)
        self._sending = trio.lowlevel.FdStream(sending)
        self._read = b""

    async def send(self, message: Json) -> None:
        await self._sending.send_all(json.dumps(message).encode() + b"\n")

    async def receive(self) -> Json:
        while b"\n" not in self._read:
            self._read += await self._receiving.receive_some()
        line, _, self._read = self._read.partition(b"\n")
        message: Json = json.loads(line)
        return message

    async def aclose(self) -> None:
        await self._sending.aclose()
        await self._receiving.aclose()


async def legacy_over_pipes(recorder: Recorder | None) -> None:
    offer = Offer()
    to_server, from_server = os.pipe(), os.pipe()
    channel = LineChannel(Pipe(to_server[0]), Pipe(from_server[1]))
    peer = Lines(from_server[0], to_server[1])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(offer.server.serve_channel, channel)
        client = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "hops", "version": "1"}}
        await peer.send(request("initialize", client))
        assert (await peer.receive())["result"]["protocolVersion"] == LEGACY
        await peer.send(notification("notifications/initialized"))
        for number, each in enumerate((None, recorder)):
            await hold_and_cancel(peer, offer, each, number)
        await peer.aclose()


async def hold_and_cancel(peer: Lines, offer: Offer, recorder: Recorder | None, number: int) -> None:
    offer.ended = trio.Event()
    await trio.sleep(SILENCE)
    end = to_record(recorder, "stdio, legacy: call to progress")
    await peer.send(call("hold", {}, {"progressToken": number}, number))
    assert (await peer.receive())["method"] == "notifications/progress"
    end()
    await trio.sleep(SILENCE)
    end = to_record(recorder, "stdio, legacy: cancel to silence")
    await peer.send(notification("notifications/cancelled", {"requestId": number}))
    await offer.ended.wait()
    await trio.sleep(SILENCE)
    end()


# modern, over WebSocket


@asynccontextmanager
async def served(server: Server, transport: str) -> AsyncIterator[str]:
    """The URL at which a server is served by this thread."""
    serve = partial(TRANSPORTS[transport].serve, server, port=0, announce=False, signals=False)
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(serve)
        yield url
        nursery.cancel_scope.cancel()


async def modern_over_websocket(recorder: Recorder | None) -> None:
    async with served(Offer().server, "websocket") as url, open_websocket_url(url, subprotocols=["mcp"]) as connection:
        for each in (None, recorder):
            await trio.sleep(SILENCE)
            end = to_record(each, "websocket, modern: call to result")
            await connection.send_message(json.dumps(call("echo", {"text": "hello"}, META)))
            answer = json.loads(await connection.get_message())
            end()
            assert answer["result"]["content"][0]["text"] == "hello", answer


# the client


@asynccontextmanager
async def served_elsewhere() -> AsyncIterator[str]:
    """The URL at which a server is served by another thread, which is not recorded."""
    started: list[tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]] = []
    ready = threading.Event()

    async def serve() -> None:
        async with served(Offer().server, "http") as url:
            with trio.CancelScope() as scope:
                started.append((url, trio.lowlevel.current_trio_token(), scope))
                ready.set()
                await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(serve,), daemon=True)
    thread.start()
    if not ready.wait(BOUND):
        raise RuntimeError("the server did not start")
    url, token, scope = started[0]
    try:
        yield url
    finally:
        token.run_sync_soon(scope.cancel)
        thread.join(BOUND)


async def modern_client(recorder: Recorder | None) -> None:
    async with served_elsewhere() as url, Client.connect(url, mode=MODERN, on_elicit=lambda _: TWO) as client:
        for each in (None, recorder):
            if each is not None:
                each.plan([("client: call to question", CALL_TOOL)])
                each.plan([("client: question to answer", PARSE), ("client: answer to result", PARSE)])
            result = await client.call_tool("book", {"to": "Lisbon"})
            if each is not None:
                each.end()
            assert result.content == [TextContent(text="2 to Lisbon")], result


# all of them


CONVERSATIONS: tuple[Conversation, ...] = (modern_over_http, legacy_over_pipes, modern_over_websocket, modern_client)


async def hold_all(recorder: Recorder) -> None:
    for conversation in CONVERSATIONS:
        trio._core._run._r.seed(0)  # noqa: SLF001  Trio shuffles the tasks of a batch, and their order decides some changes
        with trio.fail_after(BOUND):
            await conversation(recorder)


def figures(leg: Leg, *, trace: bool) -> Json:
    pairs = [[how, before, after, count] for (how, before, after), count in leg.pairs.most_common()]
    numbers = {"calls": leg.calls, "files": leg.files, "changes": leg.changes, "returns": leg.returns}
    steps = [[step.how, step.file, step.function] for step in leg.steps]
    return {"leg": leg.name, **numbers, "pairs": pairs, **({"steps": steps} if trace else {})}


def print_table(legs: list[Leg]) -> None:
    print(f"{'leg':36}{'own calls':>10}{'files':>7}{'changes':>9}{'by return':>11}")
    for leg in legs:
        print(f"{leg.name:36}{leg.calls:10}{leg.files:7}{leg.changes:9}{leg.returns:11}")


def print_trace(leg: Leg) -> None:
    print(f"\n{leg.name}\n")
    for step in leg.steps:
        print(f"{'*' if step.changed else ' '} {step.how:7}{step.file}:{step.function}")
    print()
    for (how, before, after), count in leg.pairs.most_common():
        print(f"{count:4}  {how:7}{before} -> {after}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Count own calls and changes of file of one request.")
    parser.add_argument("--trace", action="store_true", help="print how each function got control")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    logging.getLogger("trio_mcp").setLevel(logging.ERROR)
    recorder = Recorder()
    gc.disable()  # a collection in the middle would call finalizers
    with recorder.recording():
        trio.run(hold_all, recorder)
    if options.json:
        json.dump([figures(leg, trace=options.trace) for leg in recorder.legs], sys.stdout, indent=1)
        print()
        return
    print_table(recorder.legs)
    if options.trace:
        for leg in recorder.legs:
            print_trace(leg)


if __name__ == "__main__":
    main()
