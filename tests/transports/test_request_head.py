"""Heads of requests: what the pattern takes, h11 takes with the same meaning, and no connection takes what h11 refuses."""

from __future__ import annotations

import os
import random
from time import perf_counter

import h11
import pytest

from trio_mcp_transports.hypercorn.request_head import MAX_HEAD, read_head

RUNS = int(os.environ.get("TRIO_MCP_RUNS", "150")) * 100
"""Mutated requests."""

BODY = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
NEXT = b"POST /next HTTP/1.1\r\nHost: y\r\n\r\n"
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


def by_h11(data: bytes) -> tuple[bytes, str, list[tuple[str, str]], bytes, bytes]:
    """How h11 reads `data`: verb, target, headers, body and rest."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    head = connection.next_event()
    assert isinstance(head, h11.Request), head
    assert not connection.they_are_waiting_for_100_continue
    assert head.http_version == b"1.1"
    body = b""
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.Data), event
        body += event.data
    connection.send(h11.Response(status_code=202, headers=[(b"content-length", b"0")]))
    connection.send(h11.EndOfMessage())
    # Not where the client, or what it speaks, asks for the end of the connection.
    assert connection.our_state is h11.DONE
    headers = [(name.decode("ascii"), value.decode("latin-1")) for name, value in head.headers]
    return head.method, head.target.decode("ascii"), headers, body, connection.trailing_data[0]


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


def test_what_the_pattern_takes_h11_takes_with_the_same_meaning() -> None:
    dice = random.Random(0)
    taken = 0
    for _ in range(RUNS):
        fields = dice.sample(FIELDS, len(FIELDS)) if dice.random() < 0.3 else FIELDS
        data = mutated(request(fields=fields), dice) + BODY + NEXT
        head = read_head(data)
        if head is None or len(data) < head.end + head.length:
            continue
        taken += 1
        body, rest = data[head.end : head.end + head.length], data[head.end + head.length :]
        assert (head.method.encode(), head.target, [*head.headers.items()], body, rest) == by_h11(data), data
    # Else the mutations are too wild to show anything.
    assert taken > RUNS / 10


def test_a_plain_post_is_taken() -> None:
    head = read_head(request() + BODY)
    assert head is not None
    assert (head.target, head.length, head.end) == ("/mcp", len(BODY), len(request()))
    assert head.headers["mcp-session-id"] == "abc-DEF_123"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(request(line=b"GET /mcp HTTP/1.1"), id="another verb"),
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
