"""The client's end of a WebSocket, against servers that behave and servers that do not."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio_websocket
from hypercorn_peer import Client as Bytes, listening
from naming import naming
from peer import data_of, is_malformed, json_of, message_of
from stage import Stage
from trio.testing import wait_all_tasks_blocked
from websocket_peer import SOON, served
from wsproto.utilities import generate_accept_token

from trio_mcp import Client, Disconnected, Server
from trio_mcp.errors import RequestRejected, ServerBusy
from trio_mcp.session import Envelope
from trio_mcp_transports.http import HttpLimits, asgi_app
from trio_mcp_transports.hypercorn.config import guarded_config
from trio_mcp_transports.hypercorn.serve import serve_asgi
from trio_mcp_transports.websocket.client import INBOX, WebSocketChannel, connect

LIMIT = 60.0
A_PING = message_of({"id": 1, "method": "ping"})
PING = data_of(A_PING).decode()

Behave = Callable[[trio_websocket.WebSocketConnection], Awaitable[None]]


@asynccontextmanager
async def behaving(behave: Behave, **options: Any) -> AsyncIterator[str]:
    """The URL of a server that accepts each WebSocket and then behaves like this."""

    async def handle(request: trio_websocket.WebSocketRequest) -> None:
        await behave(await request.accept(subprotocol="mcp"))

    async with started(
        partial(trio_websocket.serve_websocket, handle, "127.0.0.1", 0, ssl_context=None, **options)
    ) as server:
        yield f"ws://127.0.0.1:{server.port}/mcp"


@asynccontextmanager
async def answering(answer: Callable[[Bytes, str], Awaitable[None]]) -> AsyncIterator[str]:
    """The URL of a server that reads the head of a request and then answers in bytes; it is given the key of the request."""

    async def handle(client: Bytes) -> None:
        head = (await client.until(b"\r\n\r\n")).decode("latin-1")
        await answer(client, re.search("(?i)sec-websocket-key: (.*)\r", head)[1])  # type: ignore[index]

    with trio.fail_after(LIMIT):
        async with listening(handle) as address:
            yield f"ws://{address}/mcp"


@asynccontextmanager
async def started(serve: Callable[..., Awaitable[Any]]) -> AsyncIterator[Any]:
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            yield await nursery.start(serve)
            nursery.cancel_scope.cancel()


async def forever(*_connection: object) -> None:
    await trio.sleep_forever()


async def until_closed(socket: trio_websocket.WebSocketConnection) -> None:
    try:
        while True:
            await socket.get_message()
    except trio_websocket.ConnectionClosed:
        pass


@asynccontextmanager
async def met(
    server: Mapping[str, int] | None = None, **options: Any
) -> AsyncIterator[tuple[WebSocketChannel, trio_websocket.WebSocketConnection]]:
    """Our client's end of a WebSocket, and that of a server which the test plays itself."""
    sends, receives = trio.open_memory_channel[trio_websocket.WebSocketConnection](1)

    async def give(socket: trio_websocket.WebSocketConnection) -> None:
        sends.send_nowait(socket)
        await trio.sleep_forever()

    async with behaving(give, **(server or {})) as url, connect(url, **options) as channel:
        yield channel, await receives.receive()


async def close_code(socket: trio_websocket.WebSocketConnection) -> int:
    """Wait until the client closes; the code that it gives."""
    await until_closed(socket)
    assert socket.closed is not None
    return int(socket.closed.code)


async def refusal_of(url: str, **options: Any) -> str:
    with pytest.raises(Disconnected) as caught:
        async with connect(url, **options):
            pass
    assert str(caught.value).startswith(f"{url}: ")
    return str(caught.value).removeprefix(f"{url}: ")


# connecting


async def test_headers_are_sent_and_the_server_may_ask_for_them() -> None:
    async def who(headers: Any) -> str | None:
        return "ada" if headers.get("authorization") == "Bearer ada" else None

    async with served(Server("private"), authenticate=who) as url:
        said = await refusal_of(url)
        assert said.startswith("the server answered HTTP 401: This server must know who calls")
        async with Client.connect(url, headers={"authorization": "Bearer ada"}) as client:
            await client.list_tools()


ACCEPTED = b"HTTP/1.1 101 ok\r\nconnection: upgrade\r\nupgrade: websocket\r\n%bsec-websocket-accept: KEY\r\n\r\n"


def to(key: str, answer: bytes = ACCEPTED % b"sec-websocket-protocol: mcp\r\n") -> bytes:
    """An answer to the upgrade that has this key."""
    return answer.replace(b"KEY", generate_accept_token(key.encode()))


REFUSALS = [
    (b"HTTP/1.1 500 Oops\r\ncontent-length: 9\r\n\r\nnot  now\n", "the server answered HTTP 500: not now"),
    (b"HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n", "the server answered HTTP 302"),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", "the server answered HTTP 200: ok"),
    (b"", "it closed the connection before it had answered the upgrade"),
    (b"SSH-2.0-OpenSSH\r\n\r\n", "the connection failed: "),
    (b"HTTP/1.1 500 Oops\r\n\r\n" + b"x" * 200_000, "it closed the connection before it had answered the upgrade"),
    (ACCEPTED % b"", "it does not speak the subprotocol mcp"),
    (ACCEPTED % b"sec-websocket-protocol: chat\r\n", ".*unrecognized subprotocol"),
]


@pytest.mark.parametrize(("answer", "said"), REFUSALS)
async def test_a_refused_upgrade_is_reported_with_its_status_and_text(answer: bytes, said: str) -> None:
    async def refuse(client: Bytes, key: str) -> None:
        with suppress(trio.BrokenResourceError):
            await client.send(to(key, answer))

    async with answering(refuse) as url:
        assert re.match(said, await refusal_of(url))


@pytest.mark.parametrize(
    ("status", "header", "expected"),
    [(503, b"retry-after: 7\r\n", 7), (429, b"", None), (503, b"retry-after: soon\r\n", None)],
)
async def test_a_busy_server_is_an_error_with_its_status_and_how_long_to_wait(
    status: int, header: bytes, expected: float | None
) -> None:
    async def refuse(client: Bytes, key: str) -> None:
        await client.send(b"HTTP/1.1 %d Busy\r\n%bcontent-length: 9\r\n\r\nnot  now\n" % (status, header))

    async with answering(refuse) as url:
        with pytest.raises(ServerBusy, match="not now") as caught:
            async with connect(url):
                pass
        assert (caught.value.status, caught.value.retry_after) == (status, expected)
        with pytest.raises(ServerBusy) as caught:
            await Client.connect(url).open()
        assert caught.value.status == status


async def test_a_busy_server_is_waited_for() -> None:
    refused: list[str] = []

    async def refuse_once(client: Bytes, key: str) -> None:
        refused.append(key)
        if len(refused) == 1:
            await client.send(b"HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n")
        else:
            await client.send(b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n")

    async with answering(refuse_once) as url:
        with pytest.raises(Disconnected, match="500"):
            await Client.connect(url, wait_if_busy=30).open()
    assert len(refused) == 2


async def test_a_server_that_does_not_answer_the_upgrade_is_given_up_in_time() -> None:
    async with answering(forever) as url:
        assert await refusal_of(url, connect_timeout=0.1) == "it did not open within 0.1 seconds"


@pytest.mark.parametrize(
    "url", ["ws://", "http://127.0.0.1/", "ws://a:b@127.0.0.1/", "ws://127.0.0.1/#x", "ws://127.0.0.1/ä"]
)
async def test_an_invalid_websocket_url_is_a_value_error(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL"):
        async with connect(url):
            pass


# the end


async def ends_with(behave: Behave, said: str) -> None:
    """A client of a server that behaves like this is disconnected, with these words."""
    async with behaving(behave) as url:
        with pytest.raises(Disconnected, match=said):
            await Client.connect(url, mode="legacy").open()


CLOSES = [
    (1000, None, "the server closed the connection (closed with 1000, normal closure)"),
    (1001, "see you", "the server closed the connection (closed with 1001, going away: see you)"),
    (1008, "no", "the connection broke: closed with 1008, policy violation: no"),
    (4001, None, "the connection broke: closed with 4001, private reserved"),
]


@pytest.mark.parametrize(("code", "reason", "said"), CLOSES)
async def test_a_close_ends_the_calls_that_wait_with_its_code_and_reason(
    code: int, reason: str | None, said: str
) -> None:
    async def close(socket: trio_websocket.WebSocketConnection) -> None:
        await socket.get_message()
        await socket.aclose(code, reason)

    await ends_with(close, f"^{re.escape(said)}")


async def test_a_connection_that_is_lost_is_reported_as_lost() -> None:
    async def vanish(socket: trio_websocket.WebSocketConnection) -> None:
        await socket.get_message()
        await socket._stream.aclose()  # noqa: SLF001

    await ends_with(vanish, "the connection was lost")


async def test_what_came_before_the_close_is_received_first() -> None:
    async with met() as (channel, server):
        for _ in range(3):
            await server.send_message(PING)
        await server.aclose(1001, "done")
        while channel.is_open:
            await trio.lowlevel.checkpoint()
        assert [envelope.message async for envelope in channel] == [A_PING] * 3
        assert channel.close_reason == "closed with 1001, going away: done"
        with pytest.raises(trio.BrokenResourceError, match="1001"):
            await channel.send(Envelope(A_PING))


async def test_closing_tells_the_server_and_ends_all_waiting_tasks() -> None:
    async with met() as (channel, server):
        async with trio.open_nursery() as nursery:

            async def receive() -> None:
                with pytest.raises(trio.ClosedResourceError):
                    await channel.receive()

            nursery.start_soon(receive)
            await wait_all_tasks_blocked()
            await channel.aclose()
        assert await close_code(server) == 1000
        with pytest.raises(trio.ClosedResourceError):
            await channel.send(Envelope(A_PING))


# messages


async def test_text_that_is_no_message_is_received_as_malformed_and_the_connection_stays() -> None:
    async with met() as (channel, server):
        await server.send_message("{nonsense")
        await server.send_message(PING)
        assert is_malformed((await channel.receive()).message)
        assert (await channel.receive()).message == A_PING


@pytest.mark.parametrize(("message", "code"), [(b"{}", 1003), ("x" * 1001, 1009), ("é" * 501, 1009)])
async def test_a_server_that_breaks_the_framing_gets_a_close_code(message: bytes | str, code: int) -> None:
    async with met(max_message=1000) as (channel, server):
        await server.send_message(message)
        with pytest.raises(trio.BrokenResourceError, match=str(code)):
            await channel.receive()
        assert await close_code(server) == code


async def test_a_message_that_the_server_finds_too_big_names_its_limit_and_is_not_sent_again() -> None:
    async with served(Stage().server, limits=HttpLimits(body=2000)) as url, Client.connect(url) as client:
        with pytest.raises(RequestRejected, match=naming(1009, "2000 bytes")):
            await client.call_tool("echo", {"text": "x" * 2000})
        assert (await client.call_tool("echo", {"text": "x"})).text == "x"


async def test_a_message_that_is_too_big_ends_no_other_request_that_may_be_sent_again() -> None:
    async with served(Stage().server, limits=HttpLimits(body=2000)) as url, Client.connect(url) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(client.list_tools)
            with pytest.raises(RequestRejected):
                await client.call_tool("echo", {"text": "x" * 2000})


# sending and reading, whatever the other does


def ping(number: int, size: int = 0) -> Envelope:
    return Envelope(message_of({"id": number, "method": "ping", "params": {"x": "x" * size}}))


async def read_until(server: trio_websocket.WebSocketConnection, last: int, ids: list[int]) -> None:
    while last not in ids:
        ids.append(json.loads(await server.get_message())["id"])


async def test_a_cancelled_send_leaves_whole_messages_only() -> None:
    ids: list[int] = []
    async with met({"max_message_size": 10_000_000, "message_queue_size": 0}) as (channel, server):
        for number in range(10):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(channel.send, ping(number, 2_000_000))
                    await wait_all_tasks_blocked(0.01)
                    scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_until, server, 99, ids)
            await channel.send(ping(99))
    assert ids == sorted(ids)  # those that were on their way went out whole, the others not at all
    assert 0 in ids


async def test_a_server_that_does_not_read_is_given_up_after_the_write_deadline() -> None:
    async with met({"message_queue_size": 0}, write_deadline=0.2) as (channel, _server):
        with pytest.raises(trio.BrokenResourceError, match=r"did not read for 0\.2 s"):
            await channel.send_many([ping(number, 2_000_000) for number in range(50)])
        with pytest.raises(trio.BrokenResourceError, match=r"did not read for 0\.2 s"):
            await channel.receive()


async def test_pings_are_answered_and_the_close_is_seen_while_no_task_receives() -> None:
    async with met() as (channel, server):
        for _ in range(INBOX - 1):
            await server.send_message(PING)
        await server.ping()
        await server.aclose(1001, "bye")
        with trio.fail_after(SOON):
            while channel.is_open:
                await wait_all_tasks_blocked()
        assert len([envelope async for envelope in channel]) == INBOX - 1


async def test_unreceived_messages_are_bounded_and_none_is_lost() -> None:
    sent: list[int] = []

    async def flood(socket: trio_websocket.WebSocketConnection) -> None:
        for number in range(2000):
            await socket.send_message(data_of(ping(number, 10_000).message).decode())
            sent.append(number)

    async with behaving(flood) as url, connect(url, max_message=100_000) as channel:
        while (before := len(sent)) == 0 or before != len(sent):
            await wait_all_tasks_blocked(0.05)
        assert len(sent) < 2000
        for number in range(2000):
            assert json_of((await channel.receive()).message)["id"] == number


async def test_a_server_that_pings_and_does_not_read_the_pongs_is_given_up_after_the_write_deadline() -> None:
    async def flood(client: Bytes, key: str) -> None:
        await client.send(to(key))
        with suppress(trio.BrokenResourceError):
            while True:
                await client.send((b"\x89\x7d" + b"x" * 125) * 100)

    async with answering(flood) as url, connect(url, write_deadline=0.2) as channel:
        with trio.fail_after(SOON), pytest.raises(trio.BrokenResourceError, match=r"did not read for 0\.2 s"):
            await channel.receive()


async def test_a_silent_server_is_pinged_and_given_up_when_it_stays_silent() -> None:
    async def freeze(client: Bytes, key: str) -> None:
        await client.send(to(key))
        assert (await client.exactly(2))[0] == 0x89  # a ping
        await trio.sleep_forever()

    async with answering(freeze) as url, connect(url, ping_interval=0.1) as channel:
        with pytest.raises(trio.BrokenResourceError, match=naming("silent", "ping")):
            await channel.receive()


async def test_a_server_that_answers_pings_is_kept() -> None:
    async with met(ping_interval=0.05) as (channel, server):
        with trio.move_on_after(0.5):
            await channel.receive()
        assert channel.is_open
        await server.send_message(PING)
        assert (await channel.receive()).message == A_PING


async def test_one_message_of_endless_empty_fragments_ends_the_connection() -> None:
    async def drip(client: Bytes, key: str) -> None:
        await client.send(to(key) + b"\x01\x00")
        with suppress(trio.BrokenResourceError):
            while True:
                await client.send(b"\x00\x00" * 10_000)

    async with answering(drip) as url, connect(url, max_message=1000) as channel:
        with pytest.raises(trio.BrokenResourceError):
            await channel.receive()


# TLS


@asynccontextmanager
async def secured(server: Server, certificate: Path) -> AsyncIterator[str]:
    config = guarded_config(certfile=str(certificate), keyfile=str(certificate))
    serve = partial(serve_asgi, asgi_app(server), host="localhost", port=0, signals=False, config=config)
    async with started(serve) as (address, *_):
        yield f"wss://localhost:{address.partition(' ')[0].rpartition(':')[2]}/mcp"


async def test_a_wss_url_is_reached_with_a_certificate_that_is_trusted(certificate: Path) -> None:
    context = ssl.create_default_context(cafile=str(certificate))
    async with secured(Stage().server, certificate) as url, Client.connect(url, tls=context) as client:
        text = "long " * 100_000
        assert (await client.call_tool("echo", {"text": text})).text == text
