"""How far a request travels: own calls, files, and changes of file of each leg: `hops.py [--trace | --roads]`.

A leg of the server begins with `jsonrpc.parse` of its request, and ends when its answer has been written. `control_flow.py` says
what counts as a call and as a change of file. There are three conversations with the server, and one of the client's:

- a modern `tools/call` with one question, so with two legs, over HTTP, on a loopback port;
- a legacy `tools/call` that reports progress and is cancelled, over two pipes. Its first leg ends with the report, its second,
  which begins with the cancellation, when nothing runs any more;
- a modern `tools/call` over WebSocket, on a loopback port;
- the first of these from the client's side, with its server in another process: from `Client.call_tool` to the answer, from
  there to the next answer, and from there to the result.

Each request is recorded when it was made a few times, so that what is built and compiled on first use is not counted. The figures
may still vary by one or two: how many bytes a read brings, and which of two tasks goes on first, is not ours to say. `--trace`
prints how each function got control, and which files control passed between; `--roads` prints the sums of each conversation as
JSON, for `house.py`.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import json
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import trio
from bench_app import ended, server
from control_flow import Leg, Recorder
from peers import (
    MODERN,
    NEWEST_LEGACY,
    Http,
    Json,
    Stdio,
    WebSocket,
    as_post,
    http_server,
    ids,
    is_answer,
    read_until,
    reading,
    request,
)
from trio_websocket import open_websocket_url

from trio_mcp import Client, accept
from trio_mcp.protocol import jsonrpc
from trio_mcp.session import find_transport
from trio_mcp.types import TextContent
from trio_mcp_transports.stdio.channel import LineChannel, Pipe

Conversation = Callable[[Recorder | None], Awaitable[None]]

ELICITS = {"elicitation": {}}
PARSE = jsonrpc.parse.__code__
CALL_TOOL = inspect.unwrap(Client.call_tool).__code__
TWO = accept(value=2)
BOUND = 20
WARM_UPS = [None] * 10
"""Requests before the one that is recorded."""
SILENCE = 0.1
"""Seconds without anything to do after which nothing is taken to follow."""


def legacy(method: str, params: Json | None = None, **request_id: int) -> Json:
    """A request if it has an `id`, or a notification."""
    return {"jsonrpc": "2.0", **request_id, "method": method, "params": params or {}}


def to_record(recorder: Recorder | None, *names: str) -> Callable[[], None]:
    """Plan legs that begin with `parse`; returns what ends the last of them. Without a recorder, nothing is done."""
    if recorder is None:
        return lambda: None
    recorder.plan((name, PARSE) for name in names)
    return recorder.end


# modern, over HTTP


async def post(connection: Http, message: Json) -> Json:
    """Send a request; its result."""
    await connection.stream.send_all(as_post(message))
    _, _, body = (await read_until(connection.stream, is_answer)).partition(b"\r\n\r\n")
    result: Json = json.loads(body)["result"]
    return result


async def modern_over_http(recorder: Recorder | None) -> None:
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(
            partial(find_transport("http").serve, server, port=0, announce=False, signals=False)
        )
        connection = await Http.connect(int(url.rpartition(":")[2].partition("/")[0]))
        for each in (*WARM_UPS, recorder):
            await trio.sleep(SILENCE)
            end = to_record(each, "http, modern: call to question")
            asked = await post(connection, request("book", {"to": "Lisbon"}, 1, ELICITS))
            end()
            (key,) = asked["inputRequests"]
            answers = {key: {"action": "accept", "content": {"value": 2}}}
            await trio.sleep(SILENCE)
            end = to_record(each, "http, modern: answer to result")
            more = {"inputResponses": answers, "requestState": asked["requestState"]}
            result = await post(connection, request("book", {"to": "Lisbon"}, 2, ELICITS, **more))
            end()
            assert result["content"][0]["text"] == "2 to Lisbon", result
        nursery.cancel_scope.cancel()


# legacy, over pipes


async def legacy_over_pipes(recorder: Recorder | None) -> None:
    to_server, from_server = os.pipe(), os.pipe()
    channel = LineChannel(Pipe(to_server[0]), Pipe(from_server[1]))
    async with (
        trio.lowlevel.FdStream(to_server[1]) as sending,
        trio.lowlevel.FdStream(from_server[0]) as receiving,
        trio.open_nursery() as nursery,
        reading(Stdio(sending, receiving)) as peer,
    ):
        nursery.start_soon(server.serve_channel, channel)
        client = {"protocolVersion": NEWEST_LEGACY, "capabilities": {}, "clientInfo": {"name": "hops", "version": "1"}}
        initialized = await peer.ask(legacy("initialize", client, id=next(ids)))
        assert initialized["result"]["protocolVersion"] == NEWEST_LEGACY
        await peer.write(legacy("notifications/initialized"))
        for each in (*WARM_UPS, recorder):
            await hold_and_cancel(peer, each, next(ids))
        await sending.aclose()


async def hold_and_cancel(peer: Stdio, recorder: Recorder | None, number: int) -> None:
    await trio.sleep(SILENCE)
    end = to_record(recorder, "stdio, legacy: call to progress")
    call = {"name": "hold", "arguments": {"key": str(number)}, "_meta": {"progressToken": number}}
    await peer.begin(legacy("tools/call", call, id=number))
    end()
    await trio.sleep(SILENCE)
    end = to_record(recorder, "stdio, legacy: cancel to silence")
    await peer.leave(number)
    await trio.sleep(SILENCE)
    end()
    assert str(number) in ended


# modern, over WebSocket


async def modern_over_websocket(recorder: Recorder | None) -> None:
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(
            partial(find_transport("websocket").serve, server, port=0, announce=False, signals=False)
        )
        async with open_websocket_url(url, subprotocols=["mcp"]) as connection, reading(WebSocket(connection)) as peer:
            for each in (*WARM_UPS, recorder):
                await trio.sleep(SILENCE)
                end = to_record(each, "websocket, modern: call to result")
                answer = await peer.call("echo", {"text": "hello"})
                end()
                assert answer["result"]["content"][0]["text"] == "hello", answer
        nursery.cancel_scope.cancel()


# the client


async def modern_client(recorder: Recorder | None) -> None:
    async with (
        http_server() as port,
        Client.connect(f"http://127.0.0.1:{port}/mcp", mode=MODERN, on_elicit=lambda _: TWO) as client,
    ):
        for each in (*WARM_UPS, recorder):
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


def print_table(legs: list[Leg]) -> None:
    print(f"{'leg':36}{'own calls':>10}{'files':>7}{'changes':>9}{'by return':>11}")
    for leg in legs:
        print(f"{leg.name:36}{leg.calls:10}{leg.files:7}{leg.changes:9}{leg.returns:11}")


def print_roads(legs: list[Leg]) -> None:
    calls, hops = Counter[str](), Counter[str]()
    for leg in legs:
        road = leg.name.partition(":")[0]
        calls[road] += leg.calls
        hops[road] += leg.changes
    print(json.dumps({"calls": calls, "hops": hops}))


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
    parser.add_argument("--roads", action="store_true", help="print the sums of each conversation as JSON")
    options = parser.parse_args()
    logging.getLogger("trio_mcp").setLevel(logging.ERROR)
    recorder = Recorder()
    gc.disable()  # a collection in the middle would call finalizers
    with recorder.recording():
        trio.run(hold_all, recorder)
    if options.roads:
        print_roads(recorder.legs)
        return
    print_table(recorder.legs)
    if options.trace:
        for leg in recorder.legs:
            print_trace(leg)


if __name__ == "__main__":
    main()
