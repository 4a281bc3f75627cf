"""`OAuthProxy`: logins through providers that cannot protect a server themselves, and what attackers of it get."""

from __future__ import annotations

import json
import logging
import re
import time
from base64 import urlsafe_b64decode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import trio
from log_limits import SHOWN
from proxy_world import (
    COOKIE,
    FORM,
    KEYS,
    ORIGIN,
    REDIRECT,
    RESOURCE,
    SECRET,
    Program,
    World,
    answer,
    failure,
    is_page,
    members,
    query_of,
    target_of,
    ticket_in,
)
from test_fetching import serve
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Caller
from trio_mcp.auth import (
    ENTRA,
    GITHUB,
    GOOGLE,
    CredentialsRejected,
    OAuthProvider,
    OAuthProxy,
    ProtectedResource,
    any_of,
    jwt,
    static,
)
from trio_mcp.auth.fetching import FETCH_SECONDS
from trio_mcp.auth.proxy.sealed import Access, Box, Client, Code, Refresh, State, Ticket
from trio_mcp.auth.replies import Reply
from trio_mcp.base.shared_limits import FETCHED_CLIENTS, PROVIDER_REQUESTS
from trio_mcp.http import HttpOptions, HttpRequest, HttpResponse
from trio_mcp.protocol.sealing.at_rest import Unsealable, Vault
from trio_mcp.session import KeyRing
from trio_mcp.session.options import WORKPLACE, Workplace
from trio_mcp.types import JsonObject

OTHER = KeyRing([b"o" * 32])
MINUTE = 60.0


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.fixture
async def program(world: World) -> Program:
    return await Program.registered(world)


class Clock:
    """The time of this process, which the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = time.time()
        monkeypatch.setattr("time.time", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def example(base: str = "https://login.example.com", **options: Any) -> OAuthProvider:
    urls = {name: f"{base}/{name}" for name in ("authorize_url", "token_url", "user_url")}
    return OAuthProvider(**{"name": "Example", **urls, **options})


def proxy(provider: OAuthProvider = GITHUB, **options: Any) -> OAuthProxy:
    return OAuthProxy(provider, **{"client_id": "x", "client_secret": SECRET, **options})


# Logging in.


async def test_a_user_logs_in_and_tools_see_what_the_provider_says_of_the_user(program: Program) -> None:
    tokens = await program.tokens(scope="read write admin")
    assert (tokens["token_type"], tokens["scope"]) == ("Bearer", "read write")
    assert 3590 < tokens["expires_in"] <= 3600
    caller = await program.world.caller(tokens["access_token"])
    assert caller == Caller("583231", ["read", "write"], OCTOCAT)


OCTOCAT = {"id": 583231, "login": "octocat", "name": "Octocat", "email": None}


async def odd_claims(user: JsonObject, token: str) -> Any:
    return {1: ("a", "b")}


@pytest.mark.parametrize(
    ("options", "caller"),
    [
        ({"provider": example(basic=True), "user": {"sub": "1"}}, Caller("1", ["read"], {"sub": "1"})),
        ({"identity": odd_claims}, Caller("583231", ["read"], {"1": ["a", "b"]})),
        ({"realm": "github"}, Caller("github:583231", ["read"], OCTOCAT)),
    ],
    ids=["the secret is in the header", "claims are what JSON makes of them", "a realm begins the principal"],
)
async def test_options_of_a_login(monkeypatch: pytest.MonkeyPatch, options: Any, caller: Caller) -> None:
    world = World(monkeypatch, **options)
    tokens = await (await Program.registered(world)).tokens()
    assert await world.caller(tokens["access_token"]) == caller


@pytest.mark.parametrize(
    ("provider", "user", "principal", "asked"),
    [
        (GITHUB, {"id": 583231, "login": "octocat"}, "583231", None),
        (GOOGLE, {"sub": "1098", "email": "a@example.com", "hd": "example.com"}, "1098", "openid email profile"),
        (ENTRA("contoso.com"), {"sub": "AAAB", "name": "Alice"}, "AAAB", "openid email profile offline_access"),
    ],
)
async def test_each_provider_is_asked_as_it_documents(
    monkeypatch: pytest.MonkeyPatch, provider: OAuthProvider, user: JsonObject, principal: str, asked: str | None
) -> None:
    world = World(monkeypatch, provider, user)
    program = await Program.registered(world)
    url = target_of(await world.consent(await program.authorize()))
    query = dict(part.split("=") for part in urlsplit(url).query.split("&"))
    assert query.get("scope", "").replace("+", " ") == (asked or "")
    assert (query.get("access_type"), query.get("prompt")) == (
        ("offline", "consent") if provider is GOOGLE else (None, None)
    )
    tokens = await program.tokens()
    caller = await world.caller(tokens["access_token"])
    assert (caller.principal, caller.claims) == (principal, user)
    refreshed = members(await program.refresh(tokens["refresh_token"]))
    assert await world.caller(refreshed["access_token"]) == caller


async def test_a_restart_in_the_middle_of_a_login_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, world: World, program: Program
) -> None:
    page = await program.authorize()
    second = world.restarted(monkeypatch)
    leaving = await second.consent(page)
    third = second.restarted(monkeypatch)
    back = await third.get("callback", world.stand_in.log_in(target_of(leaving)))
    program.world = third.restarted(monkeypatch)
    tokens = members(await program.redeem(query_of(back)["code"]))
    assert await world.caller(tokens["access_token"]) is not None


async def test_two_logins_in_one_browser_do_not_disturb_each_other(program: Program) -> None:
    first, second = await program.authorize(), await program.authorize()
    for page in (first, second):
        assert "code" in query_of(await program.world.back_from(page))


async def test_the_redirect_has_the_state_of_the_client_and_the_issuer(program: Program) -> None:
    back = await program.world.back_from(await program.authorize())
    assert back.headers["location"].startswith(f"{REDIRECT}?code=")
    assert (query_of(back)["state"], query_of(back)["iss"]) == ("state-of-the-client", RESOURCE)


async def test_a_redirect_uri_with_a_query_keeps_it(world: World) -> None:
    uri = "https://app.example.com/back?tenant=1"
    program = await Program.registered(world, redirect_uris=[uri])
    program.redirect_uri = uri
    leaving = await world.consent(await program.authorize(state=""), "deny")
    assert target_of(leaving).startswith(f"{uri}&error=access_denied&iss=")


async def test_required_scopes_are_granted_also_if_no_scope_is_requested(program: Program) -> None:
    assert (await program.tokens(scope=""))["scope"] == "read"


@pytest.mark.parametrize(
    "path", ["/.well-known/oauth-authorization-server/mcp", "/.well-known/openid-configuration/mcp"]
)
async def test_the_metadata_is_where_clients_look_for_it(world: World, path: str) -> None:
    document = json.loads(world.hook.documents([])[path])
    response = await world.request("GET", "/mcp/.well-known/openid-configuration")
    assert members(response) == document
    assert (document["issuer"], document["scopes_supported"]) == (RESOURCE, ["read", "write"])
    assert document["authorization_response_iss_parameter_supported"] is True
    assert json.loads(world.hook.documents([])["/.well-known/oauth-protected-resource/mcp"])[
        "authorization_servers"
    ] == [RESOURCE]


@pytest.mark.parametrize(("provider", "has"), [(GITHUB, False), (GOOGLE, True)])
async def test_revocation_is_offered_if_the_provider_revokes(
    monkeypatch: pytest.MonkeyPatch, provider: OAuthProvider, has: bool
) -> None:
    document = json.loads(next(reversed(World(monkeypatch, provider).hook.documents([]).values())))
    assert ("revocation_endpoint" in document) is has


async def test_the_urls_of_a_usual_login_are_short(program: Program) -> None:
    state, scope = "s" * 43, "read write"
    asked = f"{RESOURCE}/oauth/authorize?" + "&".join(f"{k}={v}" for k, v in program.request(state=state).items())
    leaving = target_of(await program.world.consent(await program.authorize(state=state, scope=scope)))
    back = await program.world.get("callback", program.world.stand_in.log_in(leaving))
    assert max(map(len, (asked, leaving, back.headers["location"]))) < 1_200


# What a user and a provider decide.


async def test_a_user_who_cancels_is_sent_back_with_an_error(program: Program) -> None:
    leaving = await program.world.consent(await program.authorize(), "deny")
    issuer = "https%3A%2F%2Fmcp.example.com%2Fmcp"
    assert target_of(leaving) == f"{REDIRECT}?error=access_denied&state=state-of-the-client&iss={issuer}"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"error": "access_denied", "error_description": "<script>"}, "access_denied"),
        ({"error": "<script>"}, "server_error"),
        ({"error": "access_denied", "code": "code"}, "access_denied"),
        ({}, "server_error"),
        ({"code": ""}, "server_error"),
        ({"code": "c" * 5_000}, "server_error"),
    ],
)
async def test_an_error_of_the_provider_becomes_one_of_ours(program: Program, said: dict[str, str], error: str) -> None:
    leaving = await program.world.consent(await program.authorize())
    state = program.world.stand_in.log_in(target_of(leaving))["state"]
    back = query_of(await program.world.get("callback", {**said, "state": state}))
    assert back == {"error": error, "state": "state-of-the-client", "iss": RESOURCE}


async def test_identity_decides_who_may_log_in_and_what_tools_see(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[JsonObject, str]] = []

    async def member(user: JsonObject, token: str) -> JsonObject | None:
        seen.append((user, token))
        return {"team": "blue"} if user["login"] == "octocat" else None

    world = World(monkeypatch, identity=member)
    program = await Program.registered(world)
    tokens = await program.tokens()
    assert await world.caller(tokens["access_token"]) == Caller("583231", ["read"], {"team": "blue"})
    assert seen[0][1].startswith("token-of-the-provider")
    world.stand_in.user["login"] = "mallory"
    assert failure(await program.refresh(tokens["refresh_token"])) == (400, "invalid_grant")


async def test_tools_get_the_token_of_the_provider_only_if_the_server_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for shows, expected in ((False, None), (True, "token-of-the-provider-2")):
        world = World(monkeypatch, upstream_token=shows)
        world.stand_in.expires_in = 600
        tokens = await (await Program.registered(world)).tokens()
        assert (await world.caller(tokens["access_token"])).claims.get("upstream_token") == expected
        # It is refreshed when it expires, because ours expires with it.
        assert tokens["expires_in"] in (599, 600)


# Refreshing.


async def test_a_refresh_asks_the_provider_and_its_rotated_token_is_used_next(program: Program) -> None:
    stand_in, tokens = program.world.stand_in, await program.tokens()
    for _ in range(2):
        used = sorted(stand_in.refreshable)
        tokens = members(await program.refresh(tokens["refresh_token"]))
        assert [form["refresh_token"] for _, form, _ in stand_in.seen if form.get("refresh_token")][-1] in used
        stand_in.refreshable -= set(used)
    stand_in.refreshable.clear()
    assert failure(await program.refresh(tokens["refresh_token"])) == (400, "invalid_grant")


async def test_without_refresh_tokens_a_token_that_does_not_expire_is_checked_at_each_refresh(program: Program) -> None:
    stand_in = program.world.stand_in
    stand_in.expires_in, stand_in.issues_refresh = None, False
    tokens = await program.tokens()
    refreshed = members(await program.refresh(tokens["refresh_token"]))
    assert await program.world.caller(refreshed["access_token"]) is not None
    stand_in.access.clear()
    assert failure(await program.refresh(refreshed["refresh_token"])) == (400, "invalid_grant")


async def test_a_provider_without_refresh_tokens_whose_tokens_expire_gives_none(program: Program) -> None:
    program.world.stand_in.issues_refresh = False
    assert "refresh_token" not in await program.tokens()


async def test_a_refresh_may_narrow_the_scopes_and_never_widens_them(program: Program) -> None:
    tokens = await program.tokens(scope="read write")
    narrow = members(await program.refresh(tokens["refresh_token"], scope="read"))
    assert narrow["scope"] == "read"
    assert members(await program.refresh(narrow["refresh_token"], scope="read write"))["scope"] == "read"


async def test_parameters_without_a_value_count_as_left_out(world: World, program: Program) -> None:
    """RFC 6749, 3.1 and 3.2: a client that writes `scope=` in a refresh would lose its scopes."""
    page = await world.get("authorize", {**program.request(), "resource": "", "response_mode": "", "scope": ""})
    leaving = await world.consent(page)
    back = query_of(await world.get("callback", {**world.stand_in.log_in(target_of(leaving)), "error": ""}))
    assert (await program.redeem(back["code"], resource="")).status == 200
    tokens = await program.tokens(scope="read write")
    assert members(await program.refresh(tokens["refresh_token"], scope="", resource=""))["scope"] == "read write"


async def test_a_refresh_token_belongs_to_its_client(world: World, program: Program) -> None:
    tokens = await program.tokens()
    other = await Program.registered(world, client_name="another")
    assert failure(await other.refresh(tokens["refresh_token"])) == (400, "invalid_grant")


async def test_a_refresh_token_belongs_to_its_user(program: Program) -> None:
    """OpenID Connect, 12.2: what a provider mixes up does not make one user another."""
    tokens = await program.tokens()
    program.world.stand_in.user["id"] += 1
    assert failure(await program.refresh(tokens["refresh_token"])) == (400, "invalid_grant")


# A provider in trouble.


@pytest.mark.parametrize("what", ["away", "503", "429", "html", "no token", "our secret is wrong", "about users"])
async def test_a_provider_in_trouble_is_503_and_no_client_throws_its_tokens_away(program: Program, what: str) -> None:
    tokens, stand_in = await program.tokens(), program.world.stand_in
    replies = {
        "503": Reply(503),
        "429": Reply(429),
        "html": Reply(200, {}, b"<html>"),
        "no token": answer({}),
        "our secret is wrong": answer({"error": "incorrect_client_credentials"}),
    }
    stand_in.down = what == "away"
    stand_in.token_reply = replies.get(what)
    stand_in.user_reply = Reply(503) if what == "about users" else None
    response = await program.refresh(tokens["refresh_token"])
    assert failure(response) == (503, "temporarily_unavailable")
    assert response.headers["retry-after"] == "5"


@pytest.mark.parametrize("name", ["token_url", "user_url"])
async def test_a_provider_that_never_answers_is_given_up_and_no_client_throws_its_tokens_away(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    world = World(monkeypatch, example("http://127.0.0.1:9"), {"sub": "1"})
    program = await Program.registered(world)
    tokens = await program.tokens()
    serve(monkeypatch, None)
    world.stand_in.silent, begun = f"http://127.0.0.1:9/{name}", trio.current_time()
    assert failure(await program.refresh(tokens["refresh_token"])) == (503, "temporarily_unavailable")
    assert trio.current_time() == begun + FETCH_SECONDS
    world.stand_in.silent = ""
    assert (await program.refresh(tokens["refresh_token"])).status == 200


@pytest.mark.parametrize("path", ["token", "revoke"])
async def test_an_address_whose_requests_wait_for_the_provider_leaves_room_for_others(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Anyone can make codes that the provider is asked about: a callback may have any."""
    world = World(monkeypatch, example("http://127.0.0.1:9", revoke_url="http://127.0.0.1:9/revoke_url"), {"sub": "1"})
    program = await Program.registered(world)
    token, code = (await program.tokens())["refresh_token"], await program.code()
    form = {"client_id": program.client_id, "token": token, "refresh_token": token, "grant_type": "refresh_token"}
    statuses: list[int] = []

    async def send(address: str) -> None:
        response = await world.request("POST", f"/mcp/oauth/{path}", body=form, client=address)
        statuses.append(response.status)

    serve(monkeypatch, None)
    world.stand_in.silent = f"http://127.0.0.1:9/{path}_url"
    async with trio.open_nursery() as nursery:
        for number in range(PROVIDER_REQUESTS.limit + 1):
            nursery.start_soon(send, f"2001:db8::{number:x}")
        await wait_all_tasks_blocked()
        assert statuses == [503] * (PROVIDER_REQUESTS.limit // 2 + 1)
        world.stand_in.silent = ""
        await send("192.0.2.1")
        assert statuses[-1] == 200
        # What the provider is not asked about is answered.
        assert failure(await program.redeem(code, code_verifier="w" * 43)) == (400, "invalid_grant")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("user", [{}, {"id": None}, {"id": ""}, {"id": True}, {"id": ["x"]}, {"id": "x" * 2_000}, []])
async def test_a_user_without_an_identity_gets_no_token(program: Program, user: Any) -> None:
    program.world.stand_in.user_reply = answer(user)
    assert failure(await program.redeem(await program.code())) == (503, "temporarily_unavailable")


async def test_an_identity_that_raises_is_a_provider_in_trouble(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may ask the provider for more, which may be away: a client must not throw its tokens away for that."""
    fails = False

    async def member(user: JsonObject, token: str) -> JsonObject:
        if fails:
            raise OSError("no route to the provider")
        return {}

    program = await Program.registered(World(monkeypatch, identity=member))
    tokens, fails = await program.tokens(), True
    response = await program.refresh(tokens["refresh_token"])
    assert failure(response) == (503, "temporarily_unavailable")
    assert response.headers["cache-control"] == "no-store"
    assert "in member" in caplog.text
    assert "no route" in caplog.text


async def test_refused_requests_do_not_fill_the_log(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(100):
        await program.redeem("made-up")
    assert len(caplog.records) <= 2 * SHOWN


@pytest.mark.parametrize(
    ("claims", "advice"),
    [(["x"], ""), ({"when": object()}, ""), ({"x": float("nan")}, ""), ({"x": "y" * 7_000}, "fewer claims")],
)
async def test_claims_that_no_token_can_hold_are_an_error_of_the_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, claims: Any, advice: str
) -> None:
    async def odd(user: JsonObject, token: str) -> JsonObject:
        return claims  # type: ignore[no-any-return]

    program = await Program.registered(World(monkeypatch, identity=odd))
    assert failure(await program.redeem(await program.code())) == (503, "temporarily_unavailable")
    assert advice in caplog.text


# Registration.


@pytest.mark.parametrize(
    "uris",
    [
        [],
        None,
        "https://app.example.com/",
        [f"https://app.example.com/{number}" for number in range(1_000)],
        [f"https://app.example.com/{'x' * 600}"],
        ["javascript:alert(1)"],
        ["data:text/html,x"],
        ["file:///etc/passwd"],
        ["com.example.app:/callback"],
        ["http://app.example.com/"],
        ["http://127.0.0.1.example.com/"],
        ["http://localhost.example.com/"],
        ["https://app.example.com/#fragment"],
        ["https://app.example.com/#"],
        ["https://user@app.example.com/"],
        ["https://app.example.com\\@evil.example/"],
        ["https://app.example.com/\r\nset-cookie: x=1"],
        ["https://app.example.com/a b"],
        ["https://"],
        ["//app.example.com/"],
        [7],
    ],
)
async def test_only_redirect_uris_of_https_or_of_this_machine_are_registered(world: World, uris: Any) -> None:
    assert failure(await world.register(redirect_uris=uris)) == (400, "invalid_redirect_uri")


TWICE = b'{"redirect_uris": ["https://evil.example/"], "redirect_uris": ["https://app.example.com/"]}'


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b"\xff", b'{"redirect_uris": NaN}', b"[" * 5_000, TWICE])
async def test_a_registration_is_a_json_object(world: World, body: bytes) -> None:
    response = await world.request("POST", "/mcp/oauth/register", body=body)
    assert failure(response) == (400, "invalid_client_metadata")


async def test_the_answer_to_a_registration_has_what_clients_use(world: World) -> None:
    response = await world.register(token_endpoint_auth_method="client_secret_post", scope="read")
    document = members(response)
    assert response.status == 201
    assert (document["token_endpoint_auth_method"], document["redirect_uris"]) == ("none", [REDIRECT])
    assert "client_secret" not in document


async def test_a_name_that_is_no_text_is_refused_and_a_long_one_is_cut(world: World) -> None:
    assert failure(await world.register(client_name={"a": 1})) == (400, "invalid_client_metadata")
    assert len(members(await world.register(client_name="n" * 10_000))["client_name"]) == 64


# Client ids that are URLs of metadata.

CIMD = "https://app.example.com/client.json"


async def test_a_client_id_may_be_the_url_of_its_metadata(world: World) -> None:
    world.stand_in.documents[CIMD] = {"client_id": CIMD, "client_name": "App", "redirect_uris": [REDIRECT]}
    program = Program(world, CIMD)
    page = await program.authorize()
    assert "<dd>app.example.com</dd>" in text_of(page)
    tokens = await program.tokens()
    assert await world.caller(tokens["access_token"]) is not None
    fetched = [url for url, _, _ in world.stand_in.seen].count(CIMD)
    assert members(await program.refresh(tokens["refresh_token"]))["scope"] == "read"
    assert [url for url, _, _ in world.stand_in.seen].count(CIMD) == fetched


async def test_the_host_of_metadata_is_shown_where_no_name_of_a_program_can_stand(world: World) -> None:
    """Who registers chooses the name, and only who has the host can publish there."""
    world.stand_in.documents[CIMD] = {"client_id": CIMD, "client_name": "App", "redirect_uris": [REDIRECT]}
    imitator = await Program.registered(world, client_name="App, of app.example.com")
    published, registered = await Program(world, CIMD).authorize(), await imitator.authorize()
    assert "<bdi>App</bdi></dd>\n<dt>Its details are published at</dt><dd>app.example.com</dd>" in text_of(published)
    assert "Its details are published at" not in text_of(registered)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"client_id": "https://app.example.com/other.json", "redirect_uris": [REDIRECT]},
        {"redirect_uris": [REDIRECT]},
        {"client_id": CIMD, "redirect_uris": ["https://evil.example/"]},
        {"client_id": CIMD, "redirect_uris": ["javascript:alert(1)", REDIRECT]},
        {"client_id": CIMD},
    ],
)
async def test_metadata_that_is_not_its_own_or_lacks_the_redirect_uri_is_refused(world: World, document: Any) -> None:
    if document is not None:
        world.stand_in.documents[CIMD] = document
    assert is_page(await Program(world, CIMD).authorize())


@pytest.mark.parametrize(
    ("kind", "is_read"),
    [
        ("application/json; charset=utf-8", True),
        ("Application/JSON", True),
        ("application/client-metadata+json", True),
        ("text/plain", False),
        ("text/html", False),
        ("application/octet-stream", False),
        ("text/x+json", False),
        ("", False),
    ],
)
async def test_metadata_is_served_as_json(world: World, kind: str, is_read: bool) -> None:
    """Sites that show what their users upload serve it as something else."""
    world.stand_in.documents[CIMD] = {"client_id": CIMD, "redirect_uris": [REDIRECT]}
    world.stand_in.document_type = kind
    assert is_page(await Program(world, CIMD).authorize()) is not is_read


@pytest.mark.parametrize(
    "url",
    [
        "https://app.example.com",
        "https://app.example.com/",
        "http://app.example.com/c",
        f"{CIMD}#x",
        "https://app.example.com/a/../c",
        "https://app.example.com/./c",
        "https://app.example.com/a/..",
        "https://app.example.com/a/%2e%2E/c",
    ],
)
async def test_nothing_is_fetched_for_a_client_id_that_is_no_url_of_metadata(world: World, url: str) -> None:
    assert is_page(await Program(world, url).authorize())
    assert world.stand_in.seen == []


async def test_only_some_metadata_is_fetched_at_a_time(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    monkeypatch.setattr("trio_mcp.auth.proxy.clients.FETCHED_CLIENTS", FETCHED_CLIENTS._replace(limit=0))
    busy = world.restarted(monkeypatch)
    assert is_page(await Program(busy, CIMD).authorize(), 503)


async def test_an_address_that_names_metadata_which_never_comes_leaves_room_for_others(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    world.stand_in.documents[CIMD] = {"client_id": CIMD, "redirect_uris": [REDIRECT]}
    pages: dict[str, HttpResponse] = {}

    async def fetch(url: str, *more: Any, **options: Any) -> Reply:
        if url != CIMD:
            await trio.sleep_forever()
        return await world.stand_in.fetch(url, *more, **options)

    async def authorize(url: str, address: str) -> None:
        query = urlencode(Program(world, url).request())
        request = HttpRequest("GET", "/mcp/oauth/authorize", query, client=address)
        pages[address] = await world.routes["/mcp/oauth/authorize", "GET"].handler(request)

    monkeypatch.setattr("trio_mcp.auth.proxy.clients.fetch", fetch)
    async with trio.open_nursery() as nursery:
        # In IPv6 a client has a whole network.
        for number in range(1, FETCHED_CLIENTS.limit + 1):
            nursery.start_soon(authorize, "https://evil.example/silent", f"2001:db8::{number:x}")
        await wait_all_tasks_blocked()
        assert [page.status for page in pages.values()] == [503] * (FETCHED_CLIENTS.limit // 2)
        await authorize(CIMD, "192.0.2.1")
        nursery.cancel_scope.cancel()
    assert ticket_in(pages["192.0.2.1"])


# An authorization request that is wrong shows a page, and sends the browser nowhere.


@pytest.mark.parametrize(
    "changed",
    [
        {"client_id": ""},
        {"client_id": "made-up"},
        {"client_id": "A" * 20_000},
        {"redirect_uri": ""},
        {"redirect_uri": "https://evil.example/"},
        {"redirect_uri": f"{REDIRECT}/"},
        {"redirect_uri": f"{REDIRECT}?x=1"},
        {"redirect_uri": REDIRECT.replace("8765", "8766")},
        {"redirect_uri": REDIRECT.upper()},
        {"response_type": "token"},
        {"response_type": ""},
        {"response_mode": "form_post"},
        {"response_mode": "fragment"},
        {"code_challenge": ""},
        {"code_challenge": "short"},
        {"code_challenge": "=" * 43},
        {"code_challenge_method": "plain"},
        {"code_challenge_method": ""},
        {"resource": "https://other.example.com/mcp"},
        {"resource": f"{RESOURCE}/more"},
        {"resource": "no url"},
        {"state": "s" * 1_500},
    ],
)
async def test_a_wrong_authorization_request_is_only_a_page(program: Program, changed: dict[str, str]) -> None:
    assert is_page(await program.authorize(**changed))


async def test_a_parameter_that_comes_twice_is_refused(program: Program) -> None:
    query = "&".join(f"{name}={value}" for name, value in program.request().items())
    for more in ("redirect_uri=https://evil.example/", "resource=https://other.example/", "scope=write", "state=x"):
        assert is_page(await program.world.get("authorize", f"{query}&{more}"))


async def test_a_registration_of_other_keys_of_another_server_or_expired_is_unknown(
    monkeypatch: pytest.MonkeyPatch, world: World, program: Program, clock: Clock
) -> None:
    for other in (World(monkeypatch, keys=OTHER), World(monkeypatch, resource="https://other.example.com/mcp")):
        stranger = Program(other, program.client_id)
        assert is_page(await stranger.authorize(resource=""))
        assert failure(await stranger.refresh("x")) == (401, "invalid_client")
    clock.now += 91 * 86_400
    assert is_page(await program.authorize())


# Consent.


async def test_the_user_is_asked_each_time_also_with_a_cookie_of_an_earlier_login(program: Program) -> None:
    await program.tokens()
    page = await program.authorize()
    assert page.status == 200
    assert ticket_in(page)


async def test_a_form_that_is_posted_twice_leads_to_one_login(program: Program) -> None:
    page = await program.authorize()
    first, second = [query_of(await program.world.back_from(page))["code"] for _ in range(2)]
    assert first != second
    # Each is a login at the provider that the same user has agreed to, in the same browser, for the same client.
    assert (await program.redeem(first)).status == 200
    assert failure(await program.redeem(first)) == (400, "invalid_grant")


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "", f"{ORIGIN}.evil.example", "http://mcp.example.com"]
)
async def test_a_form_of_another_origin_is_refused(program: Program, origin: str) -> None:
    page = await program.authorize()
    assert is_page(await program.world.consent(page, origin=origin), 403)


async def test_a_form_is_posted_and_not_fetched(world: World) -> None:
    assert ("/mcp/oauth/consent", "GET") not in world.routes


async def test_a_ticket_or_a_state_of_another_browser_is_refused(program: Program) -> None:
    world = program.world
    page = await program.authorize()
    leaving = target_of(await world.consent(page))
    victim = "V" * 32
    for cookie in (victim, "", "x"):
        world.cookie = cookie
        assert is_page(await world.consent(page))
        assert is_page(await world.get("callback", world.stand_in.log_in(leaving)))


async def test_a_cookie_that_comes_twice_is_none(program: Program) -> None:
    world = program.world
    page = await program.authorize()
    mine = world.cookie
    world.cookie = f"{mine}; __Host-mcp-login={'E' * 32}"
    assert is_page(await world.consent(page))
    # A new login gets another cookie.
    await program.authorize()
    assert re.fullmatch(r"[\w-]{32}", world.cookie)
    assert world.cookie not in (mine, "E" * 32)


@pytest.mark.parametrize("before", ["\x85", "\xa0", "\x1f", "\x0b"])
async def test_a_cookie_whose_name_only_looks_like_ours_without_a_space_is_none(program: Program, before: str) -> None:
    """A browser lets every sibling of this host set it: its name does not begin with `__Host-`."""
    world, page = program.world, await program.authorize()
    of_attacker, leaving = world.cookie, target_of(await world.consent(page))
    headers = {**FORM, "origin": ORIGIN, "cookie": f"other=1; {before}{COOKIE}={of_attacker}"}
    world.cookie = ""
    back = urlencode(world.stand_in.log_in(leaving))
    assert is_page(await world.request("GET", "/mcp/oauth/callback", back, headers=headers))
    form = {"ticket": ticket_in(page), "answer": "allow"}
    assert is_page(await world.request("POST", "/mcp/oauth/consent", body=form, headers=headers))


async def test_the_cookie_is_for_this_host_alone_and_not_for_scripts(program: Program) -> None:
    page = await program.authorize()
    name, _, rest = page.headers["set-cookie"].partition("=")
    assert name == "__Host-mcp-login"
    assert set(rest.split("; ")[1:]) == {"Path=/", "HttpOnly", "SameSite=Lax", "Max-Age=1200", "Secure"}


@pytest.mark.parametrize("body", [{}, {"answer": "allow"}, {"ticket": "", "answer": "allow"}, {"ticket": "x" * 60_000}])
async def test_a_form_without_its_ticket_is_refused(program: Program, body: dict[str, str]) -> None:
    await program.authorize()
    assert is_page(await program.world.post("consent", body, origin=ORIGIN))


async def test_a_body_that_is_no_form_is_refused(program: Program) -> None:
    page = await program.authorize()
    assert is_page(await program.world.consent(page, content_type="text/plain"))
    assert failure(await program.world.post("token", {}, content_type="application/json")) == (400, "invalid_request")


# The callback.


async def test_a_callback_needs_the_state_of_this_login(program: Program, clock: Clock) -> None:
    world = program.world
    leaving = await world.consent(await program.authorize())
    good = world.stand_in.log_in(target_of(leaving))
    for state in ({}, {"state": ""}, {"state": "made-up"}, {"state": good["state"][:-4] + "AAAA"}):
        assert is_page(await world.get("callback", {"code": good["code"], **state}))
    assert is_page(await world.get("callback", f"code=x&code=y&state={good['state']}"))
    clock.now += 601
    assert is_page(await world.get("callback", good))


async def test_a_code_of_another_login_at_the_provider_is_of_no_use(program: Program) -> None:
    """PKCE at the provider: an attacker cannot put a code of their login into that of a victim."""
    world = program.world
    attackers = world.stand_in.log_in(target_of(await world.consent(await program.authorize())))
    victims = world.stand_in.log_in(target_of(await world.consent(await program.authorize())))
    back = await world.get("callback", {"code": attackers["code"], "state": victims["state"]})
    assert failure(await program.redeem(query_of(back)["code"])) == (400, "invalid_grant")


# Codes and tokens.


@pytest.mark.parametrize(
    "changed",
    [
        {"code_verifier": "w" * 43},
        {"code_verifier": ""},
        {"redirect_uri": "http://127.0.0.1:8765/other"},
        {"redirect_uri": ""},
        {"code": "made-up"},
        {"code": ""},
    ],
)
async def test_a_code_needs_the_verifier_and_redirect_of_its_login(program: Program, changed: dict[str, str]) -> None:
    code = await program.code()
    asked = len(program.world.stand_in.seen)
    assert failure(await program.redeem(code, **changed)) == (400, "invalid_grant")
    # The provider is not asked, so that the good code is not lost.
    assert len(program.world.stand_in.seen) == asked
    assert (await program.redeem(code)).status == 200


GUESSED = ["", "a", "v" * 42, "v" * 129, "v" * 42 + "+", "\u00e4" * 43]


@pytest.mark.parametrize("verifier", [*GUESSED, "v" * 43, "A9-._~" * 21 + "zz"])
async def test_a_verifier_has_43_to_128_characters_or_redeems_no_code(program: Program, verifier: str) -> None:
    """RFC 7636, 4.1: a client whose verifier is empty or short has no PKCE, also if its challenge is the one for it."""
    program.verifier = verifier
    code = await program.code()
    asked = len(program.world.stand_in.seen)
    response = await program.redeem(code)
    if verifier in GUESSED:
        assert failure(response) == (400, "invalid_grant")
    else:
        assert response.status == 200
    assert (len(program.world.stand_in.seen) == asked) is (verifier in GUESSED)


async def test_a_code_is_good_once_for_its_client_for_a_minute(world: World, program: Program, clock: Clock) -> None:
    code = await program.code()
    other = await Program.registered(world, client_name="another")
    assert failure(await other.redeem(code)) == (400, "invalid_grant")
    assert (await program.redeem(code)).status == 200
    assert failure(await program.redeem(code)) == (400, "invalid_grant")
    late = await program.code()
    clock.now += 61
    assert failure(await program.redeem(late)) == (400, "invalid_grant")


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"grant_type": ""}, (400, "unsupported_grant_type")),
        ({"grant_type": "client_credentials"}, (400, "unsupported_grant_type")),
        ({"grant_type": "password"}, (400, "unsupported_grant_type")),
        ({"client_id": ""}, (401, "invalid_client")),
        ({"client_id": "made-up"}, (401, "invalid_client")),
        ({"resource": "https://other.example.com/mcp"}, (400, "invalid_target")),
    ],
)
async def test_a_wrong_token_request_is_an_error(
    program: Program, form: dict[str, str], error: tuple[int, str]
) -> None:
    response = await program.redeem(await program.code(), **form)
    assert failure(response) == error
    assert response.headers["cache-control"] == "no-store"


async def test_a_form_with_many_fields_or_one_twice_is_refused(world: World) -> None:
    for body in (b"&".join(b"a%d=1" % number for number in range(1_000)), b"grant_type=a&grant_type=b"):
        response = await world.request("POST", "/mcp/oauth/token", body=body)
        assert failure(response) == (400, "invalid_request")


async def test_tokens_expire(program: Program, clock: Clock) -> None:
    tokens = await program.tokens()
    clock.now += 3_601
    with pytest.raises(CredentialsRejected):
        await program.world.caller(tokens["access_token"])
    assert (await program.refresh(tokens["refresh_token"])).status == 200
    clock.now += 31 * 86_400
    assert failure(await program.refresh(tokens["refresh_token"])) == (400, "invalid_grant")


async def test_new_keys_end_all_logins_and_keys_that_are_kept_end_none(
    monkeypatch: pytest.MonkeyPatch, world: World, program: Program
) -> None:
    tokens = await program.tokens()
    both = World(monkeypatch, keys=KeyRing([b"o" * 32, b"k" * 32]))
    assert await both.caller(tokens["access_token"]) is not None
    new = World(monkeypatch, keys=OTHER)
    with pytest.raises(CredentialsRejected):
        await new.caller(tokens["access_token"])
    assert failure(await Program(new, program.client_id).refresh(tokens["refresh_token"])) == (401, "invalid_client")


async def test_a_token_is_good_for_its_resource_alone(monkeypatch: pytest.MonkeyPatch, program: Program) -> None:
    tokens = await program.tokens()
    with pytest.raises(CredentialsRejected):
        await World(monkeypatch, resource="https://other.example.com/mcp").caller(tokens["access_token"])


def test_no_kind_of_value_stands_for_another() -> None:
    box, kinds = Box(KEYS, RESOURCE), (Client, Ticket, State, Code, Access, Refresh)
    login: dict[str, Any] = {"redirect_uri": "u", "state": "s", "scopes": ("a",), "binding": "b", "browser": "c"}
    values = [
        Client(name="n", redirect_uris=("u",)),
        Ticket(**login),
        State(**login, verifier="v"),
        Code(scopes=("a",), binding="b", code="c", verifier="v"),
        Access(principal="p", scopes=("a",), claims={}),
        Refresh(client="c", principal="p", scopes=("a",), refresh="r", access=None),
    ]
    for number, value in enumerate(values):
        sealed = box.seal(value)
        opened = [box.open(kind, sealed) is not None for kind in kinds]
        assert opened == [index == number for index in range(len(kinds))]
        assert Box(KEYS, "https://other.example.com/mcp").open(type(value), sealed) is None
        with pytest.raises(Unsealable):
            Vault(KEYS).open(urlsafe_b64decode(f"{sealed}=="), f"{type(value).__name__} {RESOURCE}".encode())
        assert "secret" not in repr(value)
        for broken in (sealed[:-1], sealed + "A", "A" + sealed, sealed.swapcase(), f"{sealed}=", "é" * 60, ""):
            assert box.open(type(value), broken) is None


def test_the_kind_of_a_value_is_authenticated_also_where_another_kind_has_the_same_members() -> None:
    class Other(Code):
        pass

    box = Box(KEYS, RESOURCE)
    sealed = box.seal(Code(scopes=("a",), binding="b", code="c", verifier="v"))
    assert box.open(Code, sealed) is not None
    assert box.open(Other, sealed) is None


async def test_a_sealed_value_is_no_token(world: World, program: Program) -> None:
    tokens = await program.tokens()
    for value in (
        program.client_id,
        tokens["refresh_token"],
        ticket_in(await program.authorize()),
        await program.code(),
    ):
        with pytest.raises(CredentialsRejected):
            await world.caller(value)


# Revocation.


async def test_a_refresh_token_is_revoked_at_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, GOOGLE, {"sub": "1"})
    program = await Program.registered(world)
    tokens = await program.tokens()
    other = await Program.registered(world, client_name="another")
    form = {"token": tokens["refresh_token"], "client_id": other.client_id}
    assert (await world.post("revoke", form)).status == 200
    assert (await program.refresh(tokens["refresh_token"])).status == 200
    access = {"token": tokens["access_token"], "client_id": program.client_id}
    assert failure(await world.post("revoke", access)) == (400, "unsupported_token_type")
    assert (await world.post("revoke", {"token": "made-up", "client_id": program.client_id})).status == 200
    assert failure(await world.post("revoke", {"token": "x"})) == (401, "invalid_client")
    assert (await world.post("revoke", {**form, "client_id": program.client_id})).status == 200
    assert failure(await program.refresh(tokens["refresh_token"])) == (400, "invalid_grant")
    for status, answered in ((400, 200), (500, 503), (403, 503)):
        world.stand_in.revoke_status = status
        assert (await world.post("revoke", {**form, "client_id": program.client_id})).status == answered
    world.stand_in.down = True
    response = await world.post("revoke", {**form, "client_id": program.client_id})
    assert failure(response) == (503, "temporarily_unavailable")


async def test_a_provider_that_revokes_nothing_is_an_error_and_no_success(program: Program) -> None:
    form = {"token": (await program.tokens())["refresh_token"], "client_id": program.client_id}
    assert failure(await program.world.post("revoke", form)) == (400, "unsupported_token_type")


# Pages.

TAGS = {"html", "meta", "title", "style", "main", "h1", "dl", "dt", "dd", "bdi", "ul", "li", "p", "a"}
FORM_TAGS = {"form", "input", "button"}
HOSTILE = "</title><script>alert(1)</script>\"'>\r\n<img src=x onerror=alert(1)>\u202e\u0000{ticket}{0}%s"


class Tags(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def text_of(page: Any) -> str:
    return str(page.content.decode())


async def test_what_a_client_says_and_the_names_of_scopes_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, scopes=["write", "<script>"])
    uri = "https://app.example.com/'onclick='alert(1)"
    program = await Program.registered(world, client_name=HOSTILE, redirect_uris=[uri])
    program.redirect_uri = uri
    page = await program.authorize(scope="write <script>", state=HOSTILE)
    leaving = await world.consent(page, "deny")
    wrong = await program.authorize(response_type=HOSTILE)
    for each in (page, leaving, wrong):
        found = Tags(text_of(each))
        assert found.tags <= TAGS | FORM_TAGS
        assert not any(name.startswith("on") for name in found.attributes)
        # Each ampersand begins an entity, also those of URLs.
        assert re.search(r"&(?!amp;|lt;|gt;|quot;|#x27;)", text_of(each)) is None
        assert "\u202e" not in text_of(each)
    assert query_of_text(target_of(leaving))["state"] == HOSTILE


def query_of_text(url: str) -> dict[str, str]:
    return {name: value for name, (value,) in parse_qs(urlsplit(url).query).items()}


async def test_a_name_cannot_change_the_direction_of_the_page_or_break_its_lines(world: World) -> None:
    text = text_of(await (await Program.registered(world, client_name="a\u202eb\u2066c\r\n\x00d\x1b[31m")).authorize())
    (name,) = re.findall(r"<bdi>(.*?)</bdi>", text)
    assert not set("\u202e\u2066\r\n\x00\x1b") & set(name)


async def test_marks_above_and_below_the_letters_of_a_name_cannot_cover_the_other_rows(world: World) -> None:
    """A letter may have dozens of marks, in a column over the whole page."""
    text = text_of(await (await Program.registered(world, client_name="a" + "\u0333" * 63)).authorize())
    (rule,) = re.findall(r"^dd \{(.*)\}$", text, re.MULTILINE)
    assert "overflow: hidden" in rule
    assert re.search(r"<dd><bdi>a\u0333+</bdi></dd>", text)


async def test_a_page_can_neither_run_scripts_nor_be_framed_nor_post_elsewhere(program: Program) -> None:
    page = await program.authorize()
    pages = (page, await program.world.consent(page), await program.authorize(client_id="x"))
    for each in pages:
        policy = dict(part.split(" ", 1) for part in each.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert (policy["form-action"], policy["frame-ancestors"], policy["base-uri"]) == ("'self'", "'none'", "'none'")
        assert "unsafe" not in str(policy)
        assert (each.headers["x-frame-options"], each.headers["cache-control"]) == ("DENY", "no-store")
        assert each.headers["referrer-policy"] == "same-origin"
        assert "script" not in Tags(text_of(each)).tags


async def test_the_consent_page_names_client_host_scopes_and_resource(world: World) -> None:
    uri = "https://app.example.com:8443/back"
    program = await Program.registered(world, redirect_uris=[uri], client_name="The app")
    program.redirect_uri = uri
    text = text_of(await program.authorize(scope="read write"))
    for shown in ("The app", "app.example.com:8443", "<li>read</li><li>write</li>", RESOURCE, "GitHub"):
        assert shown in text


# Secrets.


async def test_no_secret_is_in_a_log_a_repr_or_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world = World(monkeypatch, upstream_token=True)
    program = await Program.registered(world)
    code = await program.code()
    tokens = members(await program.redeem(code))
    await program.redeem(code)
    world.stand_in.token_reply = answer({"error": "odd", "error_description": f"{SECRET} is wrong"})
    await program.refresh(tokens["refresh_token"])
    with pytest.raises(CredentialsRejected):
        await world.caller(tokens["refresh_token"])
    caller = await world.caller(tokens["access_token"])
    shown = caplog.text + repr(caller) + repr(world.hook) + repr(proxy())
    for secret in (SECRET, code, *tokens.values(), "of-the-provider"):
        if isinstance(secret, str) and len(secret) > 8:
            assert secret not in shown


async def test_a_provider_that_repeats_a_secret_of_the_header_puts_it_in_no_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = await Program.registered(World(monkeypatch, example(basic=True), {"sub": "1"}))
    code = await program.code()
    program.world.stand_in.token_reply = answer({"error": "odd", "error_description": f"{SECRET} is wrong"}, 400)
    assert failure(await program.redeem(code)) == (503, "temporarily_unavailable")
    assert "odd" in caplog.text
    assert SECRET not in caplog.text


# What the objects cannot be made with.


@pytest.mark.parametrize(
    "options",
    [
        {"client_id": ""},
        {"client_secret": ""},
        {"client_secret": None},
        {"provider": "github"},
        {"keys": b"k" * 32},
        {"identity": len},
        {"upstream_token": "yes"},
        {"realm": "a:b"},
    ],
)
def test_an_argument_that_is_wrong_raises_and_no_error_shows_the_secret(options: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        proxy(**{"keys": KEYS, **options})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"name": 7},
        {"token_url": "http://login.example.com/token"},
        {"user_url": "login.example.com"},
        {"revoke_url": "ftp://login.example.com"},
        {"scopes": "openid"},
        {"claims": "email"},
        {"claims": ["email", 7]},
        {"parameters": {"prompt": 1}},
        {"principal": None},
    ],
)
def test_a_provider_has_urls_and_lists(options: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        example(**options)


@pytest.mark.parametrize("tenant", ["", "a/b", "../x", "a b", "a?b", 7])
def test_a_tenant_is_an_id_or_a_domain(tenant: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        ENTRA(tenant)


def test_a_proxy_needs_a_resource_and_keys_that_outlive_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TRIO_MCP_KEYS", raising=False)
    with pytest.raises(ValueError, match="ProtectedResource"):
        HttpOptions(authenticate=proxy())
    with pytest.raises(ValueError, match="TRIO_MCP_KEYS"):
        ProtectedResource(RESOURCE, proxy())
    with pytest.raises(ValueError, match="query"):
        ProtectedResource(f"{RESOURCE}?tenant=1", proxy(keys=KEYS))
    ProtectedResource("http://127.0.0.1:8000/mcp", proxy())
    token = WORKPLACE.set(Workplace(tmp_path, announces=False))
    try:
        with pytest.raises(ValueError, match="TRIO_MCP_KEYS"):
            ProtectedResource("http://127.0.0.1:8000/mcp", proxy())
    finally:
        WORKPLACE.reset(token)


async def test_keys_of_this_process_are_a_warning_at_the_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TRIO_MCP_KEYS", raising=False)
    await ProtectedResource("http://127.0.0.1:8000/mcp", proxy()).prepare()
    assert "TRIO_MCP_KEYS" in caplog.text


# With others.


async def test_listed_tokens_and_a_proxy_protect_one_server(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    logins = proxy(client_id="proxy", keys=KEYS)
    world.hook = ProtectedResource(RESOURCE, any_of(static({"a-long-random-token": Caller("ci")}), logins))
    assert "/.well-known/oauth-authorization-server/mcp" in world.hook.documents([])
    assert len(world.hook.routes(["/mcp"], list)) == len(world.routes)
    tokens = await (await Program.registered(world)).tokens()
    assert await world.caller("a-long-random-token") == Caller("ci")
    assert (await world.caller(tokens["access_token"]) or Caller("")).principal == "583231"


def test_two_proxies_at_one_resource_or_two_issuers_without_realms_are_refused() -> None:
    with pytest.raises(ValueError, match="realm"):
        any_of(proxy(keys=KEYS), jwt("https://login.example.com"))
    both = ProtectedResource(RESOURCE, any_of(proxy(keys=KEYS, realm="a"), proxy(keys=KEYS, realm="b")))
    with pytest.raises(ValueError, match="OAuthProxy"):
        both.routes(["/mcp"], list)


async def test_what_was_sealed_for_another_provider_or_client_there_is_of_no_use(
    monkeypatch: pytest.MonkeyPatch, world: World, program: Program
) -> None:
    tokens = await program.tokens()
    for provider, client_id in ((GOOGLE, "proxy"), (GITHUB, "another")):
        other = proxy(provider, client_id=client_id, keys=KEYS)
        with pytest.raises(CredentialsRejected):
            await ProtectedResource(RESOURCE, other)({"authorization": f"Bearer {tokens['access_token']}"})


@pytest.mark.parametrize(
    ("keys", "goes_on"),
    [(KeyRing([b"o" * 32, b"k" * 32]), True), (KeyRing([b"k" * 32, b"o" * 32]), True), (OTHER, False)],
)
async def test_keys_that_are_rotated_in_the_middle_of_a_login_end_it_only_if_the_old_one_is_dropped(
    monkeypatch: pytest.MonkeyPatch, world: World, program: Program, keys: KeyRing, goes_on: bool
) -> None:
    leaving = target_of(await world.consent(await program.authorize()))
    rotated = world.restarted(monkeypatch, keys=keys)
    back = await rotated.get("callback", world.stand_in.log_in(leaving))
    if not goes_on:
        assert is_page(back)
        return
    program.world = rotated
    assert (await program.redeem(query_of(back)["code"])).status == 200


@pytest.mark.parametrize(
    "resource", ["https://mcp.example.com", "https://mcp.example.com/mcp/", "https://example.com/a/b"]
)
def test_the_routes_are_below_the_resource(resource: str) -> None:
    hook = ProtectedResource(resource, proxy(keys=KEYS))
    path = urlsplit(resource).path.rstrip("/")
    paths = [route.path for route in hook.routes([path or "/", "/sse"], list)]
    documents = [json.loads(each) for each in hook.documents([]).values()]
    (metadata,) = [each for each in {json.dumps(d): d for d in documents}.values() if "issuer" in each]
    assert metadata["issuer"] == resource
    for name in ("authorization", "token", "registration"):
        assert urlsplit(metadata[f"{name}_endpoint"]).path in paths
    assert f"{path}/oauth/callback" in paths
    assert f"{path}/.well-known/openid-configuration" in paths
