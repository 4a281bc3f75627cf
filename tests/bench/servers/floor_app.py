"""The ASGI application of the floors, over HTTP and WebSocket."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

import orjson
import trio

from .floor_answers import QUESTION, Json, answer, event, text_result

Receive = Callable[[], Awaitable[Json]]
Send = Callable[[Json], Awaitable[None]]

JSON_HEADERS = [(b"content-type", b"application/json")]
EVENT_HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache, no-transform")]
MODERN = (b"mcp-protocol-version", b"2026-07-28")

waiting: dict[str, trio.Event] = {}
"""The questions that have no answer yet."""


async def app(scope: Json, receive: Receive, send: Send) -> None:
    """Serve one connection or request."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "websocket":
        await websocket(receive, send)
    elif scope["method"] == "GET":
        await idle_stream(receive, send)
    else:
        await post(scope, receive, send)


async def lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def websocket(receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.accept", "subprotocol": "mcp"})
    while (received := await receive())["type"] != "websocket.disconnect":
        message = orjson.loads(received["text"])
        if "id" in message:
            await send({"type": "websocket.send", "text": orjson.dumps(answer(message)).decode()})


async def idle_stream(receive: Receive, send: Send) -> None:
    await start(send, 200, EVENT_HEADERS)
    await write(send, b": hi\r\n\r\n", more=True)
    while (await receive())["type"] != "http.disconnect":
        pass


async def post(scope: Json, receive: Receive, send: Send) -> None:
    message = orjson.loads(await body_of(receive))
    if "method" not in message or "id" not in message:
        if "result" in message:
            waiting.pop(message["id"]).set()
        await start(send, 202, [(b"content-length", b"0")])
        await write(send, b"")
        return
    tool = message["params"].get("name") if message["method"] == "tools/call" else None
    if tool == "progress":
        await report(message, send)
    elif tool in ("ask", "fan") and MODERN not in scope["headers"]:
        await ask(message, send)
    else:
        await respond(message, send)


async def body_of(receive: Receive) -> bytes:
    received = await receive()
    parts: list[bytes] = [received["body"]]
    while received.get("more_body"):
        received = await receive()
        parts.append(received["body"])
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def respond(message: Json, send: Send) -> None:
    """Answer with one JSON document."""
    said = orjson.dumps(answer(message))
    headers = [*JSON_HEADERS, (b"content-length", b"%d" % len(said))]
    if message["method"] == "initialize":
        headers.append((b"mcp-session-id", uuid.uuid4().hex.encode()))
    await start(send, 200, headers)
    await write(send, said)


async def report(message: Json, send: Send) -> None:
    """Report progress, and answer."""
    await start(send, 200, EVENT_HEADERS)
    params = message["params"]
    total = params["arguments"]["n"]
    for done in range(total):
        step = {
            "progressToken": params["_meta"]["progressToken"],
            "progress": done + 1,
            "total": total,
            "message": "step",
        }
        await write(send, event({"jsonrpc": "2.0", "method": "notifications/progress", "params": step}), more=True)
    await write(send, event({"jsonrpc": "2.0", "id": message["id"], "result": text_result("done")}))


async def ask(message: Json, send: Send) -> None:
    """Ask the client in the middle of a call, as often as it wants to be asked, and answer."""
    await start(send, 200, EVENT_HEADERS)
    answered = []
    for _ in range(message["params"]["arguments"].get("n", 1)):
        request_id = uuid.uuid4().hex
        waiting[request_id] = trio.Event()
        answered.append(waiting[request_id])
        question = {"jsonrpc": "2.0", "id": request_id, "method": "elicitation/create", "params": QUESTION}
        await write(send, event(question), more=True)
    for each in answered:
        await each.wait()
    await write(send, event({"jsonrpc": "2.0", "id": message["id"], "result": text_result("got 7")}))


async def start(send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def write(send: Send, body: bytes, *, more: bool = False) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})
