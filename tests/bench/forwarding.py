"""What a call costs that comes to another worker than the one with its session: `python tests/bench/forwarding.py [ROUNDS]`.

One server with two workers, and a legacy session in each. In turns, each round calls `echo` on connections to the worker that has
the session, and on connections to the other one, which passes the calls on. It prints the CPU time of both workers for a call, 16
at once, and how long a call takes alone: medians of the rounds, so that the load of the machine counts for both. Not a test: it
has no threshold.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import tls_load
from peers import ENVIRONMENT, NEWEST_LEGACY, as_post, ids, percentile, request
from tls_load import FIRST_NUMBER, NUMBER, SECONDS, cpu_seconds

ROUNDS = 15
AT_ONCE = 16
CALLS = 100
"""Calls of each connection in one turn."""
ALONE = 200
APP = Path(__file__).parent / "servers" / "workers_app.py"


class Connection(tls_load.Connection):
    """One connection, with the worker that has accepted it."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.worker = int(self.post(as_post(request("where", {}, next(ids)))))

    def post(self, data: bytes) -> str:
        """Send a call, and return the text of its result."""
        self.send(data)
        text: str = json.loads(self.receive()[1])["result"]["content"][0]["text"]
        return text


def legacy_post(message: Mapping[str, object], session: str | None) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    head = "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    head += f"accept: application/json, text/event-stream\r\ncontent-length: {len(body)}\r\n"
    if session is not None:
        head += f"mcp-session-id: {session}\r\nmcp-protocol-version: {NEWEST_LEGACY}\r\n"
    return f"{head}\r\n".encode() + body


def opened(connection: Connection) -> bytes:
    """Open a session in the worker of a connection; return a call in it."""
    client = {"name": "bench", "version": "1"}
    hello = {"protocolVersion": NEWEST_LEGACY, "capabilities": {}, "clientInfo": client}
    connection.send(legacy_post({"id": 0, "method": "initialize", "params": hello}, None))
    found = re.search(rb"mcp-session-id: (\S+)", connection.receive()[0], re.IGNORECASE)
    assert found is not None
    session = found[1].decode()
    connection.send(legacy_post({"method": "notifications/initialized"}, session))
    connection.receive()
    params = {"name": "echo", "arguments": {"text": "hello"}}
    call = legacy_post({"id": FIRST_NUMBER, "method": "tools/call", "params": params}, session)
    return call.replace(b"%d" % FIRST_NUMBER, NUMBER)


def gathered(port: int) -> dict[int, list[Connection]]:
    """Return as many connections to each of two workers as there are calls at once."""
    found: dict[int, list[Connection]] = {}
    until = time.monotonic() + SECONDS
    while len(found) < 2 or min(map(len, found.values())) < AT_ONCE:
        assert time.monotonic() < until, "one worker accepts all connections"
        connection = Connection(port)
        mine = found.setdefault(connection.worker, [])
        if len(mine) < AT_ONCE:
            mine.append(connection)
        else:
            connection.close()
    return found


def cpu_of_a_call(connections: Sequence[Connection], call: bytes, workers: Sequence[int]) -> float:
    """Return the CPU time of all workers for a call, in µs; each connection has one at a time."""
    before = sum(map(cpu_seconds, workers))
    for _ in range(CALLS):
        for connection in connections:
            connection.send(call)
        for connection in connections:
            assert b"hello" in connection.receive()[1]
    return (sum(map(cpu_seconds, workers)) - before) * 1e6 / (CALLS * len(connections))


def times_alone(connection: Connection, call: bytes) -> float:
    """Return the median time of a call, in ms."""
    times = list[float]()
    for _ in range(ALONE):
        began = time.perf_counter()
        connection.send(call)
        connection.receive()
        times.append((time.perf_counter() - began) * 1000)
    return percentile(times, 0.5)


@contextmanager
def served() -> Iterator[int]:
    """A server with two workers for the length of the block; its port."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
    command = [sys.executable, "-m", "trio_mcp", "serve", str(APP), "--port", str(port), "--workers", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=ENVIRONMENT, text=True)
    try:
        assert process.stderr is not None
        assert any("serves MCP at" in line for line in process.stderr), "the server has not started"
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS)
        process.kill()


def main(rounds: int) -> None:
    with served() as port:
        connections = gathered(port)
        home, other = connections
        call = opened(connections[home][0])
        roads = {"in its worker": connections[home], "passed on": connections[other]}
        for each in roads.values():
            cpu_of_a_call(each, call, [home, other])
        cpu, alone = (dict[str, list[float]]((road, []) for road in roads) for _ in range(2))
        for _ in range(rounds):
            for road, each in roads.items():
                cpu[road].append(cpu_of_a_call(each, call, [home, other]))
                alone[road].append(times_alone(each[0], call))
        print(f"load average {os.getloadavg()[0]:.1f}, {rounds} rounds")
        for road in roads:
            print(
                f"{road:<15} {statistics.median(cpu[road]):5.0f} µs of CPU, {statistics.median(alone[road]):.2f} ms alone"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
