"""The custom routes of a mounted server are served below its prefix, with its state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from asgi_peer import ALICE, LOCAL, AsgiPeer, Reply, by_token, served
from naming import naming

from trio_mcp import HttpOptions, HttpRequest, HttpResponse, Server
from trio_mcp.http import HttpRoute
from trio_mcp_transports.http import asgi_app


def named(name: str, **http: object) -> Server:
    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[str]:
        yield f"the state of {name}"

    server = Server(name, lifespan=lifespan, http=HttpOptions(**http))  # type: ignore[arg-type]
    server.route("/where", methods=["POST"])(where)
    return server


async def where(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"{request.root_path} {request.path} {request.state} {request.principal}")


async def ask(peer: AsgiPeer, path: str, headers: Mapping[str, str] = LOCAL, root: str = "") -> Reply:
    return await peer.start(b"", headers, path=path, root=root).end()


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
