"""Whatever bytes come, in whatever pieces: only their own connection ends, and nothing is left behind."""

from __future__ import annotations

import os
from random import Random

import pytest
import trio
import trio.testing
from hypercorn_peer import GET, SOON, Server, answer, bystander, frame, get, reply, running, serving, upgrade

from trio_mcp_transports.asgi.requests import Request
from trio_mcp_transports.asgi.responses import Response
from trio_mcp_transports.hypercorn.config import guarded_config
from trio_mcp_transports.hypercorn.connections import connections_of

RUNS = int(os.environ.get("TRIO_MCP_RUNS", "150")) // 75

SEEDS = [
    GET + GET,
    get("/", "connection: close"),
    get("/", "connection: upgrade", "upgrade: h2c"),
    upgrade("sec-websocket-protocol: mcp", "sec-websocket-extensions: permessage-deflate"),
    upgrade() + frame(1, b"early"),
    frame(1, b"text") + frame(9, b"ping") + frame(8, b"\x03\xe8"),
    b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\nabcde" + GET,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
]


def mutated(random: Random) -> bytes:
    data = bytearray(random.choice(SEEDS))
    for _ in range(random.randrange(4)):
        at = random.randrange(len(data) + 1)
        match random.randrange(4):
            case 0:
                data[at : at + 1] = random.randbytes(1)
            case 1:
                del data[at : at + random.randrange(10)]
            case 2:
                data[at:at] = random.randbytes(random.randrange(20))
            case _:
                data[at:at] = random.choice(SEEDS)
    return bytes(data)


async def application(request: Request) -> Response:
    """Echo WebSocket messages; read a request before it is answered, or not."""
    return reply() if request.method == "PUT" else await answer(request)


async def attack(server: Server, data: bytes, cut: int, patience: float) -> None:
    async with server.client() as client:
        try:
            await client.send(data[:cut])
            await trio.lowlevel.checkpoint()
            await client.send(data[cut:])
        except trio.BrokenResourceError:
            return
        with trio.move_on_after(patience):
            await client.rest()


@pytest.mark.parametrize("seed", range(RUNS))
async def test_no_input_of_a_client_is_an_error_of_the_server(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    random, config = Random(seed), guarded_config()
    async with running(serving(application), config) as server:
        async with bystander(server):
            for _ in range(10):
                async with trio.open_nursery() as nursery:
                    for _ in range(20):
                        data = mutated(random)
                        cut, patience = random.randrange(len(data) + 1), random.choice([0, 0.01, 0.05])
                        nursery.start_soon(attack, server, data, cut, patience)
        with trio.fail_after(SOON):
            while len(connections_of(config)):
                await trio.testing.wait_all_tasks_blocked()
        assert not server.ended.is_set()
    assert [record for record in caplog.records if record.name.startswith("trio_mcp")] == []
