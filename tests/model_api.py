"""A server on 127.0.0.1 that speaks HTTP as the APIs of models do, and answers what a test tells it to."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any, Literal, TypeAlias

import h11
import trio

Json: TypeAlias = dict[str, Any]

EVENTS = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Reply:
    """A response.

    Attributes:
        body: its pieces, each of which is sent as a chunk.
        then: "end" the body, "break" the connection in the middle of it, or "hang" until the client goes.
    """

    body: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: dict(JSON))
    then: Literal["end", "break", "hang"] = "end"


def says(answer: Json, status: int = 200, **headers: str) -> Reply:
    """A response whose body is JSON; `_` in the names of headers stands for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply([json.dumps(answer).encode()], status, {**JSON, **named})


def streams(events: Iterable[bytes], then: Literal["end", "break", "hang"] = "end") -> Reply:
    """A stream of events."""
    return Reply(list(events), headers=EVENTS, then=then)


@dataclass
class Asked:
    """A request that arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Json


Answer: TypeAlias = Reply | Callable[[Asked], Reply]


class ModelApi:
    """Answers the requests one after the other with these replies; a request without one fails the test.

    Attributes:
        url: its address.
        asked: the requests that arrived.
        connections: how many were opened.
        left: set when the client closes its connection while a response hangs.
        hangs: set when a response hangs: all of its pieces were sent.
    """

    def __init__(self, replies: Iterable[Answer], port: int) -> None:
        self._replies = iter(replies)
        self.url = f"http://127.0.0.1:{port}"
        self.asked: list[Asked] = []
        self.connections = 0
        self.open_connections = 0
        self.left = trio.Event()
        self.hangs = trio.Event()

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        self.open_connections += 1
        connection = h11.Connection(h11.SERVER)
        try:
            while await self._serve_one(connection, stream):
                connection.start_next_cycle()
        except (trio.BrokenResourceError, h11.RemoteProtocolError):
            self.left.set()
        finally:
            self.open_connections -= 1
            await trio.aclose_forcefully(stream)

    async def _serve_one(self, connection: h11.Connection, stream: trio.SocketStream) -> bool:
        """Answer a request, and return whether another one may follow."""
        request = await _next_event(connection, stream)
        if not isinstance(request, h11.Request):
            return False
        body = b""
        while isinstance(event := await _next_event(connection, stream), h11.Data):
            body += event.data
        headers = {name.decode(): value.decode() for name, value in request.headers}
        asked = Asked(request.method.decode(), request.target.decode(), headers, json.loads(body) if body else {})
        self.asked.append(asked)
        reply = next(self._replies, None)
        assert reply is not None, f"there is no reply for {asked}"
        return await self._reply(reply(asked) if callable(reply) else reply, connection, stream)

    async def _reply(self, reply: Reply, connection: h11.Connection, stream: trio.SocketStream) -> bool:
        head = h11.Response(
            status_code=reply.status, headers=[*reply.headers.items(), ("transfer-encoding", "chunked")]
        )
        await stream.send_all(connection.send(head) or b"")
        for piece in reply.body:
            await stream.send_all(connection.send(h11.Data(piece)) or b"")
        if reply.then == "end":
            await stream.send_all(connection.send(h11.EndOfMessage()) or b"")
            return True
        if reply.then == "hang":
            self.hangs.set()
            while await stream.receive_some():
                pass
            self.left.set()
        return False


async def _next_event(connection: h11.Connection, stream: trio.SocketStream) -> Any:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await stream.receive_some())
    return event


@asynccontextmanager
async def model_api(*replies: Answer, port: int = 0, always: Answer | None = None) -> AsyncIterator[ModelApi]:
    """Serve for the length of the block, which may take 20 seconds, or 60 where the API is asked by other processes.

    Args:
        always: answers each request after those of the replies.
    """
    with trio.fail_after(20 if always is None else 60):
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(port, host="127.0.0.1")
            more = () if always is None else repeat(always)
            api = ModelApi(chain(replies, more), listener.socket.getsockname()[1])
            nursery.start_soon(trio.serve_listeners, api.serve, [listener])
            yield api
            nursery.cancel_scope.cancel()


async def unused_url() -> str:
    """The address of a port at which nothing listens."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        return f"http://127.0.0.1:{listener.socket.getsockname()[1]}"


# What the two APIs send


def openai_answer(text: str | None = "Hello.", *, calls: Sequence[Json] = (), reason: str = "stop") -> Json:
    """A chat completion."""
    message: Json = {"role": "assistant", "content": text, **({"tool_calls": list(calls)} if calls else {})}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "model-1",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
    }


def anthropic_answer(*blocks: Json, reason: str = "end_turn") -> Json:
    """A message of the messages API."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "model-1",
        "content": list(blocks) or [{"type": "text", "text": "Hello."}],
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 12, "output_tokens": 3},
    }


def openai_events() -> list[bytes]:
    """A streamed chat completion: a text in two pieces, and a tool call in three."""

    def chunk(delta: Json, reason: str | None = None) -> Json:
        choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "model-1", "choices": choices}

    def call(**function: str) -> Json:
        return {"tool_calls": [{"index": 0, "function": function}]}

    started = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}}
    chunks = [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Look"}),
        chunk({"content": "ing."}),
        chunk({"tool_calls": [started]}),
        chunk(call(arguments='{"at"')),
        chunk(call(arguments=": 1}")),
        chunk({}, "tool_calls"),
        {**chunk({}), "choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}},
    ]
    return [*(b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks), b"data: [DONE]\n\n"]


def anthropic_events() -> list[bytes]:
    """A streamed message: thinking, a text in two pieces, and a tool call in two."""

    def block(index: int, begins: Json, *deltas: Json) -> list[Json]:
        return [
            {"type": "content_block_start", "index": index, "content_block": begins},
            *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": index},
        ]

    usage = {"input_tokens": 12, "output_tokens": 1}
    texts = [{"type": "text_delta", "text": text} for text in ("Look", "ing.")]
    arguments = [{"type": "input_json_delta", "partial_json": text} for text in ('{"at"', ": 1}")]
    stop = {"stop_reason": "tool_use", "stop_sequence": None}
    events: list[Json] = [
        {"type": "message_start", "message": {**anthropic_answer(reason=""), "content": [], "usage": usage}},
        {"type": "ping"},
        *block(0, {"type": "thinking", "thinking": "", "signature": ""}, {"type": "thinking_delta", "thinking": "Hm."}),
        *block(1, {"type": "text", "text": ""}, *texts),
        *block(2, {"type": "tool_use", "id": "c1", "name": "look", "input": {}}, *arguments),
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    return [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events]
