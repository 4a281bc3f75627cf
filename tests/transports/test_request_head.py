"""Heads of requests: what the pattern takes, h11 takes with the same meaning, and no connection takes what h11 refuses."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from time import perf_counter
from urllib.parse import unquote

import h11
import pytest
from hypercorn.trio.worker_context import WorkerContext

from trio_mcp.session import MemoryBudget
from trio_mcp_transports.asgi.access import HttpRejection, read_headers
from trio_mcp_transports.asgi.requests import Request
from trio_mcp_transports.asgi.responses import HttpApp, KnownResponse, Response
from trio_mcp_transports.hypercorn.config import guarded_config
from trio_mcp_transports.hypercorn.connections import ConnectionFacts, connections_of
from trio_mcp_transports.hypercorn.http1 import Http1
from trio_mcp_transports.hypercorn.request_head import MAX_HEAD, read_head

RUNS = int(os.environ.get("TRIO_MCP_RUNS", "150")) * 100
"""Mutated requests."""

MAX_INCOMPLETE = 16 * 1024

BODY = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
FIELDS = [
    b"Host: 127.0.0.1:8000",
    b"Content-Length: %d" % len(BODY),
    b"Accept: application/json, text/event-stream",
    b"content-type:application/json",
    b"Mcp-Session-Id: \t abc-DEF_123 ",
    b"MCP-PROTOCOL-VERSION: 2025-11-25",
    b"Connection: keep-alive",
]


def request(*more: bytes, line: bytes = b"POST /mcp HTTP/1.1", fields: list[bytes] = FIELDS) -> bytes:
    return b"\r\n".join([line, *fields, *more, b"", b""])


def mutated(data: bytes, dice: random.Random) -> bytes:
    """`data` with a few changes: bytes, lines, and pieces of other requests."""
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        at = dice.randrange(len(data) + 1)
        kind = dice.randrange(6)
        lines = data.split(b"\r\n")
        line = dice.randrange(len(lines))
        if kind == 0:
            data = data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at] + dice.choice(PIECES) + data[at:]
        elif kind == 2:
            data = data[:at] + data[at + dice.randrange(1, 4) :]
        elif kind == 3:
            lines.insert(line, dice.choice(LINES))
            data = b"\r\n".join(lines)
        elif kind == 4:
            lines.append(lines.pop(line))
            data = b"\r\n".join(lines)
        else:
            lines.insert(line, dice.choice(lines))
            data = b"\r\n".join(lines)
    return data


PIECES = [
    b"\r",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b"\0",
    b":",
    b"\x0b",
    b"\x85",
    b"\xa0",
    b"\r\n ",
    b"%0d%0a",
    b"?a=b",
    b"#",
]
LINES = [
    b"Transfer-Encoding: chunked",
    b"transfer-encoding:\tidentity",
    b"Content-Length: 0",
    b"Content-Length: 040",
    b"Content-Length: +40",
    b"Content-Length: 40, 40",
    b"Content-Length: 99999999999999999999",
    b"Expect: 100-continue",
    b"Connection: close",
    b"Connection: Keep-Alive",
    b"Connection: keep-alive, upgrade",
    b"Upgrade: h2c",
    b"Host: other",
    b"X-Empty:",
    b"X-Folded: a\r\n b",
    b"X-Token: !#$%&'*+-.^_`|~",
    b'X-Quoted: "a b\t;c"',
    b"Accept: text/plain",
    b"POST / HTTP/1.0",
]


def test_a_plain_post_is_taken() -> None:
    head = read_head(request() + BODY)
    assert head is not None
    assert (head.target, head.length, head.end) == ("/mcp", len(BODY), len(request()))
    assert head.headers["mcp-session-id"] == "abc-DEF_123"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(request(line=b"PUT /mcp HTTP/1.1"), id="another verb"),
        pytest.param(request(line=b"GET /mcp HTTP/1.1"), id="a body where none is usual"),
        pytest.param(request(line=b"POST /mcp HTTP/1.0"), id="another version"),
        pytest.param(request(line=b"POST http://x/mcp HTTP/1.1"), id="an absolute target"),
        pytest.param(request(b"Transfer-Encoding: chunked"), id="chunks"),
        pytest.param(request(b"Expect: 100-continue"), id="an expectation"),
        pytest.param(request(b"Upgrade: websocket"), id="an upgrade"),
        pytest.param(request(b"Connection: close", fields=FIELDS[:2]), id="a last request"),
        pytest.param(request(b"Host: y"), id="two hosts"),
        pytest.param(request(fields=FIELDS[1:]), id="no host"),
        pytest.param(request(b"Content-Length: 40"), id="two lengths"),
        pytest.param(request(fields=[FIELDS[0]]), id="no length"),
        pytest.param(request(b"Content-Length: 4_0", fields=FIELDS[:1]), id="a length that is no number"),
        pytest.param(request(b"X: a\r\n b"), id="a folded line"),
        pytest.param(request(b"X:"), id="an empty value"),
        pytest.param(request(b"X: \xc3\xa9"), id="bytes outside of ASCII"),
        pytest.param(request(b"X : a"), id="a space before the colon"),
        pytest.param(request(b"X: a\nY: b"), id="a bare line feed"),
        pytest.param(request(*[b"X-%d: a" % number for number in range(100)]), id="more fields than the limit"),
        pytest.param(request(b"X: " + b"a" * MAX_HEAD), id="more bytes than the limit"),
        pytest.param(request()[:-2], id="a head that has not come whole"),
        pytest.param(b"\r\n" + request(), id="an empty line before"),
    ],
)
def test_what_it_does_not_take_is_left_to_h11(data: bytes) -> None:
    assert read_head(data + BODY) is None


@pytest.mark.parametrize("piece", [b"a", b"a:", b"a: ", b"a: b\r\n", b"a: \t", b"\r\n", b" "])
def test_the_time_it_takes_is_bounded(piece: bytes) -> None:
    data = b"POST / HTTP/1.1\r\n" + piece * (200_000 // len(piece))
    began = perf_counter()
    assert read_head(data) is None
    assert perf_counter() - began < 0.5


# Whole connections: the requests that an application gets are those that h11 reads, whatever comes and however it is cut.

CASES = RUNS // 3
"""Connections that are compared: with the heads above, 20,000 cases."""

LINES_OF_REQUESTS = [
    b"POST /mcp HTTP/1.1",
    b"POST /mcp?a=1&b=%20c HTTP/1.1",
    b"POST /a%20b/%2e%2e?c=/d HTTP/1.1",
    b"GET /mcp HTTP/1.1",
    b"GET /mcp?session_id=abc HTTP/1.1",
    b"DELETE /mcp HTTP/1.1",
    b"OPTIONS /mcp HTTP/1.1",
    b"OPTIONS * HTTP/1.1",
    b"HEAD /health HTTP/1.1",
    b"PUT /hook HTTP/1.1",
    b"POST /mcp HTTP/1.0",
]
CHUNKED = [b"3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n", b"0\r\n\r\n", b"1;x=y\r\na\r\n0\r\nT: v\r\n\r\n"]

Read = tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]
"""A request: its method, its target, its headers and its body."""


def whole_request(dice: random.Random) -> bytes:
    """Some request with its body."""
    line, body = dice.choice(LINES_OF_REQUESTS), dice.choice([b"", b"abc", BODY])
    fields = [b"Host: 127.0.0.1:8000", *dice.sample(FIELDS[2:], dice.randrange(4))]
    kind = dice.randrange(6)
    if kind < 3:
        fields.append(b"Content-Length: %d" % len(body))
    elif kind == 3:
        fields.append(b"Transfer-Encoding: chunked")
        body = dice.choice(CHUNKED)
    elif not line.startswith((b"GET", b"DELETE", b"OPTIONS")):
        fields.append(b"Content-Length: %d" % len(body))
    else:
        body = b""
    return request(line=line, fields=fields) + body


def read_by_h11(data: bytes) -> tuple[list[Read], bool]:
    """The requests that h11 reads one after the other, and whether it refuses what follows them."""
    found: list[Read] = []
    while True:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_INCOMPLETE)
        connection.receive_data(data)
        try:
            head, body = connection.next_event(), b""
            if not isinstance(head, h11.Request):
                return found, False
            while isinstance(event := connection.next_event(), h11.Data):
                body += event.data
        except h11.RemoteProtocolError:
            return found, True
        if not isinstance(event, h11.EndOfMessage):
            return found, False
        found.append((head.method, head.target, list(head.headers), body))
        data = connection.trailing_data[0]


class Recording(HttpApp):
    """An application that notes what it gets."""

    def __init__(self) -> None:
        self.found: list[Read] = []

    async def respond(self, request: Request) -> Response:
        body = request.body.whole
        if body is None:
            body = b""
            while part := await request.body.receive():
                body += part
        target = request.path + (f"?{request.query}" if request.query else "")
        headers = [(name.encode(), value.encode("latin-1")) for name, value in request.headers.items()]
        self.found.append((request.method.encode(), target.encode(), headers, body))
        return KnownResponse(200)


class Unwired:
    """A connection without a socket, on which these pieces come; what is written goes nowhere."""

    def __init__(self, *pieces: bytes) -> None:
        self.app, self.is_closed = Recording(), False
        self.writer = self
        self.is_writing = self.is_over = False
        self._pieces = list(pieces)
        config = guarded_config()
        config.h11_max_incomplete_size = MAX_INCOMPLETE
        facts = ConnectionFacts(self.app, config, WorkerContext(None), connections_of(config), None, False)
        self.http = Http1(facts, self, self, MemoryBudget().open(), None)  # type: ignore[arg-type]

    async def feed(self) -> None:
        """Hand on each piece, until the connection is closed."""
        while self._pieces and not self.is_closed:
            await self.http.receive(self._pieces.pop(0))

    async def receive(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    def write_or_start(self, _pieces: object, _on_written: Callable[[], None]) -> bool:
        return True

    async def write(self, _data: bytes) -> None: ...

    def end(self) -> None:
        self.is_closed = True

    def begin_request(self) -> None: ...

    def end_request(self, *, in_message: bool) -> None: ...

    def settle_deadline(self) -> None: ...

    def limit_reading(self, _seconds: float) -> None: ...


def read_by_us(*pieces: bytes) -> tuple[list[Read], bool]:
    """The requests that an application gets, and whether the connection was closed."""
    wire = Unwired(*pieces)
    feeding = wire.feed()
    # Nothing here waits for anything, so that no event loop is needed.
    with pytest.raises(StopIteration):
        feeding.send(None)
    return wire.app.found, wire.is_closed


def as_told(read: Read) -> Read:
    """A request of h11 as an application gets it: with a decoded path, and lists of headers in one."""
    method, target, lines, body = read
    path, mark, query = target.decode("latin-1").partition("?")
    headers = [(name.encode(), value.encode("latin-1")) for name, value in read_headers(lines).items()]
    return method.upper(), (unquote(path) + (mark + query if query else "")).encode(), headers, body


def check_same(data: bytes, *pieces: bytes) -> int:
    """Check that the application gets what h11 reads, in order, and nothing that it refuses; return how much that is."""
    expected, is_refused = read_by_h11(data)
    found, is_closed = read_by_us(*pieces)
    usable: list[Read] = []
    for each in expected:
        try:
            usable.append(as_told(each))
        except HttpRejection:
            break
    assert found == usable[: len(found)], data
    # What h11 refuses ends the connection, as does what we refuse besides; else nothing is missing.
    assert is_closed or (not is_refused and len(found) == len(usable)), data
    return len(found)


def test_an_application_gets_the_requests_that_h11_reads_and_no_others() -> None:
    dice, taken = random.Random(0), 0
    for _ in range(CASES):
        data = b"".join(whole_request(dice) for _ in range(dice.choice([1, 1, 2, 3])))
        if dice.random() < 0.8:
            data = mutated(data, dice)
        cut = dice.randrange(len(data) + 1)
        taken += check_same(data, data[:cut], data[cut:]) > 0
    # Else the mutations are too wild to show anything.
    assert taken > CASES / 4


@pytest.mark.parametrize("seed", range(8))
def test_where_the_bytes_are_cut_changes_nothing(seed: int) -> None:
    dice = random.Random(seed)
    data = b"".join(whole_request(dice) for _ in range(3))
    whole = check_same(data, data)
    assert whole
    for cut in range(1, len(data)):
        assert check_same(data, data[:cut], data[cut:]) == whole
    assert check_same(data, *(data[at : at + 1] for at in range(len(data)))) == whole
