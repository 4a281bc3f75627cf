"""An application that gets no lifespan events, because it is mounted in another one, starts at its first request."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from asgi_peer import AsgiPeer, Reply, modern_call, unstarted

from trio_mcp import Context, Server
from trio_mcp_transports.http import McpApp, asgi_app
from trio_mcp_transports.http.server.lifespan import RESTART_DELAY

Events = list[str]


class Broken(Exception):
    pass


def mounted(events: Events, *failures: Exception, crash: trio.Event | None = None) -> McpApp:
    """An application whose lifespan fails that often at its start, and while serving after the event."""
    left = list(failures)

    async def crashing() -> None:
        assert crash is not None
        await crash.wait()
        raise Broken

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        events.append("start")
        await trio.lowlevel.checkpoint()
        if left:
            raise left.pop()
        async with trio.open_nursery() as nursery:
            if crash is not None:
                nursery.start_soon(crashing)
            yield "state"
        events.append("end")

    server = Server("shop", lifespan=lifespan)

    @server.tool
    async def state(ctx: Context[str]) -> str:
        return ctx.state

    return asgi_app(server)


async def call(peer: AsgiPeer) -> Reply:
    message, headers = modern_call("state")
    return await peer.post(message, headers)


async def test_requests_that_come_together_share_the_start() -> None:
    events: Events = []
    async with unstarted(mounted(events)) as peer, trio.open_nursery() as nursery:
        replies: list[Reply] = []

        async def ask() -> None:
            replies.append(await call(peer))

        for _ in range(3):
            nursery.start_soon(ask)
    assert [reply.status for reply in replies] == [200] * 3
    assert events == ["start"]


async def test_a_failed_start_answers_503_and_is_tried_again_after_a_delay(caplog: pytest.LogCaptureFixture) -> None:
    events: Events = []
    async with unstarted(mounted(events, Broken("no database"))) as peer:
        for _ in range(2):
            refused = await call(peer)
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            assert "no database" not in refused.json["error"]["message"]
        assert events == ["start"]
        (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], Broken)
        await trio.sleep(RESTART_DELAY)
        assert (await call(peer)).status == 200


async def test_a_lifespan_that_fails_while_serving_ends_the_application() -> None:
    events: Events = []
    crash = trio.Event()
    app = mounted(events, crash=crash)
    async with unstarted(app) as peer:
        assert (await call(peer)).status == 200
        crash.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (await call(peer)).status == 503
        assert app.failure is not None


async def test_a_foreign_page_does_not_start_it() -> None:
    events: Events = []
    async with unstarted(mounted(events)) as peer:
        message, headers = modern_call("state")
        reply = await peer.post(message, {**headers, "host": "evil.example"})
        assert reply.status in (403, 421)
        assert (await peer.post(message, headers, path="/other")).status == 404
    assert events == []


async def test_its_own_lifespan_runs_it_and_nothing_starts_it_again() -> None:
    events: Events = []
    app = mounted(events)
    async with unstarted(app) as peer:
        async with app.lifespan("the other application"):
            assert (await call(peer)).status == 200
            with pytest.raises(RuntimeError):
                async with app.lifespan():
                    raise AssertionError("it ran twice")
        assert (await call(peer)).status == 503
    assert events == ["start", "end"]


def test_it_ends_with_the_program() -> None:
    events: Events = []

    async def main() -> None:
        async with unstarted(mounted(events)) as peer:
            assert (await call(peer)).status == 200
        assert events == ["start"]

    trio.run(main)
    assert events == ["start", "end"]


@pytest.mark.parametrize(
    ("root", "path", "endpoint"),
    [
        ("", "/mcp", "/mcp"),
        ("/api", "/api/mcp", "/mcp"),
        ("/api/", "/api/mcp", "/mcp"),
        ("/a/b", "/a/b/mcp", "/mcp"),
        ("/mcp", "/mcp/mcp", "/mcp"),
        ("/mcp", "/mcp/", "/"),
        ("/mcp", "/mcp", "/"),
        # The prefix was removed by a proxy.
        ("/api", "/mcp", "/mcp"),
    ],
)
async def test_its_path_is_below_the_path_where_it_is_mounted(root: str, path: str, endpoint: str) -> None:
    message, headers = modern_call("state")
    async with unstarted(asgi_app(Server("shop"), path=endpoint)) as peer:
        assert (await peer.start(message, headers, path=path, root=root).end()).status != 404


@pytest.mark.parametrize(("root", "path"), [("/api", "/apis/mcp"), ("/api", "/api"), ("/api", "/other/mcp")])
async def test_what_is_said_at_another_path_names_the_whole_path(root: str, path: str) -> None:
    async with unstarted(asgi_app(Server("shop"))) as peer:
        reply = await peer.start(b"", path=path, root=root).end()
        assert (reply.status, f"{root}/mcp" in reply.json["error"]["message"]) == (404, True)
