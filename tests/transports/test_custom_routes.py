"""Custom routes: their requests pass the checks that those of MCP pass, unless they are public, and have limits."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio
from asgi_peer import LOCAL, AsgiPeer, Reply, served

from trio_mcp import Caller, HttpOptions, HttpRequest, HttpResponse, Server
from trio_mcp_transports.http import asgi_app


async def by_token(headers: Mapping[str, str]) -> Caller | None:
    return Caller("ann", ["notes:read"]) if headers.get("authorization") == "Bearer a" else None


def shop(**options: object) -> Server:
    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[str]:
        yield "the database"

    return Server("shop", lifespan=lifespan, http=HttpOptions(**options))  # type: ignore[arg-type]


async def ask(
    peer: AsgiPeer, path: str, headers: Mapping[str, str] = LOCAL, body: bytes = b"", method: str = "POST"
) -> Reply:
    return await peer.start(body, headers, method=method, path=path, query="q=1").end()


async def test_a_route_gets_the_request_and_sends_its_response() -> None:
    server, got = shop(authenticate=by_token), list[HttpRequest]()

    @server.route("/hook", methods=["POST"])
    async def hook(request: HttpRequest) -> HttpResponse:
        got.append(request)
        return HttpResponse("done", 201, headers={"X-Kind": "hook"})

    async with served(asgi_app(server)) as peer:
        reply = await ask(peer, "/hook", {**LOCAL, "authorization": "Bearer a"}, b"data")
    assert (reply.status, reply.body, reply.headers["x-kind"]) == (201, b"done", "hook")
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    (request,) = got
    assert (request.method, request.path, request.parameters, request.body) == ("POST", "/hook", {"q": "1"}, b"data")
    assert (request.principal, request.state, request.host) == ("ann", "the database", "localhost")
    assert request.caller is not None
    assert request.caller.scopes == {"notes:read"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({**LOCAL, "origin": "https://evil.example"}, 403),
        (LOCAL, 401),
        ({**LOCAL, "authorization": "Bearer a"}, 200),
    ],
)
async def test_a_route_has_all_checks_unless_it_is_public(headers: Mapping[str, str], status: int) -> None:
    server = shop(authenticate=by_token)

    async def answer(request: HttpRequest) -> HttpResponse:
        return HttpResponse(request.principal or "nobody")

    server.route("/private")(answer)
    server.route("/public", public=True)(answer)
    async with served(asgi_app(server)) as peer:
        assert (await ask(peer, "/private", headers, method="GET")).status == status
        reply = await ask(peer, "/public", headers, method="GET")
    assert (reply.status, reply.body) == (200, b"nobody")


async def test_a_route_takes_its_methods_only() -> None:
    server = shop()

    @server.route("/page")
    async def page(_: HttpRequest) -> HttpResponse:
        return HttpResponse("<p>", content_type="text/html")

    async with served(asgi_app(server)) as peer:
        refused = await ask(peer, "/page", method="DELETE")
        assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
        head = await ask(peer, "/page", method="HEAD")
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "3")
        assert (await ask(peer, "/pages", method="GET")).status == 404


async def test_a_body_over_the_limit_of_the_route_is_rejected_and_its_function_does_not_run() -> None:
    server, ran = shop(), trio.Event()

    @server.route("/hook", methods=["POST"], max_body=3)
    async def hook(request: HttpRequest) -> HttpResponse:
        if len(request.body) > 3:
            ran.set()
        return HttpResponse()

    async with served(asgi_app(server)) as peer:
        assert (await ask(peer, "/hook", body=b"1234")).status == 413
        assert (await ask(peer, "/hook", body=b"123")).status == 200
    assert not ran.is_set()


async def test_a_function_over_its_time_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    server, cancelled = shop(), trio.Event()

    @server.route("/slow", timeout=3)
    async def slow(_: HttpRequest) -> HttpResponse:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            cancelled.set()
            raise

    async with served(asgi_app(server)) as peer:
        began = trio.current_time()
        assert (await ask(peer, "/slow", method="GET")).status == 503
        assert trio.current_time() - began == pytest.approx(3)
    assert cancelled.is_set()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_a_function_that_fails_or_returns_something_else_is_a_500_that_tells_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = shop()

    @server.route("/fails")
    async def fails(_: HttpRequest) -> HttpResponse:
        raise ValueError("hunter2")

    @server.route("/exits")
    async def exits(_: HttpRequest) -> HttpResponse:
        raise SystemExit(3)

    @server.route("/wrong")
    async def wrong(_: HttpRequest) -> HttpResponse:
        return "text"  # type: ignore[return-value]

    async with served(asgi_app(server)) as peer:
        replies = [await ask(peer, path, method="GET") for path in ("/fails", "/exits", "/wrong")]
    assert [reply.status for reply in replies] == [500] * 3
    assert b"hunter2" not in replies[0].body
    assert len(caplog.records) == 3


async def test_what_a_request_draws_from_the_memory_budget_is_given_back() -> None:
    server, held = shop(), list[int]()

    @server.route("/hook", methods=["POST"])
    async def hook(_: HttpRequest) -> HttpResponse:
        held.append(server.options.memory.statistics().drawn)
        return HttpResponse()

    async with served(asgi_app(server)) as peer:
        before = server.options.memory.statistics().drawn
        await ask(peer, "/hook", body=b"x" * 100_000)
        assert held[0] - before >= 100_000
        assert server.options.memory.statistics().drawn == before


async def test_a_route_is_found_below_a_prefix_and_knows_it() -> None:
    server, roots = shop(), list[tuple[str, str]]()

    @server.route("/hook")
    async def hook(request: HttpRequest) -> HttpResponse:
        roots.append((request.root_path, request.path))
        return HttpResponse()

    async with served(asgi_app(server)) as peer:
        for path in ("/api/hook", "/hook"):
            assert (await peer.get(path, root="/api")).status == 200
    assert roots == [("/api", "/hook")] * 2
