"""Several servers in one application: each is served below its path as it is alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from asgi_peer import ALICE, JSON_HEADERS, AsgiPeer, Reply, by_token, legacy_call, modern_call, served, unstarted

from trio_mcp import Context, HttpOptions, HttpRequest, HttpResponse, Server
from trio_mcp.errors import ConfigurationError
from trio_mcp.http import HttpLimits, Tls
from trio_mcp_transports.http import asgi_app, serve_http

FOREIGN = {"host": "evil.example"}


def named(name: str, events: list[str] | None = None, *fails: str, **http: Any) -> Server:
    """A server whose tool returns its name and the caller, and whose lifespan notes what happens to it."""
    noted = [] if events is None else events

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[None]:
        noted.append(f"enter {name}")
        if "start" in fails:
            raise ConfigurationError(f"no database for {name}")
        try:
            yield
        finally:
            noted.append(f"leave {name}")
        if "end" in fails:
            raise ConfigurationError(f"{name} was not saved")

    server = Server(name, lifespan=lifespan, http=HttpOptions(**http))

    @server.tool
    async def whoami(ctx: Context) -> str:
        return f"{name} {ctx.request.principal}"

    return server


async def call(peer: AsgiPeer, path: str, **headers: str) -> Reply:
    return await peer.post(*modern_call("whoami", headers=headers), path=path)


async def text_of(peer: AsgiPeer, path: str, **headers: str) -> str:
    text: str = (await call(peer, path, **headers)).json["result"]["content"][0]["text"]
    return text


async def test_each_server_is_reached_below_its_path_with_its_own_options() -> None:
    app = asgi_app(
        {
            "/a": named("ann", authenticate=by_token),
            "/b": named("bob", path="/tools", limits=HttpLimits(body=10)),
            "/c/": named("cay", path="/", allowed_hosts=["c.example.com"]),
        }
    )
    async with served(app) as peer:
        assert (await call(peer, "/a/mcp")).status == 401
        assert await text_of(peer, "/a/mcp", **ALICE) == "ann alice"
        assert (await call(peer, "/b/tools")).status == 413
        assert [(await call(peer, path)).status for path in ("/b/mcp", "/c")] == [404, 421]
        assert await text_of(peer, "/c", host="c.example.com") == "cay None"


async def test_an_option_of_the_call_counts_for_all() -> None:
    servers = {"/a": named("ann", path="/x"), "/b": named("bob", limits=HttpLimits(body=10))}
    async with served(asgi_app(servers, path="/y", limits=HttpLimits(), authenticate=by_token)) as peer:
        for path, name in (("/a/y", "ann"), ("/b/y", "bob")):
            assert (await call(peer, path)).status == 401
            assert await text_of(peer, path, **ALICE) == f"{name} alice"


async def test_the_longest_path_counts_and_only_whole_segments() -> None:
    servers = {"/": named("root"), "/a": named("ann"), "/a/b": named("bob")}
    async with served(asgi_app(servers)) as peer:
        assert await text_of(peer, "/mcp") == "root None"
        assert await text_of(peer, "/a/mcp") == "ann None"
        assert await text_of(peer, "/a/b/mcp") == "bob None"
        assert (await call(peer, "/ab/mcp")).status == 404


@pytest.mark.parametrize(("root", "path"), [("/api", "/api/a/mcp"), ("/api", "/a/mcp"), ("", "/a/mcp")])
async def test_servers_are_found_below_the_path_of_a_proxy(root: str, path: str) -> None:
    async with served(asgi_app({"/a": named("ann")})) as peer:
        message, headers = modern_call("whoami")
        assert (await peer.post(message, headers, path=path, root=root)).status == 200
        assert f"{root}/a/mcp" in (await peer.get(f"{root}/a/nothing", root=root)).json["error"]["message"]


async def test_another_path_is_404_and_names_the_endpoints_that_the_caller_may_reach() -> None:
    servers = {"/a": named("ann", sse_path="/sse"), "/b": named("bob", allowed_hosts=["b.example.com"])}
    async with served(asgi_app(servers)) as peer:
        missing = await peer.get("/c/mcp")
        assert missing.status == 404
        assert ("/a/mcp, /a/sse" in missing.json["error"]["message"], "/b" in missing.json["error"]["message"]) == (
            True,
            False,
        )
        assert "/b/mcp" in (await peer.get("/", {"host": "b.example.com"})).json["error"]["message"]
        assert (await peer.get("/", FOREIGN)).status == 421


async def test_sessions_belong_to_their_server() -> None:
    async with served(asgi_app({"/a": named("ann"), "/b": named("bob")})) as peer:
        session = await peer.open_session(path="/a/mcp")
        stream = peer.start(b"", session, method="GET", path="/a/mcp", sends_body=False)
        assert (await peer.post(legacy_call("whoami"), session, path="/b/mcp")).status == 404
        answered = await peer.post(legacy_call("whoami"), session, path="/a/mcp")
        assert answered.last["result"]["content"][0]["text"] == "ann None"
        stream.gone.set()


async def test_http_sse_names_the_path_below_that_of_its_server() -> None:
    servers = {"/a": named("ann"), "/b": named("bob")}
    async with served(asgi_app(servers, sse_path="/sse", root_path="/api")) as peer:
        stream = peer.start(b"", JSON_HEADERS, method="GET", path="/b/sse", sends_body=False)
        await stream.until("data: /api/b/message?session_id=")
        stream.gone.set()


async def test_routes_and_probes_are_below_the_path_and_the_process_has_its_own() -> None:
    server = named("ann", health_path="/alive")

    @server.route("/where")
    async def where(request: HttpRequest) -> HttpResponse:
        return HttpResponse(f"{request.root_path} {request.path}")

    async with served(asgi_app({"/a": server, "/b": named("bob")})) as peer:
        assert (await peer.get("/a/where")).body == b"/a /where"
        assert [(await peer.get(path, FOREIGN)).body for path in ("/health", "/ready")] == [b"ok", b"ready"]
        assert [(await peer.get(path, FOREIGN)).body for path in ("/a/alive", "/b/health")] == [b"ok", b"ok"]
        assert (await peer.get("/where")).status == 404


async def test_lifespans_are_entered_in_order_and_left_in_reverse() -> None:
    events: list[str] = []
    async with served(asgi_app({"/a": named("ann", events), "/b": named("bob", events)})):
        assert events == ["enter ann", "enter bob"]
    assert events[2:] == ["leave bob", "leave ann"]


@pytest.mark.parametrize(
    ("fails", "expected"),
    [
        ("start", ["enter ann", "enter bob", "leave ann"]),
        ("end", ["enter ann", "enter bob", "enter cay", "leave cay", "leave bob", "leave ann"]),
    ],
)
async def test_a_lifespan_that_fails_is_raised_as_it_is_and_the_others_are_left(
    fails: str, expected: list[str]
) -> None:
    events: list[str] = []
    app = asgi_app({"/a": named("ann", events), "/b": named("bob", events, fails), "/c": named("cay", events)})
    with pytest.raises(ConfigurationError, match="bob"):
        async with app.lifespan():
            pass
    assert events == expected
    assert isinstance(app.failure, ConfigurationError)


async def test_servers_without_lifespan_events_start_together_at_the_first_request() -> None:
    events: list[str] = []
    async with unstarted(asgi_app({"/a": named("ann", events), "/b": named("bob", events)})) as peer:
        assert (await peer.get("/ready")).status == 503
        await trio.testing.wait_all_tasks_blocked()
        assert (await peer.get("/ready")).status == 200
        assert await text_of(peer, "/b/mcp") == "bob None"
        assert events == ["enter ann", "enter bob"]


async def test_a_drain_is_one_for_all() -> None:
    running = trio.Event()
    server = named("ann")

    @server.tool
    async def wait() -> None:
        running.set()
        await trio.sleep_forever()

    app = asgi_app({"/a": server, "/b": named("bob")})
    async with served(app) as peer, trio.open_nursery() as nursery:
        waiting = peer.start(*modern_call("wait"), path="/a/mcp")
        await running.wait()
        nursery.start_soon(app.drain, 10)
        await trio.testing.wait_all_tasks_blocked()
        assert (await peer.get("/ready")).body == b"draining"
        assert (await call(peer, "/b/mcp")).status == 503
        assert not waiting.ended.is_set()


@pytest.mark.parametrize(
    ("servers", "options", "named_in_error"),
    [
        ({}, {}, ["no server"]),
        ({"a": Server("a")}, {}, ["'a'", "/mcp"]),
        ({"/a": Server("a"), "/a/": Server("b")}, {}, ["/a"]),
        ({"/a": named("a", trusted_proxies=["10.0.0.1"]), "/b": Server("b")}, {}, ["/a", "/b", "trusted_proxies"]),
        ({"/a": Server("a"), "/b": named("b", access_log=True)}, {}, ["/a", "/b", "access_log"]),
        ({"/a": named("a", tls=Tls("a.pem")), "/b": named("b", tls=Tls("b.pem"))}, {}, ["/a", "/b", "tls"]),
        ({"/a": Server("a"), "/a/mcp": Server("b")}, {}, ["/mcp", "/a", "/a/mcp"]),
        ({"/a": named("a", path="/x/y"), "/a/x": Server("b")}, {}, ["/x/y", "/a", "/a/x"]),
        ({"/health": Server("a")}, {}, ["/health"]),
        ({"/a": Server("a"), "/b": Server("b")}, {"sse_path": "/mcp"}, ["/mcp"]),
    ],
)
def test_servers_that_cannot_share_an_address_are_refused_by_name(
    servers: dict[str, Server], options: Any, named_in_error: list[str]
) -> None:
    with pytest.raises(ValueError) as caught:
        asgi_app(servers, **options)
    assert [name for name in named_in_error if name not in str(caught.value)] == []


def test_options_that_differ_may_come_from_the_call() -> None:
    servers = {"/a": named("a", trusted_proxies=["10.0.0.1"], root_path="/x"), "/b": Server("b")}
    app = asgi_app(servers, trusted_proxies=["10.0.0.2"], root_path="/api")
    assert (app.options.trusted_proxies, app.options.root_path) == (["10.0.0.2"], "/api")


async def test_the_network_needs_the_names_of_each_server() -> None:
    servers = {"/a": named("a", allowed_hosts=["a.example.com"]), "/b": Server("b")}
    with pytest.raises(ValueError, match=r"allowed_hosts of the server at /b"):
        await serve_http(servers, host="0.0.0.0", port=0, announce=False, signals=False)


async def test_one_record_of_the_access_log_has_the_whole_path_and_the_principal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = asgi_app({"/a": named("ann", authenticate=by_token), "/b": named("bob")}, access_log=True)
    with caplog.at_level("INFO", "trio_mcp.access"):
        async with served(app) as peer:
            await call(peer, "/a/mcp", **ALICE)
    (record,) = (each for each in caplog.records if each.name == "trio_mcp.access")
    fields: Any = record.__dict__["fields"]
    assert (fields["http"]["path"], fields["http"]["rpc"], fields["principal"]) == ("/a/mcp", "tools/call", "alice")
