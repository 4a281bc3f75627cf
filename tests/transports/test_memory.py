"""The memory transport: two ends in one process."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from trio_mcp import Client, HttpOptions, PeerError, Server, proxy
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.http import HttpLimits
from trio_mcp.protocol.json_limits import held_size
from trio_mcp.protocol.jsonrpc import Encoded, Malformed, Message, Notification, Request, Response, dump
from trio_mcp.session import ChannelServer, Envelope
from trio_mcp_transports.entry_points import memory as transport
from trio_mcp_transports.memory import memory_pair


class Echo:
    """A server that gives every request its params back, and takes its time to clean up."""

    def __init__(self, clean_up: float = 0) -> None:
        self.clean_up = clean_up
        self.ended: str | None = None

    async def serve_channel(self, channel: trio.abc.Channel[Envelope]) -> None:
        try:
            async for envelope in channel:
                match envelope.message:
                    case Request(id, "fail"):
                        raise LookupError(id)
                    case Request(id, _, params):
                        await channel.send(Envelope(Response(id, params), about=id))
                    case _:
                        pass
            await trio.sleep(self.clean_up)
            self.ended = "returned"
        except trio.Cancelled:
            self.ended = "cancelled"
            raise


def arrived(message: Message) -> Envelope:
    """What the other end receives of it: from an anonymous peer, and as large as it was on the way."""
    return Envelope(message, size=held_size(dump(message)))


async def test_a_message_crosses_as_bytes_so_what_is_not_json_is_refused() -> None:
    a, _ = memory_pair()
    with pytest.raises(ValueError):
        await a.send(Envelope(Notification("note", {"x": float("inf")})))


async def test_a_message_crosses_as_bytes_so_limits_hold() -> None:
    a, b = memory_pair()
    await a.send(Envelope(Notification("note", Encoded(b'{"x":' + b"[" * 100 + b"]" * 100 + b"}"))))
    assert isinstance((await b.receive()).message, Malformed)


MIB = 1024 * 1024


def sized(size: int) -> Envelope:
    return Envelope(Notification("note", Encoded(b'{"x":"%b"}' % (b"y" * size))))


def counted(values: int) -> Envelope:
    return Envelope(Notification("note", Encoded(b'{"x":[%b0]}' % (b"0," * values))))


@pytest.mark.parametrize(
    ("within", "over"), [(sized(5 * MIB), sized(16 * MIB)), (counted(200_000), counted(1_000_000))]
)
async def test_each_end_has_the_limits_that_it_has_on_other_wires(within: Envelope, over: Envelope) -> None:
    client, server = memory_pair()
    for sender, envelope in ((server, within), (server, over), (client, within), (client, sized(3 * MIB))):
        await sender.send(envelope)
    assert [isinstance((await client.receive()).message, Malformed) for _ in range(2)] == [False, True]
    assert [isinstance((await server.receive()).message, Malformed) for _ in range(2)] == [True, False]


def echoing(http: HttpOptions | None = None) -> Server:
    server = Server("echoing", http=http)

    @server.tool
    async def make(size: int) -> str:
        return "y" * size

    @server.tool
    async def count(text: str) -> int:
        return len(text)

    return server


@pytest.mark.parametrize("way", ["alone", "behind a proxy", "behind a mounted proxy"])
async def test_a_large_result_of_a_server_in_this_process_arrives(way: str) -> None:
    outer = Server("outer")
    outer.mount("p", proxy(echoing()))
    targets: dict[str, ChannelServer] = {
        "alone": echoing(),
        "behind a proxy": proxy(echoing()),
        "behind a mounted proxy": outer,
    }
    name = "p_make" if targets[way] is outer else "make"
    async with Client.connect(targets[way]) as client:
        assert len((await client.call_tool(name, {"size": 5 * MIB})).text) == 5 * MIB


async def test_the_limit_of_a_message_to_the_client_may_be_set() -> None:
    async with Client.connect(echoing(), max_message=100_000) as client:
        with pytest.raises(RemoteProtocolError, match="100000"):
            await client.call_tool("make", {"size": 100_000})
        assert len((await client.call_tool("make", {"size": 10})).text) == 10


async def test_a_server_in_this_process_has_the_limits_that_it_sets_over_http() -> None:
    large = {"text": "y" * 5 * MIB}
    async with Client.connect(echoing()) as client:
        with pytest.raises(PeerError, match=str(4 * MIB)):
            await client.call_tool("count", large)
    limits = HttpLimits(body=6 * MIB, values=50)
    async with Client.connect(echoing(HttpOptions(limits=limits))) as client:
        assert (await client.call_tool("count", large)).text == str(5 * MIB)
        with pytest.raises(PeerError, match="50"):
            await client.call_tool("count", {"text": "y", "more": [0] * 50})


async def test_a_sender_waits_when_it_is_a_buffer_ahead() -> None:
    a, b = memory_pair(buffer=2)
    for _ in range(2):
        await a.send(Envelope(Notification("note")))
    with trio.move_on_after(1) as scope:
        await a.send(Envelope(Notification("note")))
    assert scope.cancelled_caught
    await b.receive()
    await a.send(Envelope(Notification("note")))


async def test_closing_one_end_ends_the_other_after_what_was_sent() -> None:
    a, b = memory_pair()
    await a.send(Envelope(Notification("last")))
    await a.aclose()
    assert arrived(Notification("last")) == await b.receive()
    with pytest.raises(trio.EndOfChannel):
        await b.receive()
    with pytest.raises(trio.BrokenResourceError):
        await b.send(Envelope(Notification("late")))
    with pytest.raises(trio.ClosedResourceError):
        await a.receive()
    with pytest.raises(trio.ClosedResourceError):
        await a.send(Envelope(Notification("late")))


async def test_a_server_that_does_not_return_is_cancelled_after_the_grace() -> None:
    server = Echo(clean_up=3600)
    async with transport.connect(server, shutdown_grace=2):
        pass
    assert server.ended == "cancelled"
    assert trio.current_time() == pytest.approx(2)


async def test_an_exception_in_the_body_leaves_unwrapped_and_with_its_cause() -> None:
    cause = KeyError("cause")
    with pytest.raises(LookupError, match="mine") as caught:
        async with transport.connect(Echo()):
            raise LookupError("mine") from cause
    assert caught.value.__cause__ is cause


async def test_an_exception_in_the_server_cancels_the_body_and_leaves_unwrapped() -> None:
    with pytest.raises(LookupError, match="7"):  # noqa: PT012
        async with transport.connect(Echo()) as channel:
            await channel.send(Envelope(Request(7, "fail")))
            await trio.sleep_forever()


async def test_a_server_that_returns_early_ends_the_channel() -> None:
    class Refuses:
        async def serve_channel(self, channel: trio.abc.Channel[Envelope]) -> None:
            await trio.lowlevel.checkpoint()

    async with transport.connect(Refuses()) as channel:
        with pytest.raises(trio.EndOfChannel):
            await channel.receive()


async def test_a_cancelled_body_ends_the_server() -> None:
    server = Echo()
    with trio.move_on_after(1) as scope:
        async with transport.connect(server) as channel:
            await channel.receive()
    assert scope.cancelled_caught
    assert server.ended is not None
    assert trio.current_time() == pytest.approx(1)


async def test_serve_serves_a_channel_until_it_ends() -> None:
    a, b = memory_pair()
    server = Echo()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def serve() -> None:
            await transport.serve(server, channel=b)

        await a.send(Envelope(Request(1, "echo")))
        assert arrived(Response(1, {})) == await a.receive()
        await a.aclose()
    assert server.ended == "returned"


async def test_the_repr_shows_what_waits() -> None:
    a, b = memory_pair()
    await a.send(Envelope(Notification("note")))
    assert repr(b) == "<MemoryChannel: 1 waiting>"
