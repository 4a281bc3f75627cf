"""How a server starts, and how it ends: by signals and by a cancel."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import serving
import trio
from hypercorn_peer import SOON, Client, Served, Server, Told, get, reply

from trio_mcp.session.transport import CannotListen
from trio_mcp_transports.asgi.requests import Request
from trio_mcp_transports.asgi.responses import Response
from trio_mcp_transports.hypercorn.serve import serve_asgi
from trio_mcp_transports.signals import END_SIGNALS

QUICK = 0.3  # seconds of a drain that is meant to run out

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


@dataclass
class ServerChild(Server):
    """The application of `serve_app.py` in a separate process."""

    child: Any = None

    async def said(self, *expected: str) -> None:
        """It says these lines next."""
        assert [(await self.child.line()).decode() for _ in expected] == list(expected)

    async def exit_code(self) -> int:
        return await self.child.end()

    @asynccontextmanager
    async def asked(self, path: str, **options: Any) -> AsyncIterator[Client]:
        """A connection whose request has reached the app."""
        async with self.client(**options) as client:
            await client.send(get(path))
            await self.said(path)
            yield client

    def kill(self, number: int = signal.SIGTERM) -> None:
        self.child.process.send_signal(number)


@asynccontextmanager
async def child(**options: Any) -> AsyncIterator[ServerChild]:
    script = Path(__file__).with_name("serve_app.py")
    async with serving.child(script, json.dumps(options), stderr=subprocess.DEVNULL) as process:
        address = (await process.line()).decode()
        yield ServerChild(port=port_of(address) if ":" in address else 0, child=process)


# By signals


@pytest.mark.parametrize("number", END_SIGNALS)
async def test_a_signal_lets_streams_and_calls_end_in_order_and_the_process_exits_with_0(number: int) -> None:
    async with child() as server, server.asked("/stream") as stream, server.asked("/call") as call:
        server.kill(number)
        await server.said("on_drain", "on_drain done")
        assert (await stream.response())[2] == b"firstlast"
        assert (await call.response())[2] == b"done"
        await server.said("lifespan.shutdown", "returned")
        assert await server.exit_code() == 0


async def test_after_the_signal_nothing_more_is_accepted_and_idle_connections_are_closed() -> None:
    async with child(drain_takes=60) as server, server.client() as idle, server.asked("/hang"):
        await idle.ask(get("/ok"))
        await server.said("/ok")
        server.kill()
        await server.said("on_drain")
        assert await idle.rest() == b""
        with pytest.raises(OSError, match="refused"):
            await server.ask()


async def refuses(server: ServerChild) -> None:
    """Wait until the server accepts no connection."""
    with trio.fail_after(SOON), suppress(OSError):
        while True:
            async with server.client():
                await trio.sleep(0.01)


async def test_the_first_request_of_a_connection_that_was_accepted_before_the_signal_is_answered() -> None:
    async with child() as server, server.client() as new:
        # Accepted after the other one.
        assert await server.ask(get("/ok")) == (200, b"ok")
        await server.said("/ok")
        server.kill()
        await refuses(server)
        assert await new.ask(get("/ok")) == (200, b"ok")
        await server.said("/ok", "on_drain", "on_drain done")
        assert await new.rest() == b""


async def test_a_first_request_that_comes_soon_after_the_drain_has_begun_is_answered() -> None:
    async with child(drain_takes=60) as server, server.client() as new:
        # Accepted after the other one.
        assert await server.ask(get("/ok")) == (200, b"ok")
        await server.said("/ok")
        server.kill()
        await server.said("on_drain")
        assert await new.ask(get("/ok")) == (200, b"ok")
        await server.said("/ok")


async def test_the_app_drains_after_the_body_that_was_on_its_way_at_the_signal_has_come() -> None:
    async with child() as server, server.client() as client:
        await client.send(get("/echo").replace(b"\r\n\r\n", b"\r\ncontent-length: 4\r\n\r\n"))
        await server.said("/echo")
        server.kill()
        await refuses(server)
        await client.send(b"late")
        assert (await client.response())[2] == b"late"
        await server.said("received", "on_drain", "on_drain done")


async def test_the_app_drains_after_it_has_begun_to_respond_to_what_came_before_the_signal() -> None:
    async with child() as server, server.asked("/slow") as client:
        server.kill()
        assert (await client.response())[0] == 200
        await server.said("begun", "on_drain", "on_drain done")


@pytest.mark.parametrize("on_drain", [True, False])
async def test_what_is_still_open_when_the_drain_is_over_is_cut(on_drain: bool) -> None:
    async with child(drain=QUICK, drain_takes=60, on_drain=on_drain) as server, server.asked("/hang") as client:
        server.kill()
        if on_drain:
            await server.said("on_drain")
        await server.said("cancelled /hang", "lifespan.shutdown", "returned")
        assert (await client.response())[0] == 500
        assert await server.exit_code() == 0


async def test_what_is_still_open_soon_after_the_app_has_drained_is_cut() -> None:
    async with child(drain=60) as server, server.asked("/hang"):
        server.kill()
        await server.said("on_drain", "on_drain done", "cancelled /hang", "lifespan.shutdown", "returned")


async def test_the_app_drains_before_its_lifespan_ends_even_without_a_connection() -> None:
    async with child(drain_takes=QUICK) as server:
        server.kill()
        await server.said("on_drain", "on_drain done", "lifespan.shutdown", "returned")
        assert await server.exit_code() == 0


async def test_an_on_drain_that_fails_does_not_stop_the_shutdown() -> None:
    async with child(drain_fails=True) as server, server.asked("/call") as client:
        server.kill()
        await server.said("on_drain", "lifespan.shutdown", "returned")
        assert (await client.response())[2] == b"done"


@pytest.mark.parametrize("number", END_SIGNALS)
async def test_a_second_signal_cuts_at_once(number: int) -> None:
    async with child(drain=60, drain_takes=60) as server, server.asked("/hang"):
        server.kill()
        await server.said("on_drain")
        with trio.fail_after(SOON):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(press_again, server, number)
                await server.said("cancelled /hang", "lifespan.shutdown", "returned")
                nursery.cancel_scope.cancel()
        assert await server.exit_code() == 0


async def press_again(server: ServerChild, number: int) -> None:
    """Send a signal again and again: one that comes right behind the first repeats it."""
    while True:
        await trio.sleep(QUICK)
        server.kill(number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_that_a_wrapper_forwards_as_well_does_not_cut_the_drain(number: int) -> None:
    async with child(drain=60, drain_takes=QUICK) as server, server.asked("/call") as call:
        server.kill()
        await server.said("on_drain")
        server.kill(number)
        await server.said("on_drain done")
        assert (await call.response())[2] == b"done"
        await server.said("lifespan.shutdown", "returned")
        assert await server.exit_code() == 0


async def test_a_signal_ends_an_app_that_is_still_starting() -> None:
    async with child(never_starts=True) as server:
        server.kill()
        await server.exit_code()


# By a cancel


async def handle(request: Request) -> Response:
    if request.path != "/hang":
        return reply()
    response = Told()
    response.body(b"", more=True)
    return response


application = Served(handle)


async def test_a_cancel_ends_everything_at_once_and_leaves_the_signals_as_they_were() -> None:
    before = [signal.getsignal(number) for number in END_SIGNALS]
    with trio.fail_after(SOON):
        async with trio.open_nursery() as nursery:
            (address,) = await nursery.start(partial(serve_asgi, application, port=0))
            async with Server(port=port_of(address)).client() as client:
                await client.send(get("/hang"))
                await client.head()
                nursery.cancel_scope.cancel()
    assert [signal.getsignal(number) for number in END_SIGNALS] == before


def port_of(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


async def test_signals_can_be_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve_asgi, application, port=0, signals=False))
        assert signal.getsignal(signal.SIGTERM) is before
        nursery.cancel_scope.cancel()


def test_outside_the_main_thread_signals_are_not_touched() -> None:
    answers: list[tuple[int, bytes]] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            (address,) = await nursery.start(partial(serve_asgi, application, port=0))
            answers.append(await Server(port=port_of(address)).ask())
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    thread.join(SOON)
    assert answers == [(200, b"ok")]


# Addresses


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[list[str]]:
    async with trio.open_nursery() as nursery:
        yield await nursery.start(partial(serve_asgi, application, signals=False, **options))
        nursery.cancel_scope.cancel()


async def ask(host: str, port: int) -> tuple[int, bytes]:
    with trio.fail_after(SOON):
        stream = await trio.open_tcp_stream(host, port)
        async with stream:
            return await Client(stream).ask()


@pytest.mark.parametrize(("host", "address"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("[::1]", "::1")])
async def test_an_address_of_either_kind_and_a_free_port(host: str, address: str) -> None:
    async with served(host=host, port=0) as addresses:
        shown = f"http://[{address}]" if ":" in address else f"http://{address}"
        assert [each.rsplit(":", 1)[0] for each in addresses] == [shown]
        assert await ask(address, port_of(addresses[0])) == (200, b"ok")


async def test_every_address_of_a_name_has_the_same_port() -> None:
    async with served(host="localhost", port=0) as addresses:
        assert len({port_of(address) for address in addresses}) == 1
        assert await ask("127.0.0.1", port_of(addresses[0])) == (200, b"ok")


async def test_sockets_that_were_bound_elsewhere_are_served_and_closed() -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    sock.setblocking(False)
    async with served(sockets=[sock]) as addresses:
        assert await ask("127.0.0.1", port_of(addresses[0])) == (200, b"ok")
    assert sock.fileno() == -1


async def test_an_address_of_someone_else_is_one_clear_line() -> None:
    with pytest.raises(CannotListen, match=r"cannot listen on 192\.0\.2\.1, port 80"):
        await serve_asgi(application, host="192.0.2.1", port=80)


async def test_an_app_that_fails_to_start_leaves_no_socket_open() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    sock = socket.create_server(("127.0.0.1", 0))
    with pytest.RaisesGroup(Exception, flatten_subgroups=True) as failure:
        await serve_asgi(app, sockets=[sock], signals=False)
    assert "no database" in "".join(traceback.format_exception(failure.value))
    assert sock.fileno() == -1
