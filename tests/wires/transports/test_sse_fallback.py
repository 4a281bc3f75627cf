"""Falling back to HTTP+SSE at a server that closes the connection of a POST which it rejects, without a response."""

from __future__ import annotations

import re
from functools import partial

import trio
from serving import SOON

from trio_mcp import Client

HELLO = (
    b'{"jsonrpc": "2.0", "id": %d, "result": {"protocolVersion": "2024-11-05", "capabilities": {},'
    b' "serverInfo": {"name": "old", "version": "1"}}}'
)
EVENT = b"event: %s\ndata: %s\n\n"


async def request(stream: trio.SocketStream) -> bytes:
    """Return the next request, with its body."""
    data = b""
    while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < length(data):
        more = bytes(await stream.receive_some())
        if not more:
            return data
        data += more
    return data


def length(data: bytes) -> int:
    found = re.search(rb"content-length: (\d+)", data, re.IGNORECASE)
    return 0 if found is None else int(found[1])


async def serve(streams: list[trio.SocketStream], closed: list[bytes], stream: trio.SocketStream) -> None:
    async with stream:
        head = await request(stream)
        if head.startswith(b"GET"):
            streams.append(stream)
            await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            await stream.send_all(EVENT % (b"endpoint", b"/message"))
            await trio.sleep_forever()
        elif head.startswith(b"POST /message"):
            while head:
                await stream.send_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
                if b'"initialize"' in head:
                    number = re.search(rb'"id":\s*(\d+)', head)
                    assert number is not None
                    await streams[-1].send_all(EVENT % (b"message", HELLO % int(number[1])))
                head = await request(stream)
        else:
            await stream.send_all(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n")
            # The next request has been sent when the connection ends.
            closed.append(await request(stream))


async def test_a_client_falls_back_although_the_connection_that_it_kept_is_closed() -> None:
    closed: list[bytes] = []
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, partial(serve, [], closed), 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        with trio.fail_after(SOON):
            async with Client.connect(f"http://127.0.0.1:{port}/sse", mode="legacy") as client:
                assert client.server_info is not None
                assert client.server_info.name == "old"
        nursery.cancel_scope.cancel()
    assert closed[0].startswith(b"GET /sse")
