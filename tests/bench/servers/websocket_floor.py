"""A floor for WebSockets: trio-websocket. `python -m bench.servers.websocket_floor PORT`."""

from __future__ import annotations

import sys

import orjson
import trio
from trio_websocket import ConnectionClosed, WebSocketRequest, serve_websocket

from .floor_answers import answer


async def serve(request: WebSocketRequest) -> None:
    connection = await request.accept(subprotocol="mcp")
    try:
        while True:
            message = orjson.loads(await connection.get_message())
            if "id" in message:
                await connection.send_message(orjson.dumps(answer(message)).decode())
    except ConnectionClosed:
        pass


async def main(port: int) -> None:
    await serve_websocket(serve, "127.0.0.1", port, ssl_context=None)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]))
