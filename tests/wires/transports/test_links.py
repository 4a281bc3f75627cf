"""Links: what one process passes on to another, and what either end must not say."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from asgi_peer import AsgiPeer, legacy_call, modern_call, served
from crashing_store import CrashingStore, Disk
from noticing_store import NoticingDisk, NoticingStore
from serving import START
from wire_terms import INVALID_PARAMS

from trio_mcp import Caller, Context, HttpOptions, Server, ServiceOptions
from trio_mcp.session import KeyRing, MemoryBudget, Peer
from trio_mcp.session.options import WORKPLACE, Workplace
from trio_mcp_transports.asgi.requests import AuthorizedRequest, Body, Request
from trio_mcp_transports.asgi.responses import BrokenOff, KnownResponse, Response
from trio_mcp_transports.http import McpApp, asgi_app
from trio_mcp_transports.http.link.elsewhere import Front, open_links, socket_path
from trio_mcp_transports.http.link.forwarded import Forwarded
from trio_mcp_transports.http.link.frames import (
    CHUNK,
    HEADER,
    LIMITS_OF_OWNER,
    MAX_HEAD,
    WINDOW_BYTES,
    Frame,
    FrameReader,
    Kind,
    LinkBroken,
    encode,
    limits_of_front,
)
from trio_mcp_transports.http.link.link import Link, is_own_user, run_logged
from trio_mcp_transports.http.link.owner import Owner
from trio_mcp_transports.http.link.requests import (
    decoded_head,
    decoded_request,
    encoded_head,
    encoded_request,
    encoded_whole,
)

BODY = 1000
EVENTS = 8_000
"""Reports of one call: several times what is on its way."""
OK = encoded_head(200, [(b"content-type", b"application/json")])
STREAM = encoded_head(200, [(b"content-type", b"text/event-stream")])


def request(
    headers: Mapping[str, str] | None = None, connection: object = None, body: bytes = b"{}"
) -> AuthorizedRequest:
    given = dict(headers or {})
    sent = Request("POST", "/mcp", given, Body(body), client=("192.0.2.1", 9), connection=connection)
    caller = Caller("ada", ["books:read"], {"team": "blue"})
    return AuthorizedRequest(sent, Peer("ada", given, connection, caller), None)


# frames


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_frames_are_found_however_their_bytes_are_split(size: int) -> None:
    data = encode(Kind.HEAD, 1, OK) + encode(Kind.DATA, 1, b"abc") + encode(Kind.END, 1)
    reader = FrameReader(LIMITS_OF_OWNER)
    found = [frame for at in range(0, len(data), size) for frame in reader.feed(data[at : at + size])]
    assert found == [Frame(Kind.HEAD, 1, OK), Frame(Kind.DATA, 1, b"abc"), Frame(Kind.END, 1, b"")]


@pytest.mark.parametrize(
    "header",
    [
        HEADER.pack(Kind.DATA, 1, 2**32 - 1),
        HEADER.pack(Kind.DATA, 1, CHUNK + 1),
        HEADER.pack(Kind.END, 1, 1),
        HEADER.pack(99, 1, 0),
        HEADER.pack(0, 1, 0),
        HEADER.pack(Kind.REQUEST, 1, 2),
    ],
)
def test_a_frame_of_a_front_or_too_large_or_of_an_unknown_kind_is_refused_by_its_head(header: bytes) -> None:
    with pytest.raises(LinkBroken):
        [*FrameReader(LIMITS_OF_OWNER).feed(header)]


def test_a_request_may_be_as_large_as_a_body_and_its_head() -> None:
    limits = limits_of_front(BODY)
    assert [*FrameReader(limits).feed(HEADER.pack(Kind.REQUEST, 1, MAX_HEAD + BODY))] == []
    with pytest.raises(LinkBroken):
        [*FrameReader(limits).feed(HEADER.pack(Kind.REQUEST, 1, MAX_HEAD + BODY + 1))]


# requests


def test_a_request_brings_its_caller_and_its_address_and_no_token() -> None:
    secret = {"authorization": "Bearer s3cret", "cookie": "s3cret", "proxy-authorization": "s3cret", "accept": "*/*"}
    data = encoded_request(request(secret, body=b'{"a": 1}'), "n1", begins=True)
    assert b"s3cret" not in data
    found, begins = decoded_request(data)
    assert begins
    assert (found.request.method, found.request.path, found.request.body.whole) == ("POST", "/mcp", b'{"a": 1}')
    assert found.request.client == ("192.0.2.1", 9)
    assert found.peer.headers == {"accept": "*/*"}
    assert found.peer.caller == Caller("ada", ["books:read"], {"team": "blue"})


def test_a_connection_has_one_name_that_no_other_connection_has() -> None:
    one, two = object(), object()

    def name(connection: object, node: str = "n1") -> object:
        return decoded_request(encoded_request(request(connection=connection), node, begins=False))[0].peer.connection

    assert name(one) == name(one)
    assert len({name(one), name(two), name(one, "n2")}) == 3
    # What a trusted proxy has named is the same client at every worker.
    assert name("198.51.100.7", "n1") == name("198.51.100.7", "n2") == "198.51.100.7"


ENDLESS = b'{"caller": null, "client": ["192.0.2.1", Infinity]}\n'


@pytest.mark.parametrize(
    "data", [b"", b"{}\n", b"[]\n", b"\xff\n", b'{"caller": 1}\n', ENDLESS, b"[" * 100_000], ids=range(7)
)
def test_a_request_that_cannot_be_read_ends_the_link(data: bytes) -> None:
    with pytest.raises(LinkBroken):
        decoded_request(data)


@pytest.mark.parametrize("data", [b"", b"{}", b"[200]", b"[Infinity, []]", b"[" * 100_000], ids=range(5))
def test_the_head_of_a_response_that_cannot_be_read_ends_the_link(data: bytes) -> None:
    with pytest.raises(LinkBroken):
        decoded_head(data)


# the front


class Sent:
    """What a front posts about a request."""

    def __init__(self) -> None:
        self.frames: list[tuple[Kind, bytes]] = []
        self.over = 0
        self.response = Forwarded(lambda kind, data: self.frames.append((kind, data)), self.end)

    def end(self) -> None:
        self.over += 1


def test_a_whole_response_arrives_whole_and_the_window_widens_as_it_comes() -> None:
    sent = Sent()
    response = sent.response
    for kind, data in [(Kind.ACCEPTED, b""), (Kind.HEAD, OK), *[(Kind.DATA, b"x" * CHUNK)] * 8, (Kind.END, b"")]:
        assert response.take_known() is None
        response.receive(kind, data)
    known = response.take_known()
    assert known is not None
    assert (known.status, known.body) == (200, b"x" * 8 * CHUNK)
    assert sent.frames == [(Kind.WINDOW, (2 * CHUNK).to_bytes(4, "big"))] * 4
    assert sent.over == 1


def test_a_response_of_one_frame_is_taken_whole() -> None:
    sent = Sent()
    sent.response.receive(Kind.ACCEPTED, b"")
    sent.response.receive(Kind.WHOLE, encoded_whole(KnownResponse(404, b"a\nb")))
    known = sent.response.take_known()
    assert known is not None
    assert (known.status, known.body) == (404, b"a\nb")
    assert (b"content-type", b"application/json") in known.head
    assert (sent.frames, sent.over) == ([], 1)


def test_the_window_of_a_stream_widens_as_its_client_reads() -> None:
    sent = Sent()
    response = sent.response
    response.receive(Kind.ACCEPTED, b"")
    response.receive(Kind.HEAD, STREAM)
    for _ in range(WINDOW_BYTES // CHUNK):
        response.receive(Kind.DATA, b"x" * CHUNK)
    assert sent.frames == []
    part = response.take_part()
    assert part is not None
    assert (len(part.body), part.is_last) == (WINDOW_BYTES, False)
    assert sent.frames == [(Kind.WINDOW, WINDOW_BYTES.to_bytes(4, "big"))]
    for _ in range(WINDOW_BYTES // CHUNK):
        response.receive(Kind.DATA, b"x" * CHUNK)
    with pytest.raises(LinkBroken):
        response.receive(Kind.DATA, b"x")


async def test_a_stream_whose_owner_ends_is_broken_off_after_what_came() -> None:
    response = Sent().response
    for kind, data in [(Kind.ACCEPTED, b""), (Kind.HEAD, STREAM), (Kind.DATA, b"data: 1\n\n")]:
        response.receive(kind, data)
    response.break_off()
    part = response.take_part()
    assert part is not None
    assert (part.body, part.is_last) == (b"data: 1\n\n", False)
    assert response.take_part() is None
    with pytest.raises(BrokenOff):
        await response.wait_part()


def test_a_response_that_has_not_begun_when_its_owner_ends_is_a_503_that_says_when_to_try_again() -> None:
    response = Sent().response
    response.receive(Kind.ACCEPTED, b"")
    response.break_off()
    known = response.take_known()
    assert known is not None
    assert known.status == 503
    assert (b"retry-after", b"1") in known.head


def test_a_client_that_leaves_is_said_once() -> None:
    sent = Sent()
    sent.response.receive(Kind.ACCEPTED, b"")
    sent.response.lose()
    sent.response.lose()
    assert sent.frames == [(Kind.GONE, b"")]
    assert sent.over == 1


@pytest.mark.parametrize(
    "frames",
    [
        [(Kind.HEAD, OK)],
        [(Kind.ACCEPTED, b""), (Kind.ACCEPTED, b"")],
        [(Kind.ACCEPTED, b""), (Kind.MOVED, b"")],
        [(Kind.ACCEPTED, b""), (Kind.DATA, b"x")],
        [(Kind.ACCEPTED, b""), (Kind.END, b"")],
        [(Kind.ACCEPTED, b""), (Kind.HEAD, OK), (Kind.HEAD, OK)],
        [(Kind.ACCEPTED, b""), (Kind.HEAD, b"{")],
        [(Kind.WHOLE, OK)],
        [(Kind.ACCEPTED, b""), (Kind.HEAD, STREAM), (Kind.WHOLE, OK)],
        [(Kind.ACCEPTED, b""), (Kind.WHOLE, b"{\n")],
        [(Kind.ACCEPTED, b""), (Kind.HEAD, b'["x", 1]')],
    ],
)
def test_a_frame_that_may_not_follow_ends_the_link(frames: list[tuple[Kind, bytes]]) -> None:
    response = Sent().response
    *before, last = frames
    for kind, data in before:
        response.receive(kind, data)
    with pytest.raises(LinkBroken):
        response.receive(*last)


@pytest.fixture
async def front() -> AsyncIterator[Front]:
    """A front that is linked to nothing which answers."""
    ours, theirs = trio.socket.socketpair()
    with ours, theirs:
        linked = Front()
        linked.link = Link(trio.SocketStream(ours), LIMITS_OF_OWNER, linked.receive, linked.end)
        yield linked


async def test_a_frame_about_a_request_that_was_left_is_dropped_and_about_one_that_never_was_ends_the_link(
    front: Front,
) -> None:
    front.send(b"").lose()
    front.receive(Frame(Kind.DATA, 1, b"x"))
    for number in (0, 2):
        with pytest.raises(LinkBroken):
            front.receive(Frame(Kind.DATA, number, b"x"))


async def test_requests_after_the_last_one_that_the_owner_has_read_are_refused_and_no_further_one_is_sent(
    front: Front,
) -> None:
    read, unread = front.send(b""), front.send(b"")
    front.receive(Frame(Kind.LAST, 1, b""))
    later = front.send(b"")
    assert [each.is_leaving for each in (read, unread, later)] == [False, True, True]
    front.receive(Frame(Kind.ACCEPTED, 1, b""))
    front.end()
    assert [each.is_lost for each in (read, unread, later)] == [True, False, False]


@pytest.mark.parametrize("numbers", [[2], [1, 1]])
def test_a_last_request_that_never_was_or_is_named_twice_ends_the_link(numbers: list[int]) -> None:
    front = Front(_count=1)
    *before, last = numbers
    for number in before:
        front.receive(Frame(Kind.LAST, number, b""))
    with pytest.raises(LinkBroken):
        front.receive(Frame(Kind.LAST, last, b""))


# the owner


class Here:
    """An application that answers each request with as many bytes as its body says.

    Attributes:
        status: of its responses.
    """

    is_leaving = False
    passes_on = True
    status = 200

    def __init__(self) -> None:
        self.served = 0

    def has_session(self, session_id: str) -> bool:
        return session_id == "known"

    async def serve_forwarded(self, incoming: AuthorizedRequest) -> Response:
        await trio.lowlevel.checkpoint()
        self.served += 1
        return KnownResponse(self.status, b"x" * int(incoming.request.body.whole or b"0"))


@asynccontextmanager
async def owner(here: Here) -> AsyncIterator[trio.SocketStream]:
    """The far end of a link to an owner."""
    async with owner_and_link(here) as (_, stream):
        yield stream


@asynccontextmanager
async def owner_and_link(here: Here) -> AsyncIterator[tuple[Owner, trio.SocketStream]]:
    """An owner, and the far end of a link to it."""
    ours, theirs = trio.socket.socketpair()
    async with trio.open_nursery() as nursery:
        served = Owner(trio.SocketStream(theirs), BODY, here, nursery)
        nursery.start_soon(run_logged, served.link)
        with trio.fail_after(5):
            yield served, trio.SocketStream(ours)
        nursery.cancel_scope.cancel()
    ours.close()


def asked(number: int, body: bytes = b"1", *, session: str | None = None, begins: bool = True) -> bytes:
    """The frame of a request for as many bytes as its body says."""
    sent = request({} if session is None else {"mcp-session-id": session}, body=body)
    return encode(Kind.REQUEST, number, encoded_request(sent, "n", begins=begins))


async def frames_of(stream: trio.SocketStream, until: Kind) -> list[Frame]:
    """Return the frames that come up to the first one of a kind, or to the end."""
    reader, found = FrameReader(LIMITS_OF_OWNER), list[Frame]()
    while not found or found[-1].kind is not until:
        data = await stream.receive_some(65536)
        if not data:
            return found
        found += reader.feed(bytes(data))
    return found


async def test_an_owner_sends_no_more_than_the_window_until_it_widens() -> None:
    async with owner(Here()) as stream:
        await stream.send_all(asked(1, b"600000"))
        got = 0
        reader = FrameReader(LIMITS_OF_OWNER)
        while got < WINDOW_BYTES:
            got += sum(
                len(each.data) for each in reader.feed(await stream.receive_some(65536)) if each.kind is Kind.DATA
            )
        with trio.move_on_after(0.1) as more:
            await stream.receive_some(1)
        assert more.cancelled_caught
        assert got == WINDOW_BYTES
        await stream.send_all(encode(Kind.WINDOW, 1, got.to_bytes(4, "big")))
        rest = await frames_of(stream, Kind.DATA)
        assert rest[0].kind is Kind.DATA


async def test_an_owner_that_finishes_names_the_last_request_that_it_has_read_and_reads_no_further_one() -> None:
    here = Here()
    async with owner_and_link(here) as (served, stream):
        await stream.send_all(asked(1))
        await frames_of(stream, Kind.WHOLE)
        served.refuse_further()
        await stream.send_all(asked(2) + encode(Kind.GONE, 2))
        assert await frames_of(stream, Kind.LAST) == [Frame(Kind.LAST, 1, b"")]
        await trio.testing.wait_all_tasks_blocked()
        assert here.served == 1


@pytest.mark.parametrize(("begins", "served"), [(True, 1), (False, 2)])
async def test_a_request_that_was_given_up_before_it_was_read_is_not_begun(begins: bool, served: int) -> None:
    here = Here()
    async with owner(here) as stream:
        await stream.send_all(asked(1, begins=begins) + encode(Kind.GONE, 1) + asked(2))
        await frames_of(stream, Kind.WHOLE)
        await trio.testing.wait_all_tasks_blocked()
        assert here.served == served


async def test_a_front_that_was_not_accepted_before_the_end_learns_that_nothing_was_read(folder: Path) -> None:
    service: Any = SimpleNamespace(calls=SimpleNamespace(node="n"), on_given_up=[])
    here = Here()
    with trio.fail_after(5), socket.socket(socket.AF_UNIX) as front:
        async with open_links(Workplace(folder, announces=False), service, CrashingStore(Disk()), BODY, here):
            # In the last step of the block: nothing accepts it before the end has begun.
            front.connect(str(socket_path(folder, "n")))
            front.sendall(asked(1))
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(front))
        assert await frames_of(stream, Kind.LAST) == [Frame(Kind.LAST, 0, b"")]
    assert here.served == 0


async def test_what_a_process_that_is_leaving_refuses_is_left_to_another() -> None:
    here = Here()
    here.is_leaving, here.status = True, 503
    async with owner(here) as stream:
        await stream.send_all(asked(1, begins=False))
        assert [each.kind for each in await frames_of(stream, Kind.LEAVING)] == [Kind.LEAVING]


async def test_a_session_that_is_not_here_has_moved_and_nothing_begins_in_a_process_that_leaves() -> None:
    here = Here()
    async with owner(here) as stream:
        await stream.send_all(asked(1, session="other"))
        assert [each.kind for each in await frames_of(stream, Kind.MOVED)] == [Kind.MOVED]
        here.is_leaving = True
        # The sessions of others, too: they end before it has left, and their next process is not known before that.
        for number, session in ((2, "known"), (3, "other")):
            await stream.send_all(asked(number, session=session))
            assert [each.kind for each in await frames_of(stream, Kind.LEAVING)] == [Kind.LEAVING]
        assert here.served == 0
        await stream.send_all(asked(4, session="known", begins=False))
        assert [each.kind for each in await frames_of(stream, Kind.WHOLE)] == [Kind.ACCEPTED, Kind.WHOLE]
        assert here.served == 1


@pytest.mark.parametrize(
    ("size", "kinds"), [(CHUNK, [Kind.WHOLE]), (CHUNK + 1, [Kind.HEAD, Kind.DATA, Kind.DATA, Kind.END])]
)
async def test_a_response_that_fits_into_one_frame_is_one(size: int, kinds: list[Kind]) -> None:
    async with owner(Here()) as stream:
        await stream.send_all(asked(1, b"%d" % size))
        found = await frames_of(stream, kinds[-1])
        assert [each.kind for each in found] == [Kind.ACCEPTED, *kinds]


@pytest.mark.parametrize(
    "data",
    [
        HEADER.pack(Kind.REQUEST, 1, 2**32 - 1),
        HEADER.pack(99, 1, 0),
        HEADER.pack(Kind.GONE, 1, 1),
        encode(Kind.END, 1),
        encode(Kind.GONE, 1),
        asked(2),
        encode(Kind.REQUEST, 1, b"not a request\n"),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
async def test_a_stranger_on_a_link_gets_nothing_but_its_end(data: bytes) -> None:
    here = Here()
    async with owner(here) as stream:
        await stream.send_all(data)
        assert await frames_of(stream, Kind.END) == []
        assert here.served == 0


async def test_a_window_that_is_wider_than_what_was_sent_ends_the_link() -> None:
    async with owner(Here()) as stream:
        await stream.send_all(asked(1, b"600000"))
        await stream.send_all(encode(Kind.WINDOW, 1, (2**32 - 1).to_bytes(4, "big")))
        await frames_of(stream, Kind.END)
        assert await stream.receive_some(1) == b""


async def test_what_a_front_says_of_a_request_that_is_over_is_dropped() -> None:
    here = Here()
    async with owner(here) as stream:
        for number in (1, 2):
            await stream.send_all(asked(number))
            assert (await frames_of(stream, Kind.WHOLE))[-1].number == number
            await stream.send_all(encode(Kind.WINDOW, 1, b"\0\0\0\1") + encode(Kind.GONE, 1))
        assert here.served == 2


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root runs a process as another user")
async def test_a_process_of_another_user_is_known() -> None:
    with trio.socket.socket(trio.socket.AF_UNIX) as listener, trio.fail_after(START):
        await listener.bind(f"\0trio-mcp-{os.getpid()}")
        listener.listen(1)
        connect = f"s = socket.socket(socket.AF_UNIX); s.connect('\\0trio-mcp-{os.getpid()}'); s.recv(1)"
        for user, is_own in ((65534, False), (os.getuid(), True)):
            code = f"import os, socket; os.setuid({user}); {connect}"
            stranger = await trio.lowlevel.open_process([sys.executable, "-I", "-S", "-c", code])
            accepted, _ = await listener.accept()
            with accepted:
                assert is_own_user(accepted) is is_own
            await stranger.wait()


# two processes


class Life:
    """What became of a call.

    Attributes:
        reports: how many it has sent.
    """

    def __init__(self) -> None:
        self.began = trio.Event()
        self.ended = trio.Event()
        self.reports = 0


@asynccontextmanager
async def two(
    folder: Path,
    authenticate: Any = None,
    life: Life | None = None,
    memory: MemoryBudget | None = None,
    elsewhere: Path | None = None,
) -> AsyncIterator[tuple[AsgiPeer, AsgiPeer]]:
    """Two workers that share a store. The second one is on another machine if its folder is `elsewhere`."""
    life = life or Life()
    disk, keys = NoticingDisk(), KeyRing.random()

    def process() -> McpApp:
        store = CrashingStore(disk) if elsewhere is None else NoticingStore(disk)
        options = ServiceOptions(keys=keys, store=store, memory=memory or MemoryBudget())
        server = Server("pair", version="1", options=options, http=HttpOptions(authenticate=authenticate))

        @server.tool
        async def order(ctx: Context) -> str:
            answer = await ctx.elicit("Really?", bool)
            caller = ctx.caller
            who = None if caller is None else [caller.principal, sorted(caller.scopes), caller.claims]
            return json.dumps([answer.action, who])

        @server.tool
        async def stay(ctx: Context) -> None:
            """Ask, and wait until it is cancelled."""
            await ctx.elicit("Really?", bool)
            life.began.set()
            try:
                await trio.sleep_forever()
            finally:
                life.ended.set()

        @server.tool
        async def tell(ctx: Context) -> str:
            """Ask, and report many times."""
            await ctx.elicit("Really?", bool)
            for life.reports in range(1, EVENTS + 1):
                await ctx.progress(life.reports, EVENTS)
                life.began.set()
            return "over"

        return asgi_app(server)

    token = WORKPLACE.set(Workplace(folder, announces=False))
    try:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(served(process()))
            WORKPLACE.set(Workplace(elsewhere or folder, announces=False))
            second = await stack.enter_async_context(served(process()))
            yield first, second
    finally:
        WORKPLACE.reset(token)


async def by_token(headers: Mapping[str, str]) -> Caller | None:
    await trio.lowlevel.checkpoint()
    name = headers.get("authorization")
    return None if name is None else Caller(name, ["books:read"], {"team": "blue"})


YES = {"action": "accept", "content": {"value": True}}


def leg(asked: dict[str, Any], tool: str = "order", **more: Any) -> tuple[dict[str, Any], dict[str, str]]:
    answers = dict.fromkeys(asked["inputRequests"], YES)
    return modern_call(tool, requestState=asked["requestState"], inputResponses=answers, **more)


async def parked(peer: AsgiPeer, tool: str) -> dict[str, Any]:
    """Call a tool that asks; return the result."""
    body, headers = modern_call(tool)
    asked: dict[str, Any] = (await peer.post(body, headers)).json["result"]
    return asked


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("w")


async def test_a_parked_call_goes_on_where_it_is_parked_with_the_caller_of_the_front(folder: Path) -> None:
    async with two(folder, by_token) as (first, second):
        body, headers = modern_call("order")
        ada = {"authorization": "ada"}
        asked = (await first.post(body, {**headers, **ada})).json["result"]
        body, headers = leg(asked)
        reply = await second.post(body, {**headers, **ada})
        said = json.loads(reply.json["result"]["content"][0]["text"])
        assert said == ["accept", ["ada", ["books:read"], {"team": "blue"}]]


@pytest.mark.parametrize("is_ending", [False, True])
async def test_a_call_that_waits_in_a_worker_that_is_replaced_goes_on_there_and_all_end_together_without_it(
    folder: Path, is_ending: bool
) -> None:
    async with two(folder) as (first, second), trio.open_nursery() as nursery:
        asked = await parked(first, "order")
        if is_ending:
            Workplace(folder, announces=False).note_ending()
        nursery.start_soon(first.app.drain, 5.0)
        await trio.testing.wait_all_tasks_blocked()
        body, headers = leg(asked)
        if is_ending:
            assert first.app.service.supervisor.statistics().parked == 0
        else:
            reply = await second.post(body, headers)
            assert json.loads(reply.json["result"]["content"][0]["text"])[0] == "accept"


async def test_the_state_of_another_caller_is_refused_through_a_link_as_without(folder: Path) -> None:
    async with two(folder, by_token) as (first, second):
        body, headers = modern_call("order")
        asked = (await first.post(body, {**headers, "authorization": "ada"})).json["result"]
        body, headers = leg(asked)
        replies = [await each.post(body, {**headers, "authorization": "eve"}) for each in (first, second)]
        here, there = [(each.status, each.json["error"]) for each in replies]
        assert here == there
        assert here[1]["code"] == INVALID_PARAMS


async def test_sockets_are_for_their_user_alone_and_gone_at_the_end(folder: Path) -> None:
    async with two(folder) as (first, second):
        paths = [socket_path(folder, each.app.service.calls.node) for each in (first, second)]
        assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
    assert [path for path in paths if path.exists()] == []


async def test_a_client_that_leaves_the_front_cancels_its_modern_call_at_the_owner(folder: Path) -> None:
    life = Life()
    async with two(folder, life=life) as (first, second):
        body, headers = leg(await parked(first, "stay"), "stay")
        reply = second.start(body, headers)
        with trio.fail_after(START):
            await life.began.wait()
            reply.gone.set()
            await life.ended.wait()


@asynccontextmanager
async def fronting(folder: Path, peer: AsgiPeer) -> AsyncIterator[trio.SocketStream]:
    """A link to the process of a peer, as another process has it."""
    stream = await trio.open_unix_socket(str(socket_path(folder, peer.app.service.calls.node)))
    async with stream:
        yield stream


def passed_on(body: object, headers: Mapping[str, str]) -> bytes:
    """The frame of a request."""
    sent = Request("POST", "/mcp", headers, Body(json.dumps(body).encode()), connection="front 1")
    return encode(Kind.REQUEST, 1, encoded_request(AuthorizedRequest(sent, Peer(None, headers)), "front", begins=True))


async def test_a_front_that_ends_cancels_the_modern_calls_that_it_has_passed_on(folder: Path) -> None:
    life = Life()
    async with two(folder, life=life) as (first, _):
        asked = await parked(first, "stay")
        with trio.fail_after(START):
            async with fronting(folder, first) as stream:
                await stream.send_all(passed_on(*leg(asked, "stay")))
                await life.began.wait()
            await life.ended.wait()


async def test_a_legacy_call_goes_on_when_its_front_ends(folder: Path) -> None:
    async with two(folder) as (first, second):
        headers = await first.open_session()
        with trio.fail_after(START):
            async with fronting(folder, first) as stream:
                await stream.send_all(passed_on(legacy_call("order", id=7), headers))
                events = b""
                while b"elicitation/create" not in events:
                    events += b"".join(each.data for each in await frames_of(stream, Kind.DATA))
        question = json.loads(
            events.partition(b"elicitation/create")[0].rpartition(b"data: ")[2].split(b",")[1].partition(b":")[2]
        )
        last = events.rpartition(b"id: ")[2].split(b"\n")[0].decode()
        resumed = second.start({}, {**headers, "last-event-id": last}, method="GET", sends_body=False)
        answer = {"jsonrpc": "2.0", "id": question, "result": YES}
        assert (await second.post(answer, headers)).status == 202
        assert (await resumed.end()).events[-1]["id"] == 7


async def test_of_two_that_resume_a_stream_at_two_workers_the_later_one_has_it(folder: Path) -> None:
    async with two(folder) as (first, second):
        headers = await first.open_session()
        called = first.start(legacy_call("order", id=7), headers)
        await called.until("elicitation/create")
        resuming = {**headers, "last-event-id": called.ids[-1]}
        called.gone.set()
        earlier, later = [], []
        for peer in (second, first, second):
            earlier += later
            later = [peer.start({}, resuming, method="GET", sends_body=False)]
            await trio.testing.wait_all_tasks_blocked(cushion=0.05)
        answer = {"jsonrpc": "2.0", "id": called.events[-1]["id"], "result": YES}
        assert (await second.post(answer, headers)).status == 202
        assert (await later[0].end()).events[-1]["id"] == 7
        for each in earlier:
            assert (await each.end()).events == []


async def test_a_reader_that_stops_at_the_front_slows_the_call_down_and_misses_nothing(folder: Path) -> None:
    life = Life()
    async with two(folder, life=life) as (first, second):
        body, headers = leg(await parked(first, "tell"), "tell", meta={"progressToken": 1})
        reply = second.start(body, headers)
        reply.stuck = trio.Event()
        with trio.fail_after(2 * START):
            await life.began.wait()
            await trio.testing.wait_all_tasks_blocked(cushion=0.05)
            assert 0 < life.reports < EVENTS // 2
            reply.stuck.set()
            reply = await reply.end(seconds=2 * START)
        *reports, answer = reply.events
        assert [each["params"]["progress"] for each in reports] == [*range(1, EVENTS + 1)]
        assert answer["result"]["content"][0]["text"] == "over"


class FailingOwner:
    """Listens in the place of an owner, and closes each link when a frame comes on it, unless it hangs.

    Attributes:
        kinds: of the frames that came.
    """

    def __init__(self, folder: Path, peer: AsgiPeer, *, hangs: bool = False) -> None:
        self.path = socket_path(folder, peer.app.service.calls.node)
        self.kinds: list[Kind] = []
        self._hangs = hangs

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        self.path.unlink()
        with trio.socket.socket(trio.socket.AF_UNIX) as sock:
            await sock.bind(str(self.path))
            sock.listen(1)
            task_status.started()
            while True:
                accepted, _ = await sock.accept()
                with accepted:
                    reader, before = FrameReader(limits_of_front(BODY * BODY)), len(self.kinds)
                    while self._hangs or len(self.kinds) == before:
                        self.kinds += [frame.kind for frame in reader.feed(await accepted.recv(65536))]


async def came(owner: FailingOwner, kinds: list[Kind]) -> None:
    with trio.fail_after(START):
        while owner.kinds != kinds:
            await trio.lowlevel.checkpoint()


async def test_requests_that_wait_for_an_owner_that_hangs_draw_from_the_memory_budget(folder: Path) -> None:
    memory = MemoryBudget(8 * 1024 * 1024)
    async with two(folder, memory=memory) as (first, second), trio.open_nursery() as nursery:
        asked = await parked(first, "order")
        hanging = FailingOwner(folder, first, hangs=True)
        await nursery.start(hanging.run)
        before = memory.drawn
        body, headers = leg(asked, meta={"x": "x" * 500_000})
        for number in range(1, 6):
            second.start(body, headers)
            await came(hanging, [Kind.REQUEST] * number)
            assert memory.drawn - before > number * 500_000
        more = [second.start(body, headers) for _ in range(16)]
        with trio.fail_after(START):
            while not any(each.ended.is_set() for each in more):
                await trio.lowlevel.checkpoint()
        assert {each.status for each in more if each.ended.is_set()} == {503}
        nursery.cancel_scope.cancel()


async def test_an_owner_that_hangs_learns_that_a_client_has_left_that_waited_for_it(folder: Path) -> None:
    async with two(folder) as (first, second), trio.open_nursery() as nursery:
        body, headers = leg(await parked(first, "order"))
        hanging = FailingOwner(folder, first, hangs=True)
        await nursery.start(hanging.run)

        async def leave(work: Coroutine[Any, Any, Any], scope: trio.CancelScope) -> Any:
            scope.cancel()
            return await work

        sent = Request("POST", "/mcp", headers, Body(json.dumps(body).encode()), connection="c", watch=leave)
        response = await second.app.respond(sent)
        assert isinstance(response, KnownResponse)
        assert response.status == 503
        await came(hanging, [Kind.REQUEST, Kind.GONE])
        # Its connection is cut.
        async with trio.open_nursery() as connection:
            connection.start_soon(second.app.respond, Request("POST", "/mcp", headers, sent.body, connection="c"))
            await came(hanging, [Kind.REQUEST, Kind.GONE, Kind.REQUEST])
            connection.cancel_scope.cancel()
        await came(hanging, [Kind.REQUEST, Kind.GONE] * 2)
        nursery.cancel_scope.cancel()


async def test_a_request_whose_owner_ends_before_it_accepts_is_sent_again_only_if_it_may_come_twice(
    folder: Path,
) -> None:
    async with two(folder) as (first, second), trio.open_nursery() as nursery:
        asked, headers = await parked(first, "order"), await first.open_session()
        dying = FailingOwner(folder, first)
        await nursery.start(dying.run)
        with trio.fail_after(START):
            lost = await second.post(legacy_call("order"), headers)
            assert (lost.status, lost.headers["retry-after"], dying.kinds) == (503, "1", [Kind.REQUEST])
            # The call is parked in a process that lives, which cannot be reached.
            away = await second.post(*leg(asked))
            assert (away.status, away.headers["retry-after"]) == (503, "1")
            assert len(dying.kinds) > 2
            assert {*dying.kinds} == {Kind.REQUEST}
        nursery.cancel_scope.cancel()


async def test_a_process_of_another_machine_releases_a_session_at_rest_and_nothing_that_it_runs(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with two(folder, elsewhere=tmp_path_factory.mktemp("e")) as (first, second):
        asked, headers = await parked(first, "order"), await first.open_session()
        assert (await second.post(legacy_call("none"), headers)).status == 200
        call = second.start(legacy_call("order"), headers)
        await call.until("elicitation/create")
        for refused in (await second.post(*leg(asked)), await first.post(legacy_call("none", id=3), headers)):
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        call.gone.set()
