"""A protected server over HTTP: what each request gets, on every path, verb and wire; its documents; what tools see; its logs."""

from __future__ import annotations

import gc
import json
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from asgi_peer import JSON_HEADERS, REFUSABLE, AsgiPeer, AsgiSocket, Reply, modern_call, modern_request, served
from naming import naming, unnamed
from trio.testing import wait_all_tasks_blocked
from wire_terms import REQUIRED_SCOPES

from trio_mcp import Backfill, Caller, Context, HttpOptions, HttpRequest, HttpResponse, RelayServer, Server, proxy
from trio_mcp.auth import CannotVerify, CredentialsRejected, ProtectedResource, any_of, introspection, jwt, static
from trio_mcp.auth.challenges import Challenge, parse_challenges
from trio_mcp.errors import AuthorizationError, AuthorizationErrorKind, ConfigurationError
from trio_mcp.session import find_transport
from trio_mcp.testing import TestIssuer
from trio_mcp_transports.http import McpApps, asgi_app, serve_http

RESOURCE = "http://127.0.0.1:8000/mcp"
PLACE = "/.well-known/oauth-protected-resource"
METADATA = f"http://127.0.0.1:8000{PLACE}/mcp"
ISSUER = TestIssuer()
UNSIGNED = TestIssuer()

Headers = Mapping[str, str]


def protected(resource: str = RESOURCE, **options: Any) -> ProtectedResource:
    return ProtectedResource(resource, jwt(ISSUER.url, keys=ISSUER.jwks), **{"required": ["read"], **options})


def bearer(*scopes: str, audience: str = RESOURCE, **options: Any) -> dict[str, str]:
    # Some are made when the tests are collected, long before they run.
    lasting = {"expires_in": 86_400, **options}
    return {"authorization": f"Bearer {ISSUER.token('alice', scopes=scopes, audience=audience, **lasting)}"}


GOOD = bearer("read")
FORGED = {"authorization": f"Bearer {UNSIGNED.token('alice', audience=RESOURCE)}"}
TEMPLATE = {"type": "ref/resource", "uri": "notes://{name}"}


def library(name: str = "library", **http: Any) -> Server:
    server = Server(name, version="1", http=HttpOptions(**http) if http else None)

    @server.tool
    async def seen(ctx: Context) -> dict[str, str]:
        return dict(ctx.request.headers)

    @server.tool
    async def whoami(ctx: Context) -> str:
        return "nobody" if ctx.caller is None else ctx.caller.principal

    @server.tool(scopes=["read", "write"])
    async def write() -> str:
        return "written"

    @server.resource("notes://{name}", scopes=["read", "write"])
    def note(name: str) -> str:
        return name

    @server.prompt(scopes=["read", "write"])
    def review() -> str:
        return "Review."

    return server


@asynccontextmanager
async def guarded(hook: Any = None, **options: Any) -> AsyncIterator[AsgiPeer]:
    app = asgi_app(library(), authenticate=hook or protected(), sse_path="/sse", **options)
    async with served(app) as peer:
        yield peer


def challenge_of(reply: Reply) -> Challenge:
    (challenge,) = parse_challenges(reply.headers["www-authenticate"])
    return challenge


# every path, verb and wire


async def upgrade(peer: AsgiPeer, headers: Headers) -> Reply:
    """Ask for a WebSocket; the reply is that of the rejection, or has the status 101."""
    socket, reply = AsgiSocket(peer.app, headers, extensions=REFUSABLE), Reply(status=101)
    peer.nursery.start_soon(socket.run)
    await wait_all_tasks_blocked()
    socket.leave()
    first, *parts = socket.sent
    if first["type"] == "websocket.http.response.start":
        reply.status, reply.body = first["status"], b"".join(part["body"] for part in parts)
        reply.headers = {name.decode(): value.decode() for name, value in first["headers"]}
    return reply


def http(method: str, path: str, *, query: str = "") -> Callable[[AsgiPeer, Headers], Any]:
    async def ask(peer: AsgiPeer, headers: Headers) -> Reply:
        body, named = modern_call("whoami") if method == "POST" and path == "/mcp" else (b"", JSON_HEADERS)
        return await peer.start(body, {**named, **headers}, method=method, path=path, query=query).end()

    return ask


WAYS: dict[str, Callable[[AsgiPeer, Headers], Any]] = {
    "modern call": http("POST", "/mcp"),
    "stream": http("GET", "/mcp"),
    "end of a session": http("DELETE", "/mcp"),
    "unknown verb": http("PATCH", "/mcp"),
    "unknown path": http("GET", "/nothing"),
    "other well-known path": http("GET", "/.well-known/openid-configuration"),
    "HTTP+SSE": http("GET", "/sse"),
    "message of HTTP+SSE": http("POST", "/message"),
    "WebSocket": upgrade,
}

OUTCOMES: dict[str, tuple[Headers, int, str, str | None]] = {
    "no header": ({}, 401, "", "read"),
    "another scheme": ({"authorization": "Basic YTpi"}, 401, "", "read"),
    "no token": ({"authorization": "Bearer"}, 400, "invalid_request", None),
    "two tokens": ({"authorization": "Bearer a b"}, 400, "invalid_request", None),
    "odd characters": ({"authorization": "Bearer {}"}, 400, "invalid_request", None),
    "a long token": ({"authorization": "Bearer " + "x" * 8_193}, 400, "invalid_request", None),
    "opaque": ({"authorization": "Bearer opaque"}, 401, "invalid_token", "read"),
    "expired": (bearer("read", expires_in=-60), 401, "invalid_token", "read"),
    "another audience": (bearer("read", audience="https://other.example"), 401, "invalid_token", "read"),
    "not signed by the issuer": (FORGED, 401, "invalid_token", "read"),
    "without the required scope": (bearer("other"), 403, "insufficient_scope", "read"),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", OUTCOMES)
async def test_a_request_without_a_good_token_is_refused_on_every_path_verb_and_wire(case: str, way: str) -> None:
    headers, status, error, scope = OUTCOMES[case]
    async with guarded() as peer:
        reply = await WAYS[way](peer, headers)
        assert reply.status == status
        challenge = challenge_of(reply)
        assert challenge.scheme == "bearer"
        assert (challenge.error, challenge.scope, challenge.resource_metadata) == (error, scope, METADATA)


async def test_the_response_is_the_same_for_every_reason() -> None:
    async with guarded() as peer:
        replies = [
            await http("POST", "/mcp")(peer, headers)
            for headers, _, error, _ in OUTCOMES.values()
            if error == "invalid_token"
        ]
    assert len(replies) > 3
    assert len({(reply.status, reply.body, tuple(reply.headers.items())) for reply in replies}) == 1


@pytest.mark.parametrize("way", ["modern call", "WebSocket"])
async def test_a_good_token_is_served(way: str) -> None:
    async with guarded() as peer:
        assert (await WAYS[way](peer, GOOD)).status in (200, 101)


async def test_a_token_in_the_query_is_ignored() -> None:
    token = GOOD["authorization"].removeprefix("Bearer ")
    async with guarded() as peer:
        reply = await http("POST", "/mcp", query=f"access_token={token}")(peer, {})
        assert (reply.status, challenge_of(reply).error) == (401, "")


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "write", "arguments": {}}),
        ("resources/read", {"uri": "notes://x"}),
        ("prompts/get", {"name": "review"}),
        ("completion/complete", {"ref": TEMPLATE, "argument": {"name": "name", "value": ""}}),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["notes://x"]}}),
    ],
)  # fmt: skip
async def test_an_operation_without_its_scopes_is_403_with_all_of_them(method: str, params: dict[str, Any]) -> None:
    async with guarded() as peer:
        body, headers = modern_request(method, params)
        if "uri" in params:
            headers["mcp-name"] = params["uri"]
        reply = await peer.post(body, headers | GOOD)
        challenge = challenge_of(reply)
        assert (reply.status, challenge.error, challenge.scope) == (403, "insufficient_scope", "read write")
        assert challenge.resource_metadata == METADATA
        assert reply.json["id"] == 2


async def test_the_error_names_the_scopes_of_the_challenge() -> None:
    async with guarded(protected(required=["base", "read"])) as peer:
        refused = await peer.post(*modern_request("tools/list", {}, headers=bearer("read")))
        assert (refused.status, unnamed(refused.json["error"]["message"], "base", "read")) == (403, [])
        reply = await peer.post(*modern_call("write", headers=bearer("base", "read")))
        assert challenge_of(reply).scope == "base read write"
        assert reply.json["error"]["data"] == {REQUIRED_SCOPES: ["base", "read", "write"]}


async def test_a_subscription_of_a_session_without_its_scopes_is_403() -> None:
    async with guarded() as peer:
        session = await peer.open_session(who=GOOD)
        body = {"jsonrpc": "2.0", "id": 3, "method": "resources/subscribe", "params": {"uri": "notes://x"}}
        assert (await peer.post(body, session)).status == 403


async def test_if_the_issuer_cannot_be_asked_the_answer_is_503_and_one_record_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(headers: Headers) -> Caller | None:
        raise CannotVerify("the keys cannot be fetched", 7.2)

    with caplog.at_level(logging.WARNING):
        async with guarded(unreachable) as peer:
            for _ in range(20):
                reply = await http("POST", "/mcp")(peer, GOOD)
                assert (reply.status, reply.headers["retry-after"]) == (503, "8")
                assert "www-authenticate" not in reply.headers
    records = [record for record in caplog.records if "cannot be verified" in record.getMessage()]
    assert len(records) <= 2  # and a summary at the end


async def test_a_reason_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def check(headers: Headers) -> Caller | None:
        raise CredentialsRejected(401, "invalid_token", "two\nlines\x1b[31m %s")

    with caplog.at_level(logging.INFO):
        async with guarded(check) as peer:
            assert (await http("POST", "/mcp")(peer, {})).status == 401
    (record,) = [record for record in caplog.records if "two" in record.getMessage()]
    assert "\n" not in record.getMessage()
    assert "\x1b" not in record.getMessage()


async def test_a_function_may_reject_credentials_too() -> None:
    async def check(headers: Headers) -> Caller | None:
        raise CredentialsRejected(403, "insufficient_scope", "not enough", ["b", "a"])

    async with guarded(check) as peer:
        reply = await http("POST", "/mcp")(peer, {})
        assert reply.status == 403
        assert reply.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="a b"'


@pytest.mark.parametrize(
    "options", [(500, "e", "why"), (401, 'a"b', "why"), (403, "e", "why", ["a b"]), (403, "e", "why", "text")]
)
async def test_a_rejection_that_no_response_can_have_is_a_failure_of_the_hook(options: Any) -> None:
    async def check(headers: Headers) -> Caller | None:
        raise CredentialsRejected(*options)

    async with guarded(check) as peer:
        assert (await http("POST", "/mcp")(peer, {})).status == 500


# documents


@pytest.mark.parametrize("path", [PLACE, f"{PLACE}/mcp"])
async def test_the_metadata_is_public(path: str) -> None:
    async with guarded() as peer:
        # A browser's client, of any site, reads it.
        headers = {"host": "elsewhere.example", "origin": "https://app.example"}
        reply = await peer.get(path, headers)
        assert reply.status == 200
        assert json.loads(reply.body)["resource"] == RESOURCE
        shown = {name: reply.headers[name] for name in ("content-type", "cache-control", "access-control-allow-origin")}
        assert shown == {
            "content-type": "application/json",
            "cache-control": "max-age=300",
            "access-control-allow-origin": "*",
        }
        head = await peer.start(b"", headers, method="HEAD", path=path).end()
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", reply.headers["content-length"])
        assert (await peer.start(b"", headers, method="POST", path=path).end()).status == 405
        preflight = await peer.start(b"", headers, method="OPTIONS", path=path).end()
        assert (preflight.status, preflight.headers["access-control-allow-headers"]) == (204, "*")


async def test_without_authentication_a_warning_names_what_needs_scopes(caplog: pytest.LogCaptureFixture) -> None:
    outer = Server("outer")
    outer.mount("lib", library())
    async with served(asgi_app(outer)):
        pass
    (record,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    names = ["lib_write", "notes://lib/{name}", "lib_review", "authenticate="]
    assert unnamed(record.getMessage(), *names) == []
    caplog.clear()
    async with served(asgi_app(outer, authenticate=protected())), served(asgi_app(Server("open"))):
        pass
    assert caplog.records == []


async def test_all_scopes_of_the_server_are_in_the_metadata_if_the_author_publishes_them() -> None:
    outer = Server("outer")
    outer.mount("lib", library())
    async with served(asgi_app(outer, authenticate=protected(scopes="all"))) as peer:
        reply = await peer.get(PLACE, {})
        assert json.loads(reply.body)["scopes_supported"] == ["read", "write"]


async def document(peer: AsgiPeer, path: str, **options: str) -> str | None:
    reply = await peer.get(path, **options)
    return json.loads(reply.body)["resource"] if reply.status == 200 else None


@pytest.mark.parametrize("served_as", [lambda server: server, lambda server: {"/shop": server}], ids=["one", "by path"])
def test_a_resource_that_is_not_below_the_root_path_is_an_error_at_the_start(
    served_as: Callable[[Server], Any],
) -> None:
    for resource in ("http://127.0.0.1:8000/mcp", "http://127.0.0.1:8000/shop/mcp"):
        server = library(authenticate=protected(resource))
        with pytest.raises(ValueError, match=naming(resource, "root_path=")):
            asgi_app(served_as(server), root_path="/tools")


@pytest.mark.parametrize("resource", [None, "https://h.test/mcp"])
async def test_the_url_for_clients_is_printed_where_it_is_another_one(
    resource: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = protected(resource) if resource else static({"a-long-random-token": "bot"})
    serving = partial(serve_http, library(), port=0, signals=False, authenticate=hook, allowed_hosts=["h.test"])
    async with trio.open_nursery() as nursery:
        await nursery.start(serving)
        nursery.cancel_scope.cancel()
    printed = capsys.readouterr().err
    assert "http://127.0.0.1:" in printed
    assert (unnamed(printed, resource) == []) if resource else printed.count("\n") == 1


async def test_behind_a_root_path_the_metadata_is_below_it_too_and_the_challenge_links_to_it() -> None:
    resource = "http://127.0.0.1:8000/tools/mcp"
    async with guarded(protected(resource), root_path="/tools") as peer:
        assert await document(peer, f"{PLACE}/tools/mcp") == resource
        assert await document(peer, f"/tools{PLACE}") == resource
        assert await document(peer, PLACE) == resource
        reply = await http("POST", "/tools/mcp")(peer, {})
        assert challenge_of(reply).resource_metadata == f"http://127.0.0.1:8000/tools{PLACE}"


@pytest.mark.parametrize("strips", [True, False])
async def test_mounted_in_another_application_the_challenge_names_its_prefix(strips: bool) -> None:
    resource = "http://127.0.0.1:8000/tools/mcp"
    async with guarded(protected(resource)) as peer:
        base = "" if strips else "/tools"
        body, headers = modern_call("whoami")
        reply = await peer.start(body, headers, path=f"{base}/mcp", root="/tools").end()
        assert challenge_of(reply).resource_metadata == f"http://127.0.0.1:8000/tools{PLACE}"
        assert await document(peer, f"{base}{PLACE}", root="/tools") == resource


def by_path(**resources: Any) -> McpApps:
    servers = {f"/{name}": library(name, authenticate=hook) for name, hook in resources.items()}
    app = asgi_app(servers)
    assert isinstance(app, McpApps)
    return app


async def test_two_servers_by_path_have_two_resources_and_no_document_at_the_root() -> None:
    shop, notes = "http://127.0.0.1:8000/shop/mcp", "http://127.0.0.1:8000/notes/mcp"
    async with served(by_path(shop=protected(shop), notes=protected(notes))) as peer:
        for name, resource in (("shop", shop), ("notes", notes)):
            assert await document(peer, f"{PLACE}/{name}/mcp") == resource
            reply = await http("POST", f"/{name}/mcp")(peer, {})
            assert challenge_of(reply).resource_metadata == f"http://127.0.0.1:8000{PLACE}/{name}/mcp"
        assert await document(peer, PLACE) is None
        body, headers = modern_call("whoami")
        for name, audience, status in (("shop", shop, 200), ("notes", shop, 401), ("shop", notes, 401)):
            token = bearer("read", audience=audience)
            assert (await peer.post(body, headers | token, path=f"/{name}/mcp")).status == status


async def test_one_protected_server_of_several_has_the_document_at_the_root() -> None:
    async def function(headers: Headers) -> None:
        return None

    shop = "http://127.0.0.1:8000/shop/mcp"
    async with served(by_path(shop=protected(shop), notes=function)) as peer:
        assert await document(peer, PLACE) == shop


async def test_servers_by_path_below_a_root_path_name_a_document_that_is_forwarded() -> None:
    shop = "http://127.0.0.1:8000/all/shop/mcp"
    app = asgi_app({"/shop": library("shop", authenticate=protected(shop))}, root_path="/all")
    async with served(app) as peer:
        reply = await http("POST", "/all/shop/mcp")(peer, {})
        named = challenge_of(reply).resource_metadata or ""
        assert named == f"http://127.0.0.1:8000/all/shop{PLACE}"
        assert await document(peer, named.removeprefix("http://127.0.0.1:8000")) == shop


def test_a_resource_that_is_not_where_the_server_is_is_an_error_at_the_start() -> None:
    with pytest.raises(ValueError, match="path="):
        asgi_app(library(), authenticate=protected("http://127.0.0.1:8000/other"))
    with pytest.raises(ValueError, match="path="):
        by_path(shop=protected("http://127.0.0.1:8000/notes/mcp"))
    asgi_app(library(), authenticate=protected("http://127.0.0.1:8000"), path="/")
    with pytest.raises(ValueError, match="audience="):
        asgi_app(library(), authenticate=jwt(ISSUER.url))


# where it may be


async def test_tools_do_not_see_the_authorization_header() -> None:
    async def function(headers: Headers) -> Caller | None:
        return Caller("alice", ["read"])

    for hook, is_seen in ((None, False), (function, True)):
        async with guarded(hook) as peer:
            body, headers = modern_call("seen")
            seen = (await peer.post(body, headers | GOOD)).json["result"]["structuredContent"]
            assert ("authorization" in seen) is is_seen
            assert seen["host"] == "localhost:8000"
            session = await peer.open_session(who=GOOD)
            body = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "seen", "arguments": {}}}
            result = json.dumps((await peer.post(body, session)).last)
            assert ("authorization" in result) is is_seen


async def test_a_custom_route_does_not_see_it_either() -> None:
    server = library(authenticate=protected())

    @server.route("/report")
    async def report(request: HttpRequest) -> HttpResponse:
        assert request.caller is not None
        return HttpResponse(f"{request.caller.principal} {'authorization' in request.headers}")

    @server.route("/open", public=True)
    async def open_page(request: HttpRequest) -> HttpResponse:
        return HttpResponse("open")

    async with served(asgi_app(server)) as peer:
        assert (await peer.get("/report", {"host": "localhost", **GOOD})).body == b"alice False"
        assert (await peer.get("/report")).status == 401
        assert (await peer.get("/open")).body == b"open"
        assert (await peer.get("/health", {})).status == 200


@asynccontextmanager
async def connect() -> AsyncIterator[Any]:
    async with find_transport("memory").connect(library()) as channel:
        yield channel


@pytest.mark.parametrize("front", [lambda: proxy(library()), lambda: RelayServer(connect, Backfill())])
async def test_a_proxy_and_a_backfill_are_protected_as_a_server_is(front: Callable[[], Any]) -> None:
    async with served(asgi_app(front(), authenticate=protected())) as peer:
        assert (await http("POST", "/mcp")(peer, GOOD)).status == 200
        assert (await http("POST", "/mcp")(peer, {})).status == 401
        assert await document(peer, PLACE) == RESOURCE


async def test_a_protected_server_is_mounted_in_a_protected_one_only() -> None:
    with pytest.raises(ValueError, match="authenticate="):
        Server("open").mount("lib", library(authenticate=protected()))
    outer = Server("outer", http=HttpOptions(authenticate=protected(required=["outer"])))
    outer.mount("lib", library(authenticate=protected(required=["outer"])))
    async with served(asgi_app(outer)) as peer:
        body, headers = modern_call("lib_whoami")
        assert (await peer.post(body, headers | GOOD)).status == 403
        assert (await peer.post(body, headers | bearer("outer"))).status == 200
        body, headers = modern_call("lib_write")
        refused = challenge_of(await peer.post(body, headers | bearer("outer")))
        assert refused.scope == "outer read write"


async def test_what_is_within_a_server_needs_its_required_scopes_wherever_it_is_served() -> None:
    # Mounted where that is checked, and behind a proxy; then served with another hook.
    mounted = Server("outer", http=HttpOptions(authenticate=protected()))
    mounted.mount("lib", library(authenticate=protected()))
    for outer in (mounted, proxy(library(authenticate=protected()))):
        with pytest.raises(ConfigurationError, match=naming("library", "read", "required=")):
            async with asgi_app(outer, authenticate=protected(required=["other"])).serving():
                pass
        async with asgi_app(outer, authenticate=protected(required=["read", "other"])).serving():
            pass
    # What the server itself says is replaced by the call.
    async with asgi_app(library(authenticate=protected()), authenticate=protected(required=[])).serving():
        pass


async def test_the_keys_are_fetched_when_the_server_starts() -> None:
    prepared = trio.Event()

    class Hook(ProtectedResource):
        async def prepare(self) -> None:
            prepared.set()
            raise RuntimeError("a failure is logged")

    hook = Hook(RESOURCE, jwt(ISSUER.url, keys=ISSUER.jwks))
    async with guarded(hook) as peer:
        with trio.fail_after(5):
            await prepared.wait()
        assert (await http("POST", "/mcp")(peer, GOOD)).status == 200


# secrets


def everything_said(caplog: pytest.LogCaptureFixture, errors: list[BaseException]) -> str:
    said = [caplog.text]
    for record in caplog.records:
        said += [repr(record.__dict__)]
    for error in errors:
        said += ["".join(traceback.format_exception(error)), repr(error), repr(error.args)]
    return "\n".join(said)


async def test_no_token_or_secret_is_in_any_log_error_or_repr(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "canary-" + "x" * 20
    signed = ISSUER.token(canary, audience="https://other.example", claims={"secret": canary})
    errors: list[BaseException] = []
    listed = static({canary: "bot"})
    secret = introspection(ISSUER.url, client_id="a", client_secret=canary)

    async def failing(url: str, *_: Any, **__: Any) -> Any:
        raise AuthorizationError(f"{url} cannot be reached", kind=AuthorizationErrorKind.UNAVAILABLE)

    with caplog.at_level(logging.DEBUG):
        for hook in (
            protected(),
            ProtectedResource(
                RESOURCE, any_of(jwt(ISSUER.url, keys=ISSUER.jwks), static({"another-" + canary: "bot"}))
            ),
            ProtectedResource(RESOURCE, secret),
            ProtectedResource(RESOURCE, listed),
        ):
            monkeypatch.setattr("trio_mcp.auth.server.introspection.fetch", failing)
            monkeypatch.setattr("trio_mcp.auth.client.driver.fetch", failing)
            async with guarded(hook, access_log=True) as peer:
                for value in (
                    canary,
                    signed,
                    f"{canary} {canary}",
                    f"{canary}\x00",
                    signed + "x",
                    f"{signed}.{canary}",
                ):
                    reply = await http("POST", "/mcp", query=f"access_token={canary}")(
                        peer, {"authorization": f"Bearer {value}"}
                    )
                    assert canary not in str(reply.headers) + reply.body.decode()
            for value in (canary, signed, f"{canary} {canary}"):
                try:
                    await hook({"authorization": f"Bearer {value}"})
                except (CredentialsRejected, CannotVerify) as error:
                    errors.append(error)
            errors.append(RuntimeError(repr(hook)))
        caller = await listed({"authorization": f"Bearer {canary}"})
        errors.append(RuntimeError(repr(caller)))
    gc.collect()
    assert len(errors) > 8
    assert canary not in everything_said(caplog, errors)
    assert signed not in everything_said(caplog, errors)
