"""The load generator for TLS, which the one in C does not speak, in Python: `tls_load.py http OPTIONS`.

Each connection has one call at a time. What it costs the server is counted for the whole process, so that this program may take
its time. `--tls 0` does the same without TLS, for a comparison.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import socket
import ssl
import time
from pathlib import Path

LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
NUMBER = b"#########"
SECONDS = 60
FIRST_NUMBER = 100_000_000
numbers = itertools.count(FIRST_NUMBER)


class Connection:
    """One connection; one request at a time."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        sock = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock if context is None else context.wrap_socket(sock, server_hostname="localhost")

    def send(self, request: bytes) -> None:
        """Send a request with a new number."""
        self._sock.sendall(request.replace(NUMBER, b"%d" % next(numbers)))

    def receive(self) -> tuple[bytes, bytes]:
        """Return the head and the body of a response with a Content-Length."""
        said = b""
        while True:
            head, found, body = said.partition(b"\r\n\r\n")
            length = LENGTH.search(head) if found else None
            if length is not None and len(body) >= int(length[1]):
                return head, body
            data = self._sock.recv(65536)
            if not data:
                raise EOFError(said)
            said += data

    def close(self) -> None:
        self._sock.close()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of another process, with all its threads."""
    # The id of the CPU clock of a process, as clock_getcpuclockid(3) makes it on Linux.
    return time.clock_gettime((~pid << 3) | 2)


def request_of(text: str, session: str) -> bytes:
    """Return a request as it is sent."""
    head, _, body = text.replace("@SID@", session).partition("\n\n")
    lines = [*head.split("\n"), f"Content-Length: {len(body)}", "", body]
    return "\r\n".join(lines).encode()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("port", "conns", "pid", "tls"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("duration", "warmup"):
        parser.add_argument(f"--{name}", type=float, required=True)
    parser.add_argument("--expect", required=True)
    parser.add_argument("--req", type=Path, required=True)
    parser.add_argument("--sids", type=Path)
    parser.add_argument("mode", choices=["http"])
    options = parser.parse_args()
    context = ssl._create_unverified_context() if options.tls else None  # noqa: SLF001  it is our own server
    sessions = options.sids.read_text().split() if options.sids else [""] * options.conns
    text = options.req.read_text()
    connections = {Connection(options.port, context): request_of(text, session) for session in sessions}
    calls = errors = 0
    before, measured_from = 0.0, time.monotonic() + options.warmup
    while time.monotonic() < measured_from + options.duration:
        if not before and time.monotonic() >= measured_from:
            before, calls = cpu_seconds(options.pid), 0
        for connection, request in connections.items():
            connection.send(request)
        for connection in connections:
            errors += options.expect.encode() not in connection.receive()[1]
            calls += 1
    used = cpu_seconds(options.pid) - before
    print(json.dumps({"calls": calls, "errors": errors, "cpu_us": used * 1e6 / max(calls, 1), "first_ms": 0.0}))


if __name__ == "__main__":
    main()
