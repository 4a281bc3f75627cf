"""The memory transport: two ends in one process."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing
from peer import arrived, data_of, is_malformed, json_of, message_of

from trio_mcp import Client, HttpOptions, PeerError, Server, proxy
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.http import HttpLimits
from trio_mcp.session import ChannelServer, Envelope
from trio_mcp_transports.entry_points import memory as transport
from trio_mcp_transports.memory import memory_pair


class Echo:
    """A server that answers every request, and takes its time to clean up."""

    def __init__(self, clean_up: float = 0) -> None:
        self.clean_up = clean_up
        self.ended: str | None = None

    async def serve_channel(self, channel: trio.abc.Channel[Envelope]) -> None:
        try:
            async for envelope in channel:
                message = json_of(envelope.message)
                if message["method"] == "fail":
                    raise LookupError(message["id"])
                await channel.send(Envelope(message_of({"id": message["id"], "result": {}}), about=message["id"]))
            await trio.sleep(self.clean_up)
            self.ended = "returned"
        except trio.Cancelled:
            self.ended = "cancelled"
            raise


NOTE = message_of({"method": "note"})


def noting(x: object) -> Envelope:
    return Envelope(NOTE._replace(params={"x": x}))


async def test_a_message_crosses_as_bytes_so_what_is_not_json_is_refused() -> None:
    a, _ = memory_pair()
    with pytest.raises(ValueError):
        await a.send(noting(float("inf")))


async def test_a_message_crosses_as_bytes_so_limits_hold() -> None:
    a, b = memory_pair()
    await a.send(noting(json.loads(b"[" * 100 + b"]" * 100)))
    assert is_malformed((await b.receive()).message)


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("within", "over"), [("y" * 5 * MIB, "y" * 16 * MIB), ([0] * 200_000, [0] * 1_000_000)], ids=["bytes", "values"]
)
async def test_each_end_has_the_limits_that_it_has_on_other_wires(within: object, over: object) -> None:
    client, server = memory_pair()
    for sender, x in ((server, within), (server, over), (client, within), (client, "y" * 3 * MIB)):
        await sender.send(noting(x))
    assert [is_malformed((await client.receive()).message) for _ in range(2)] == [False, True]
    assert [is_malformed((await server.receive()).message) for _ in range(2)] == [True, False]


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
        await a.send(Envelope(NOTE))
    with trio.move_on_after(1) as scope:
        await a.send(Envelope(NOTE))
    assert scope.cancelled_caught
    await b.receive()
    await a.send(Envelope(NOTE))


async def test_closing_one_end_ends_the_other_after_what_was_sent() -> None:
    a, b = memory_pair()
    await a.send(Envelope(NOTE))
    await a.aclose()
    assert arrived(data_of(NOTE)) == await b.receive()
    with pytest.raises(trio.EndOfChannel):
        await b.receive()
    with pytest.raises(trio.BrokenResourceError):
        await b.send(Envelope(NOTE))
    with pytest.raises(trio.ClosedResourceError):
        await a.receive()
    with pytest.raises(trio.ClosedResourceError):
        await a.send(Envelope(NOTE))


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
            await channel.send(Envelope(message_of({"id": 7, "method": "fail"})))
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

        await a.send(Envelope(message_of({"id": 1, "method": "echo"})))
        assert arrived(b'{"jsonrpc":"2.0","id":1,"result":{}}') == await a.receive()
        await a.aclose()
    assert server.ended == "returned"


async def test_the_repr_shows_what_waits() -> None:
    a, b = memory_pair()
    await a.send(Envelope(NOTE))
    assert repr(b) == "<MemoryChannel: 1 waiting>"
