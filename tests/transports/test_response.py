"""How responses are framed, and what an application may not send."""

from __future__ import annotations

import h11
import pytest
from naming import naming

from trio_mcp_transports.hypercorn.response import NO_BODY, Response, UnexpectedMessage, checked

LENGTH = b"content-length"


class Written:
    """The connection that a response is written to."""

    def __init__(self) -> None:
        self.writer = self
        self.is_last = False
        self.data = b""
        self.ends: list[bool] = []

    async def write(self, data: bytes, *, last: bool = False) -> None:
        self.data += data

    def own_head(self) -> bytes:
        return b"date: today\r\n"

    async def end_response(self, *, closes: bool) -> None:
        self.ends.append(closes)


def written() -> Written:
    return Written()


def read(data: bytes, *, method: bytes = b"GET", is_over: bool = False) -> tuple[int, bytes, bool]:
    """What h11, as a client, reads: the status, the body, and whether the connection may be used again."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    if is_over:
        client.receive_data(b"")
    head, body = client.next_event(), b""
    assert isinstance(head, h11.Response)
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage), event
    return head.status_code, body, client.their_state is h11.DONE


async def sent(owner: Written, *parts: bytes, status: int = 200, headers: object = (), **options: bool) -> bytes:
    response = Response(owner, **options)  # type: ignore[arg-type]
    response.set_head(status, headers)  # type: ignore[arg-type]
    for number, part in enumerate(parts, 1):
        await response.send_body(part, more=number < len(parts))
    await response.end_response()
    return owner.data


async def test_a_body_of_known_length_keeps_the_connection() -> None:
    owner = written()
    assert read(await sent(owner, b"ab", b"c", headers=[(LENGTH, b"3")])) == (200, b"abc", True)
    assert owner.ends == [False]


async def test_a_body_of_unknown_length_is_sent_in_chunks() -> None:
    owner = written()
    data = await sent(owner, b"ab", b"", b"x" * 100_000, b"")
    assert read(data) == (200, b"ab" + b"x" * 100_000, True)
    assert owner.ends == [False]


async def test_it_ends_with_the_connection_for_a_client_that_knows_no_chunks() -> None:
    owner = written()
    data = await sent(owner, b"ab", b"c", takes_chunks=False, keeps_alive=False)
    assert b"chunked" not in data
    assert read(data, is_over=True)[:2] == (200, b"abc")
    assert owner.ends == [True]


async def test_a_response_to_head_has_no_body_whatever_its_length() -> None:
    for headers in ((), [(LENGTH, b"3")]):
        assert read(await sent(written(), b"", headers=headers, is_head=True), method=b"HEAD") == (200, b"", True)


@pytest.mark.parametrize("status", sorted(NO_BODY))
async def test_a_status_without_a_body_promises_none(status: int) -> None:
    data = await sent(written(), b"", status=status)
    assert b"chunked" not in data
    assert read(data) == (status, b"", True)


@pytest.mark.parametrize("is_last", [True, False])
async def test_the_last_response_of_a_connection_says_so(is_last: bool) -> None:
    owner = written()
    owner.is_last = is_last
    data = await sent(owner, b"", headers=[(LENGTH, b"0")])
    assert (b"connection: close" in data) is is_last
    assert owner.ends == [is_last]


async def test_an_application_may_end_the_connection() -> None:
    owner = written()
    data = await sent(owner, b"", headers=[(LENGTH, b"0"), (b"Connection", b"Close")])
    assert data.lower().count(b"connection: close") == 1
    assert owner.ends == [True]


@pytest.mark.parametrize("parts", [(b"abcd",), (b"ab",), (b"ab", b"cd"), (b"ab", b"")])
async def test_a_body_with_another_length_than_it_promised_is_an_error(parts: tuple[bytes, ...]) -> None:
    owner = written()
    with pytest.raises(UnexpectedMessage):
        await sent(owner, *parts, headers=[(LENGTH, b"3")])
    # What was written is at most what was promised, so it cannot be read as the next response.
    assert len(owner.data.partition(b"\r\n\r\n")[2]) <= 3


@pytest.mark.parametrize("lengths", [[b"3", b"4"], [b"x"], [b"-1"], [b""]])
async def test_a_length_that_is_none_is_an_error(lengths: list[bytes]) -> None:
    owner = written()
    with pytest.raises(UnexpectedMessage):
        await sent(owner, b"", headers=[(LENGTH, length) for length in lengths])
    assert owner.data == b""


@pytest.mark.parametrize("status", [0, 100, 101, 199, 1000, -1])
async def test_a_status_that_is_none_is_an_error(status: int) -> None:
    with pytest.raises(UnexpectedMessage):
        await sent(written(), b"", status=status)


@pytest.mark.parametrize(
    "header",
    [
        (b"x", b"a\r\nset-cookie: b"),
        (b"x\r\ny", b"a"),
        (b"x y", b"a"),
        (b"", b"a"),
        (b"x", b"\0"),
        (b":status", b"200"),
    ],
)
def test_a_header_that_would_be_read_as_something_else_is_an_error(header: tuple[bytes, bytes]) -> None:
    with pytest.raises(UnexpectedMessage):
        checked([header])


def test_no_error_shows_the_value_of_a_header() -> None:
    with pytest.raises(UnexpectedMessage, match=naming("Set-Cookie")) as caught:
        checked([(b"Set-Cookie", b"session=SECRET\r\nx: y")])
    assert "SECRET" not in str(caught.value)


def test_the_framing_of_an_application_is_not_sent() -> None:
    assert checked([(b"Transfer-Encoding", b"chunked"), (b" a ", b" b ")]) == [(b"a", b"b")]


async def test_a_failure_is_answered_only_if_nothing_was_written() -> None:
    owner = written()
    response = Response(owner)  # type: ignore[arg-type]
    response.set_head(200, [])
    await response.fail()
    assert read(owner.data, is_over=True)[0] == 500
    owner = written()
    response = Response(owner)  # type: ignore[arg-type]
    response.set_head(200, [])
    await response.send_body(b"a", more=True)
    before = owner.data
    await response.fail()
    assert owner.data == before
    assert owner.ends == [True]
