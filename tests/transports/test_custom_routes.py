"""Custom routes, also of mounted servers: their requests pass the checks of MCP, unless they are public, and have limits."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio
from asgi_peer import ALICE, LOCAL, AsgiPeer, Reply, by_token, served
from naming import naming

from trio_mcp import Caller, HttpOptions, HttpRequest, HttpResponse, Server
from trio_mcp.http import HttpRoute
from trio_mcp_transports.http import asgi_app


async def scoped(headers: Mapping[str, str]) -> Caller | None:
    return Caller("ann", ["notes:read"]) if headers.get("authorization") == "Bearer a" else None


def shop(**options: object) -> Server:
    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[str]:
        yield "the database"

    return Server("shop", lifespan=lifespan, http=HttpOptions(**options))  # type: ignore[arg-type]


async def ask(
    peer: AsgiPeer,
    path: str,
    headers: Mapping[str, str] = LOCAL,
    body: bytes = b"",
    method: str = "POST",
    root: str = "",
) -> Reply:
    return await peer.start(body, headers, method=method, path=path, query="q=1", root=root).end()


async def test_a_route_gets_the_request_and_sends_its_response() -> None:
    server, got = shop(authenticate=scoped), list[HttpRequest]()

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
    server = shop(authenticate=scoped)

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


# those of mounted servers


def named(name: str, **http: object) -> Server:
    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[str]:
        yield f"the state of {name}"

    server = Server(name, lifespan=lifespan, http=HttpOptions(**http))  # type: ignore[arg-type]
    server.route("/where", methods=["POST"])(where)
    return server


async def where(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"{request.root_path} {request.path} {request.state} {request.principal}")


async def test_a_route_of_a_mounted_server_is_below_its_prefix_and_has_its_state() -> None:
    inner, middle, outer = named("inner"), named("middle"), named("outer")
    middle.mount("in", inner)
    outer.mount("mid", middle)
    outer.mount("own", inner)
    async with served(asgi_app(outer)) as peer:
        assert (await ask(peer, "/where")).body == b" /where the state of outer None"
        assert (await ask(peer, "/mid/where")).body == b"/mid /where the state of middle None"
        assert (await ask(peer, "/mid/in/where")).body == b"/mid/in /where the state of inner None"
        assert (await ask(peer, "/own/where")).body == b"/own /where the state of inner None"
        assert (await ask(peer, "/api/own/where", root="/api")).body == b"/api/own /where the state of inner None"
        assert (await ask(peer, "/in/where")).status == 404


async def test_the_outer_server_authenticates_the_callers_of_mounted_routes() -> None:
    inner, outer = named("inner"), Server("outer", http=HttpOptions(authenticate=by_token))
    inner.route("/open", methods=["POST"], public=True)(where_in_the_open)
    outer.mount("in", inner)
    async with served(asgi_app(outer)) as peer:
        assert (await ask(peer, "/in/where")).status == 401
        assert (await ask(peer, "/in/where", {**LOCAL, **ALICE})).body.endswith(b" alice")
        assert (await ask(peer, "/in/open")).status == 200
        assert (await ask(peer, "/in/open", {"host": "anywhere.example"})).status == 200
        assert (await ask(peer, "/in/where", {"host": "anywhere.example", **ALICE})).status == 421


async def where_in_the_open(request: HttpRequest) -> HttpResponse:
    return await where(request)


def test_a_path_that_is_taken_is_refused_at_mount_and_nothing_is_changed() -> None:
    inner, outer = named("inner"), named("outer", routes=[HttpRoute("/in/where", where, ["POST"])])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=naming("/in/where", "where")):
        outer.mount("in", inner)
    assert outer.http is not None
    assert [route.whole_path for route in outer.http.routes] == ["/in/where", "/where"]
    outer.mount("other", inner)


def test_a_path_that_is_taken_is_refused_at_a_mounted_server_too() -> None:
    inner, middle, outer = named("inner"), Server("middle"), Server("outer")
    middle.mount("in", inner)
    outer.mount("mid", middle)
    outer.route("/mid/in/late")(where)
    with pytest.raises(ValueError, match=naming("/mid/in/late")):
        inner.route("/late")(where)
    assert inner.http is not None
    assert [route.path for route in inner.http.routes] == ["/where"]
