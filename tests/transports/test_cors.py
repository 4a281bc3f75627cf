"""CORS: pages of allowed origins may ask, call and read every response; pages of others get nothing (Fetch, 3.2)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio
from asgi_peer import JSON_HEADERS, AsgiPeer, Reply, initialize, legacy_call, modern_call, modern_request, served

from trio_mcp import Context, HttpOptions, HttpRequest, HttpResponse, Server
from trio_mcp.auth import CannotVerify, ProtectedResource, static
from trio_mcp_transports.asgi.cors import MAX_ASKED
from trio_mcp_transports.asgi.requests import NO_BODY, Request
from trio_mcp_transports.asgi.responses import KnownResponse, Upgrade
from trio_mcp_transports.http import asgi_app

PAGE = "https://app.example.com"
FOREIGN = "https://evil.example"
TOKEN = {"authorization": "Bearer t"}
METADATA = "/.well-known/oauth-protected-resource/mcp"
SENT = {
    "authorization",
    "content-type",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
}


async def authenticate(headers: Mapping[str, str]) -> str | None:
    if headers.get("authorization") == "Bearer later":
        raise CannotVerify("the issuer is away", 7)
    return "ann" if headers.get("authorization") == "Bearer t" else None


def page_server(name: str = "web", **options: object) -> Server:
    given = {"authenticate": authenticate, "allowed_origins": [PAGE], "sse_path": "/sse", **options}
    server = Server(name, http=HttpOptions(**given))  # type: ignore[arg-type]

    @server.tool
    async def report(ctx: Context) -> str:
        await ctx.progress(1)
        return "done"

    @server.tool(scopes=["write"])
    async def write() -> str:
        return ""

    @server.route("/price", methods=["GET", "PUT"])
    async def price(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("7", headers={"cache-control": "max-age=60"})

    @server.route("/open", public=True)
    async def public(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("open", headers={"Access-Control-Allow-Origin": "*"})

    return server


@asynccontextmanager
async def pages(**options: object) -> AsyncIterator[AsgiPeer]:
    async with served(asgi_app(page_server(**options))) as peer:  # type: ignore[arg-type]
        yield peer


def listed(reply: Reply, header: str) -> set[str]:
    return {name.strip().lower() for name in reply.headers.get(header, "").split(",")}


def cors_headers(reply: Reply) -> list[str]:
    return [name for name in reply.headers if name.startswith("access-control-")]


async def preflight(peer: AsgiPeer, path: str = "/mcp", origin: str = PAGE, **more: str) -> Reply:
    asked = {"host": "localhost", "origin": origin, "access-control-request-method": "POST"}
    named = {f"access-control-request-{name.replace('_', '-')}": value for name, value in more.items()}
    return await peer.post(b"", asked | named, method="OPTIONS", path=path)


# the preflight

PATHS = {
    "/mcp": {"post", "get", "delete"},
    "/mcp/": {"post", "get", "delete"},
    "/sse": {"get"},
    "/message": {"post"},
    "/price": {"get", "put"},
    "/health": {"get"},
    "/ready": {"get"},
}


@pytest.mark.parametrize("path", PATHS)
async def test_a_preflight_needs_no_token_and_is_answered_on_every_path(path: str) -> None:
    async with pages() as peer:
        reply = await preflight(peer, path)
    assert (reply.status, reply.body) == (204, b"")
    assert (reply.headers["access-control-allow-origin"], reply.headers["vary"]) == (PAGE, "origin")
    assert listed(reply, "access-control-allow-methods") >= PATHS[path]
    assert listed(reply, "access-control-allow-headers") >= SENT
    assert int(reply.headers["access-control-max-age"]) > 0
    assert "access-control-allow-credentials" not in reply.headers
    assert "access-control-allow-private-network" not in reply.headers


async def test_a_preflight_allows_the_headers_that_it_asks_for() -> None:
    async with pages() as peer:
        reply = await preflight(peer, headers="X-Api-Key, mcp-param-region,authorization")
    assert listed(reply, "access-control-allow-headers") >= {"x-api-key", "mcp-param-region", *SENT}
    assert reply.headers["access-control-allow-headers"].count("authorization") == 1


@pytest.mark.parametrize(
    "asked",
    ["x" * (MAX_ASKED + 1), "x-a, ", "x a", "x\x7f", 'x"y', ""],
    ids=["long", "end", "space", "del", "quote", ""],
)
async def test_names_over_the_limit_or_not_valid_are_not_allowed(asked: str) -> None:
    async with pages() as peer:
        reply = await preflight(peer, headers=asked)
    assert reply.status == 204
    assert listed(reply, "access-control-allow-headers") == {"accept", *SENT}


async def test_names_at_the_limit_are_allowed() -> None:
    async with pages() as peer:
        reply = await preflight(peer, headers="x" * MAX_ASKED)
    assert "x" * MAX_ASKED in listed(reply, "access-control-allow-headers")


async def test_a_page_may_call_into_a_private_network_if_its_browser_asks() -> None:
    async with pages() as peer:
        assert (await preflight(peer, private_network="true")).headers["access-control-allow-private-network"] == "true"
        for refused in (
            await preflight(peer, origin=FOREIGN, private_network="true"),
            await preflight(peer, private_network="false"),
        ):
            assert "access-control-allow-private-network" not in refused.headers


@pytest.mark.parametrize("path", [*PATHS, "/none"])
async def test_a_foreign_origin_is_allowed_nothing(path: str) -> None:
    async with pages() as peer:
        for method in ("OPTIONS", "GET", "POST", "DELETE", "PUT"):
            reply = await peer.post(b"", {**JSON_HEADERS, **TOKEN, "origin": FOREIGN}, method=method, path=path)
            assert cors_headers(reply) == []
            assert reply.headers["vary"] == "origin"
            assert path in ("/health", "/ready") or reply.status == 403
        refused = await preflight(peer, path, FOREIGN)
        assert cors_headers(refused) == []
        assert refused.status == (204 if path in ("/health", "/ready") else 403)


# every response


def readable(reply: Reply, origin: str = PAGE) -> bool:
    exposed = {"www-authenticate", "mcp-session-id", "retry-after"}
    return (
        reply.headers.get("access-control-allow-origin") == origin
        and reply.headers.get("vary") == "origin"
        and listed(reply, "access-control-expose-headers") >= exposed
        and "access-control-allow-credentials" not in reply.headers
        and "access-control-allow-methods" not in reply.headers
    )


REFUSALS: dict[str, tuple[int, str, str, dict[str, str]]] = {
    "no token": (401, "POST", "/mcp", {"authorization": ""}),
    "no token at a route": (401, "GET", "/price", {"authorization": ""}),
    "an issuer that is away": (503, "POST", "/mcp", {"authorization": "Bearer later"}),
    "a foreign host": (421, "POST", "/mcp", {"host": "elsewhere.example"}),
    "a path with nothing": (404, "GET", "/none", {}),
    "an unknown session": (404, "POST", "/mcp", {"mcp-session-id": "none"}),
    "another method": (405, "PUT", "/mcp", {}),
    "a GET without a session": (405, "GET", "/mcp", {}),
    "a body that is none": (400, "POST", "/mcp", {}),
    "another media type": (415, "POST", "/mcp", {"content-type": "text/plain"}),
    "a client that reads no stream": (406, "POST", "/mcp", {"accept": "text/plain"}),
    "a body over the limit": (413, "POST", "/mcp", {"content-length": "100000000"}),
}


@pytest.mark.parametrize("kind", REFUSALS)
async def test_a_page_reads_why_it_is_refused(kind: str) -> None:
    status, method, path, changed = REFUSALS[kind]
    async with pages() as peer:
        headers = {**JSON_HEADERS, **TOKEN, "origin": PAGE, **changed}
        body = legacy_call("report") if "mcp-session-id" in changed else b""
        reply = await peer.post(body, headers, method=method, path=path)
    assert reply.status == status
    assert readable(reply)
    assert status != 503 or reply.headers["retry-after"] == "7"


async def test_a_page_reads_a_header_that_came_twice() -> None:
    async with pages() as peer:
        lines = [
            (b"host", b"localhost"),
            (b"origin", PAGE.encode()),
            (b"authorization", b"a"),
            (b"authorization", b"b"),
        ]
        reply = await peer.start_raw(b"", lines, "POST", "/mcp").end()
    assert reply.status == 400
    assert readable(reply)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_page_reads_answers_streams_and_the_id_of_its_session(era: str) -> None:
    who = {**TOKEN, "origin": PAGE}
    async with pages() as peer:
        if era == "modern":
            replies = [
                await peer.post(*modern_call("report", _meta={"progressToken": "t"}, headers=who)),
                await peer.post(*modern_request("tools/list", {}, headers=who)),
            ]
            wanted = {"notifications": {"toolsListChanged": True}}
            stream = peer.start(*modern_request("subscriptions/listen", wanted, headers=who))
            await stream.until("acknowledged")
            replies.append(stream)
        else:
            opened = await peer.post(initialize({"elicitation": {}}), {**JSON_HEADERS, **who})
            session = await peer.open_session(who=who)
            replies = [
                opened,
                await peer.post(legacy_call("report", _meta={"progressToken": "t"}), session),
                await peer.post(
                    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}, session
                ),
                stream := peer.start(b"", {**session, "accept": "text/event-stream"}, method="GET"),
            ]
            await stream.until("\n")
            replies.append(await peer.post(b"", session, method="DELETE"))
            assert "mcp-session-id" in opened.headers
    assert [readable(reply) for reply in replies] == [True] * len(replies)
    assert {reply.headers.get("content-type") for reply in replies} >= {"text/event-stream"}


async def test_a_page_reads_which_scope_a_call_needs() -> None:
    async with pages() as peer:
        reply = await peer.post(*modern_call("write", headers={**TOKEN, "origin": PAGE}))
    assert reply.status == 403
    assert "insufficient_scope" in reply.headers["www-authenticate"]
    assert readable(reply)


async def test_a_page_reads_that_the_server_shuts_down() -> None:
    async with pages() as peer:
        await peer.app.drain(0)
        reply = await peer.post(*modern_call("report", headers={**TOKEN, "origin": PAGE}))
        ready = await peer.get("/ready", {"host": "localhost", "origin": PAGE})
    assert (reply.status, reply.headers["retry-after"], ready.status) == (503, "1", 503)
    assert readable(reply)
    assert readable(ready)


async def test_a_page_reads_the_streams_of_http_sse_and_what_it_posts() -> None:
    who = {"host": "localhost", **TOKEN, "origin": PAGE}
    async with pages() as peer:
        stream, where = await peer.open_stream(who)
        posted = await peer.post(initialize({}), {**JSON_HEADERS, **who}, **where)
    assert (posted.status, readable(stream), readable(posted)) == (202, True, True)


@pytest.mark.parametrize("path", ["/price", "/health", "/ready"])
async def test_a_page_reads_custom_routes_and_probes(path: str) -> None:
    async with pages() as peer:
        reply = await peer.get(path, {"host": "localhost", **TOKEN, "origin": PAGE})
    assert reply.status == 200
    assert readable(reply)


# caches, and what says it by itself


async def test_a_get_without_an_origin_is_not_taken_from_a_cache_for_a_page() -> None:
    async with pages() as peer:
        reply = await peer.get("/price", {"host": "localhost", **TOKEN})
        assert (cors_headers(reply), reply.headers["vary"]) == ([], "origin")
        reply = await peer.post(*modern_call("report", headers=TOKEN))
        assert (cors_headers(reply), reply.headers.get("vary")) == ([], None)


@pytest.mark.parametrize("origin", [PAGE, FOREIGN])
async def test_a_public_response_has_each_cors_header_once(origin: str) -> None:
    hook = ProtectedResource("http://localhost/mcp", static({"t" * 40: "ann"}), issuers=["https://issuer.example"])
    async with pages(authenticate=hook) as peer:
        for path in (METADATA, "/open"):
            reply = peer.start(b"", {"host": "localhost", "origin": origin}, method="GET", path=path)
            await reply.end()
            head = reply._head["headers"]  # noqa: SLF001  a mapping would hide a second one
            values = [value for name, value in head if name.lower() == b"access-control-allow-origin"]
            assert (reply.status, values) == (200, [b"*"])


@pytest.mark.parametrize("origin", [None, PAGE, FOREIGN])
async def test_the_handshake_of_a_websocket_has_no_header_for_pages(origin: str | None) -> None:
    async with pages() as peer:
        headers = {"host": "localhost", **TOKEN} | ({} if origin is None else {"origin": origin})
        response = await peer.app.respond(Request("GET", "/mcp", headers, NO_BODY, websocket=["mcp"]))
        assert isinstance(response, KnownResponse if origin == FOREIGN else Upgrade)
        assert list(response.headers) == []
        if isinstance(response, Upgrade):
            response.lose()


async def test_a_page_reads_the_id_of_its_request_in_the_log() -> None:
    async with pages(access_log=True) as peer:
        reply = await peer.post(*modern_call("report", headers={**TOKEN, "origin": PAGE}))
    assert readable(reply)
    assert "x-request-id" in reply.headers
    assert "x-request-id" in listed(reply, "access-control-expose-headers")


# which origins

ORIGINS = {
    "https://app.example.com": True,
    "https://App.Example.com:443": True,
    "HTTPS://app.example.com": True,
    "https://app.example.com:444": False,
    "http://app.example.com": False,
    "https://app.example.com.evil.example": False,
    "https://sub.app.example.com": False,
    "https://evil.example/https://app.example.com": False,
    "null": False,
    "": False,
    "*": False,
    "https://\xe4pp.example.com": False,
    "chrome-extension://abcdef": True,
    "http://localhost:5173": False,
}


@pytest.mark.parametrize("origin", ORIGINS)
async def test_an_origin_is_allowed_as_it_was_sent_if_its_normal_form_is(origin: str) -> None:
    options = {"allowed_origins": ["https://APP.example.com:443", "chrome-extension://abcdef"]}
    async with pages(allowed_hosts=["mcp.example.com"], **options) as peer:
        reply = await peer.post(*modern_call("report", headers={**TOKEN, "host": "mcp.example.com", "origin": origin}))
    assert (reply.status, cors_headers(reply) != []) == ((200, True) if ORIGINS[origin] else (403, False))
    assert not ORIGINS[origin] or readable(reply, origin)


async def test_pages_of_this_machine_may_read_a_server_of_this_machine() -> None:
    async with pages(allowed_origins=()) as peer:
        for origin in ("http://localhost:6274", "http://127.0.0.1:3000", "http://[::1]:80"):
            assert readable(await peer.post(*modern_call("report", headers={**TOKEN, "origin": origin})), origin)
            assert (await preflight(peer, origin=origin)).headers["access-control-allow-origin"] == origin


def test_an_origin_that_no_browser_sends_is_refused_with_its_cure() -> None:
    with pytest.raises(ValueError, match="xn--"):
        HttpOptions(allowed_origins=["https://b\xfccher.example"])


# several servers at one address


async def test_each_server_of_several_allows_its_own_pages_and_sends_each_header_once() -> None:
    shop, notes = page_server("shop"), page_server("notes", allowed_origins=["https://notes.example.com"])
    async with served(asgi_app({"/shop": shop, "/notes": notes})) as peer:
        body, headers = modern_call("report")
        sent = {**headers, **TOKEN, "origin": PAGE}
        replies = {path: peer.start(body, sent, path=path) for path in ("/shop/mcp", "/notes/mcp", "/none")}
        with trio.fail_after(5):
            for reply in replies.values():
                await reply.ended.wait()
        assert [reply.status for reply in replies.values()] == [200, 403, 404]
        assert [readable(reply) for reply in replies.values()] == [True, False, True]
        assert cors_headers(replies["/notes/mcp"]) == []
        for reply in replies.values():
            names = [name for name, _ in reply._head["headers"]]  # noqa: SLF001
            assert len(names) == len(set(names))
        assert readable(await peer.get("/ready", {"host": "localhost", "origin": PAGE}))
        assert (await preflight(peer, "/shop/mcp")).status == 204
        assert cors_headers(await preflight(peer, "/notes/mcp")) == []
