"""What a response means to a client (auth.md 5.5): the table, and the same carried out against peers in this process."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
from naming import naming
from oauth_world import ISSUER, URL, ResourceServer, World, expired, send
from refusals import refused

from trio_mcp.auth import (
    AuthorizationError,
    ClientCredentials,
    EnterpriseManaged,
    Login,
    MemoryTokens,
    WorkloadIdentity,
)
from trio_mcp.auth.addresses import Reach
from trio_mcp.auth.challenges import Challenge
from trio_mcp.auth.client.authorizer import LOGIN_SECONDS, Authorizer
from trio_mcp.auth.client.dpop import Proofs
from trio_mcp.auth.client.driver import Driver
from trio_mcp.auth.client.grants import Tokens
from trio_mcp.auth.client.logins import log_out
from trio_mcp.auth.client.options import open_system_browser
from trio_mcp.auth.client.responses import Action, Tries, next_action
from trio_mcp.auth.client.steps import Get, Post, fetched
from trio_mcp.auth.replies import Reply
from trio_mcp.base.groups import cause_chain
from trio_mcp.errors import AuthorizationErrorKind as Kind

A, B = Tokens("a", "bearer", None, "ra"), Tokens("b", "bearer", None, "rb")
A_ALONE = Tokens("a", "bearer")
BOUND = Tokens("a", "dpop", None, "ra")


@pytest.mark.parametrize(
    ("status", "error", "sent", "stored", "tries", "nonce", "expected"),
    [
        # 401 of a server that wants a nonce: the same token, once
        (401, "use_dpop_nonce", BOUND, BOUND, Tries(), True, Action.PROVE),
        (401, "", BOUND, BOUND, Tries(), True, Action.PROVE),
        (401, "use_dpop_nonce", BOUND, BOUND, Tries(proofs=1), True, Action.REFRESH),
        (401, "", A, A, Tries(), True, Action.REFRESH),
        # another client has stored other tokens
        (401, "invalid_token", A, B, Tries(), False, Action.ADOPT),
        (401, "", None, B, Tries(), False, Action.ADOPT),
        (401, "", A, B, Tries(adoptions=3), False, Action.REFRESH),
        # a refresh token, once for a request
        (401, "invalid_token", A, A, Tries(), False, Action.REFRESH),
        (401, "invalid_token", A, A, Tries(refreshes=1), False, Action.LOG_IN),
        # else a login, twice for a request
        (401, "", None, None, Tries(), False, Action.LOG_IN),
        (401, "", A_ALONE, A_ALONE, Tries(), False, Action.LOG_IN),
        (401, "", A_ALONE, A_ALONE, Tries(logins=1), False, Action.LOG_IN),
        (401, "", A_ALONE, A_ALONE, Tries(logins=2), False, Action.REFUSE),
        (401, "", A, None, Tries(logins=2, refreshes=1), False, Action.REFUSE),
        # 403
        (403, "insufficient_scope", A, A, Tries(), False, Action.STEP_UP),
        (403, "insufficient_scope", A, A, Tries(step_ups=1), False, Action.STEP_UP),
        (403, "insufficient_scope", A, A, Tries(step_ups=2), False, Action.RETURN),
        (403, "", A, A, Tries(), False, Action.RETURN),
        (403, "invalid_token", A, A, Tries(), False, Action.RETURN),
        # not a question of authorization
        (200, "", A, A, Tries(), False, Action.RETURN),
        (400, "invalid_request", A, A, Tries(), False, Action.RETURN),
        (429, "", A, A, Tries(), False, Action.RETURN),
        (503, "", A, A, Tries(), False, Action.RETURN),
    ],
)
def test_the_table_of_responses(
    status: int, error: str, sent: Tokens | None, stored: Tokens | None, tries: Tries, nonce: bool, expected: Action
) -> None:
    assert next_action(status, error, sent, stored, tries, is_new_nonce=nonce) is expected


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def test_a_login_is_stored_before_its_token_is_sent(world: World) -> None:
    settings, server = world.settings(), ResourceServer()
    async with settings.open(URL) as authorizer:
        assert await send(authorizer, server) == 200
    assert server.sent == [None, "Bearer access-1"]
    login = await world.stored()
    assert login.tokens.access == "access-1"
    assert login.requested == "read"


async def test_a_token_that_expires_soon_is_refreshed_before_it_is_sent(world: World) -> None:
    server = ResourceServer()
    login = await world.log_in()
    await world.store.write(expired(login))
    async with world.settings(interactive=False).open(URL) as authorizer:
        assert await send(authorizer, server) == 200
    assert server.sent == ["Bearer access-2"]
    assert world.forms[-1]["refresh_token"] == "refresh-1"
    assert len(world.pages) == 1


async def test_a_rejected_token_is_refreshed_once_and_then_the_user_logs_in(world: World) -> None:
    server = ResourceServer((401, "Bearer"), (401, "Bearer"), (401, "Bearer"))
    async with world.settings().open(URL) as authorizer:
        assert await send(authorizer, server) == 200
    assert server.sent == [None, "Bearer access-1", "Bearer access-2", "Bearer access-3"]
    assert len(world.pages) == 2


async def test_an_endless_401_is_refused_after_two_logins(world: World) -> None:
    server = ResourceServer(*[(401, "Bearer")] * 50)
    async with world.settings().open(URL) as authorizer:
        with refused(Kind.REFUSED):
            await send(authorizer, server)
    assert len(world.pages) <= 2


async def test_the_store_is_looked_at_before_anything_is_requested(world: World) -> None:
    async with world.settings().open(URL) as first, world.settings().open(URL) as second:
        await send(first, ResourceServer())
        await send(second, ResourceServer())
        # The first refreshes; the second still has the old token.
        tokens = await first.stored_tokens()
        assert tokens is not None
        assert await first.refresh(tokens)
        server = ResourceServer((401, "Bearer"))
        assert await send(second, server) == 200
    assert server.sent == ["Bearer access-1", "Bearer access-2"]
    assert world.issued == 2


async def test_a_missing_scope_is_requested_with_those_before_at_most_twice(world: World) -> None:
    challenge = 'Bearer error="insufficient_scope", scope="write"'
    server = ResourceServer((401, "Bearer"), *[(403, challenge)] * 9)
    async with world.settings().open(URL) as authorizer:
        assert await send(authorizer, server) == 403
        assert len(world.pages) == 3
        # What two logins did not bring is not asked for again by the next request.
        assert await send(authorizer, server) == 403
    assert len(world.pages) == 3
    assert "scope=read+write" in world.pages[1]


async def test_a_server_that_always_asks_for_more_scopes_gets_few_logins_for_a_request(world: World) -> None:
    answers = [(403, f'Bearer error="insufficient_scope", scope="s{number}"') for number in range(9)]
    async with world.settings().open(URL) as authorizer:
        assert await send(authorizer, ResourceServer((401, "Bearer"), *answers)) == 403
    assert len(world.pages) == 3


@pytest.mark.parametrize("status", [403, 429, 500, 503])
async def test_other_responses_are_returned(world: World, status: int) -> None:
    async with world.settings().open(URL) as authorizer:
        assert await send(authorizer, ResourceServer((status, ""))) == status
    assert world.requests == []


async def test_a_refused_refresh_token_is_forgotten_and_the_access_token_stays(world: World) -> None:
    login = await world.log_in()
    world.token_errors = ["invalid_grant"]
    async with world.settings(interactive=False).open(URL) as authorizer:
        assert not await authorizer.refresh(login.tokens)
    after = await world.store.read(URL)
    assert (after.tokens.access, after.tokens.refresh) == ("access-1", None)
    assert after.registration == login.registration


@pytest.mark.parametrize("error", ["unauthorized_client", "invalid_scope", "temporarily_unavailable", 500, 503, 429])
async def test_another_error_of_a_refresh_keeps_everything_and_is_unavailable(world: World, error: str | int) -> None:
    login = await world.log_in()
    world.token_errors = [error]
    async with world.settings().open(URL) as authorizer:
        with refused(Kind.UNAVAILABLE):
            await authorizer.refresh(login.tokens)
    assert await world.store.read(URL) == login
    assert len(world.pages) == 1


async def test_a_client_that_the_server_has_forgotten_registers_again_once(world: World) -> None:
    await world.log_in()
    world.token_errors = ["invalid_client"]
    assert (await world.log_in()).registration.client_id == "client-2"
    world.token_errors = ["invalid_client", "invalid_client"]
    with pytest.raises(AuthorizationError) as caught:
        await world.log_in()
    assert caught.value.oauth_error == "invalid_client"
    assert world.registered == 3


async def test_a_client_by_hand_does_not_register(world: World) -> None:
    world.token_errors = ["invalid_client"]
    with pytest.raises(AuthorizationError):
        await world.log_in(client_id="by-hand")
    assert world.registered == 0


@pytest.mark.parametrize(
    "settings",
    [
        lambda: ClientCredentials("robot", "a-secret"),
        lambda: WorkloadIdentity("robot", "an-assertion"),
        lambda: EnterpriseManaged("robot", "a-secret", idp=ISSUER, idp_client_id="c", id_token="an-id-token"),
    ],
)
async def test_a_grant_without_a_user_is_not_tried_again(world: World, settings: Callable[[], Any]) -> None:
    world.token_errors = ["invalid_grant", "invalid_grant"]
    async with settings().open(URL) as authorizer:
        with refused(Kind.TOKEN):
            await send(authorizer, ResourceServer())
    assert len(world.forms) == 1
    assert world.pages == []


async def test_a_workload_sends_its_assertion(world: World) -> None:
    async def assertion() -> str:
        return "an-assertion"

    async with WorkloadIdentity("robot", assertion).open(URL) as authorizer:
        assert await send(authorizer, ResourceServer()) == 200
    assert world.forms[0]["assertion"] == "an-assertion"
    assert world.forms[0]["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"


async def test_a_function_that_fails_is_named_without_its_text(world: World) -> None:
    async def assertion() -> str:
        raise RuntimeError("canary")

    async with WorkloadIdentity("robot", assertion).open(URL) as authorizer:
        with pytest.raises(AuthorizationError, match="assertion= failed with RuntimeError") as caught:
            await send(authorizer, ResourceServer())
    assert "canary" not in str(caught.value)


async def test_an_enterprise_exchanges_an_id_token_for_an_assertion(world: World) -> None:
    idp = "https://idp.example"
    world.documents[f"{idp}/.well-known/oauth-authorization-server"] = {"issuer": idp, "token_endpoint": f"{idp}/token"}
    world.token = {"issued_token_type": "urn:ietf:params:oauth:token-type:id-jag"}
    settings = EnterpriseManaged("robot", "a-secret", idp=idp, idp_client_id="at-idp", id_token="an-id-token")
    async with settings.open(URL) as authorizer:
        assert await send(authorizer, ResourceServer()) == 200
    exchange, grant = world.forms
    assert exchange["audience"] == ISSUER
    assert exchange["resource"] == URL
    assert exchange["client_id"] == "at-idp"
    assert grant["assertion"] == "access-1"
    assert ("POST", f"{idp}/token") in world.requests


async def test_a_program_that_opens_no_browser_names_the_command(world: World) -> None:
    async with world.settings(interactive=False).open(URL) as authorizer:
        with refused(Kind.LOGIN_REQUIRED, match=f"trio-mcp login {URL}$"):
            await send(authorizer, ResourceServer())
    assert world.requests == []


async def test_the_command_that_a_program_names_has_the_url_in_quotes_if_a_shell_would_read_it(world: World) -> None:
    url = "https://mcp.example/$(id);id"
    async with world.settings(interactive=False).open(url) as authorizer:
        with refused(Kind.LOGIN_REQUIRED) as caught:
            await authorizer.log_in(Challenge("bearer", {}), None)
    assert str(caught.value).endswith(shlex.quote(url))


async def test_requests_that_need_a_login_at_once_cause_one(world: World) -> None:
    world.seconds = 1.0
    statuses: list[int] = []
    async with world.settings().open(URL) as authorizer:

        async def one() -> None:
            statuses.append(await send(authorizer, ResourceServer()))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(one)
    assert statuses == [200] * 10
    assert len(world.pages) == 1


async def test_a_login_survives_the_request_that_asked_for_it(world: World) -> None:
    world.seconds = 1.0
    async with world.settings().open(URL) as authorizer:
        with trio.move_on_after(0.5) as given_up:
            await send(authorizer, ResourceServer())
        assert given_up.cancelled_caught
        server = ResourceServer()
        assert await send(authorizer, server) == 200
    assert len(world.pages) == 1


async def test_a_login_takes_five_minutes_at_most(world: World) -> None:
    async def never(url: str) -> None:
        return None

    began = trio.current_time()
    async with world.settings(browser=never).open(URL) as authorizer:
        with refused(Kind.LOGIN_REQUIRED):
            await send(authorizer, ResourceServer())
    assert trio.current_time() - began == pytest.approx(LOGIN_SECONDS)


async def test_closing_ends_a_login_that_runs(world: World) -> None:
    opened = trio.Event()

    async def never(url: str) -> None:
        opened.set()
        await trio.sleep_forever()

    errors: list[AuthorizationError] = []
    async with trio.open_nursery() as nursery:
        async with world.settings(browser=never).open(URL) as authorizer:

            async def one() -> None:
                with pytest.raises(AuthorizationError) as caught:
                    await send(authorizer, ResourceServer())
                errors.append(caught.value)

            nursery.start_soon(one)
            await opened.wait()
    assert [each.kind for each in errors] == [Kind.LOGIN_REQUIRED]


async def test_a_cancel_during_a_refresh_waits_until_tokens_are_stored(world: World) -> None:
    login = await world.log_in()
    world.seconds = 5.0
    async with world.settings(interactive=False).open(URL) as authorizer:
        with trio.move_on_after(1.0):
            await authorizer.refresh(login.tokens)
    assert (await world.stored()).tokens.access == "access-2"


async def test_a_refresh_that_never_ends_is_given_up(world: World) -> None:
    login = await world.log_in()
    world.seconds = 1000.0
    async with world.settings(interactive=False).open(URL) as authorizer:
        with refused(Kind.UNAVAILABLE):
            await authorizer.refresh(login.tokens)
    assert await world.store.read(URL) == login


async def test_a_token_is_not_sent_to_another_origin(world: World) -> None:
    async with world.settings().open(URL) as authorizer:
        await send(authorizer, ResourceServer())
        server = ResourceServer((200, ""))
        await send(authorizer, server, "https://elsewhere.example/mcp")
    assert server.sent == [None]


async def test_an_issuer_that_moved_is_found_and_gets_a_new_registration(world: World) -> None:
    moved = "https://moved.example"
    await world.log_in()
    world.resource["authorization_servers"] = [moved]
    endpoints = {"authorization_endpoint": f"{moved}/authorize", "issuer": moved}
    world.documents[f"{moved}/.well-known/oauth-authorization-server"] = {**world.server, **endpoints}
    world.redirect = {"iss": moved}
    # The refresh token belongs to the old issuer, which no longer takes it.
    world.token_errors = ["invalid_grant"]
    async with world.settings().open(URL) as authorizer:
        assert await send(authorizer, ResourceServer((401, "Bearer"))) == 200
    assert world.registered == 2
    login = await world.store.read(URL)
    assert login.server.issuer == login.registration.issuer == moved


@pytest.mark.parametrize("change", [{"issuer": "https://b.example"}, {"client_id": "other"}, {"dpop": True}])
async def test_a_login_of_another_client_is_not_used(world: World, change: dict[str, Any]) -> None:
    await world.log_in()
    async with world.settings(interactive=False, **change).open(URL) as authorizer:
        assert await authorizer.tokens() is None


@pytest.mark.parametrize("at_token_endpoint", [True, False])
async def test_a_scope_that_is_not_granted_is_named_with_what_to_write(world: World, at_token_endpoint: bool) -> None:
    if at_token_endpoint:
        world.token_errors = ["invalid_scope"]
    else:
        world.redirect = {"code": None, "error": "invalid_scope"}
    with pytest.raises(AuthorizationError, match=naming("invalid_scope", "odd", "scopes=", "--scope")) as caught:
        await world.log_in(scopes=["odd"])
    assert caught.value.oauth_error == "invalid_scope"


async def test_a_login_that_fails_leaves_its_registration_for_the_next_one(world: World) -> None:
    opened = trio.Event()

    async def never(_url: str) -> str:
        opened.set()
        await trio.sleep_forever()
        raise AssertionError

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(world.log_in, browser=never))
        await opened.wait()
        nursery.cancel_scope.cancel()
    world.redirect = {"code": None, "error": "access_denied"}
    with pytest.raises(AuthorizationError):
        await world.log_in()
    async with world.settings().open(URL) as authorizer:
        assert await authorizer.tokens() is None
        assert not await authorizer.ready()
    world.redirect = {}
    login = await world.log_in()
    assert (login.registration.client_id, login.tokens.access) == ("client-1", "access-1")
    assert world.registered == 1


async def test_a_store_that_fails_after_a_failed_login_does_not_hide_why_that_failed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(MemoryTokens):
        async def write(self, login: Login) -> None:
            raise AuthorizationError("the disk is full", kind=Kind.STORE)

    world.redirect = {"code": None, "error": "access_denied"}
    with caplog.at_level(logging.INFO), pytest.raises(AuthorizationError) as caught:
        await world.log_in(store=Failing())
    assert caught.value.kind is Kind.DENIED
    assert "the disk is full" in caplog.text


async def test_a_login_that_fails_leaves_the_one_before(world: World) -> None:
    before = await world.log_in()
    world.redirect = {"code": None, "error": "access_denied"}
    with pytest.raises(AuthorizationError):
        await world.log_in()
    assert await world.store.read(URL) == before


@pytest.mark.parametrize(
    "members",
    [
        {"code_challenge_methods_supported": ["plain"]},
        {"authorization_endpoint": None},
        {"authorization_endpoint": "javascript:alert(1)"},
    ],
)
async def test_a_server_where_no_login_can_succeed_gets_no_registration(world: World, members: dict[str, Any]) -> None:
    world.server.update(members)
    with pytest.raises(AuthorizationError):
        await world.log_in()
    assert world.registered == 0


async def test_a_browser_function_that_fails_is_named_without_its_text(world: World) -> None:
    async def fails(url: str) -> str:
        raise RuntimeError(url)

    async with world.settings(browser=fails).open(URL) as authorizer:
        with pytest.raises(AuthorizationError, match="browser= failed with RuntimeError") as caught:
            await send(authorizer, ResourceServer())
    assert not any("state=" in str(each) for each in cause_chain(caught.value))


@pytest.mark.trio  # in real time: virtual time does not wait for the thread of the browser
async def test_without_a_browser_the_error_says_what_to_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: pages.append(url) or len(pages) == 1)
    await open_system_browser("https://as.example/first")
    assert pages == ["https://as.example/first"]
    async with world.settings(browser=None).open(URL) as authorizer:
        with refused(Kind.LOGIN_REQUIRED, match=f"trio-mcp login {URL} --no-browser") as caught:
            await send(authorizer, ResourceServer())
    assert not any("state=" in str(each) for each in cause_chain(caught.value))


async def test_a_stored_token_is_refreshed_before_a_channel_is_open(world: World) -> None:
    await world.store.write(expired(await world.log_in()))
    async with world.settings(interactive=False).open(URL) as authorizer:
        assert await authorizer.ready()
    assert (await world.stored()).tokens.access == "access-2"
    async with world.settings(store=MemoryTokens()).open(URL) as without:
        assert not await without.ready()


async def test_revoking_posts_the_refresh_token_first_and_an_error_deletes_the_login_all_the_same(world: World) -> None:
    await world.log_in()
    assert await log_out(world.store, URL) is None
    assert [form["token"] for form in world.forms[-2:]] == ["refresh-1", "access-1"]
    await world.log_in()
    world.token_errors = [503]
    assert await log_out(world.store, URL) is not None
    assert await world.store.read(URL) is None


@pytest.mark.parametrize(("issuer", "expected"), [(ISSUER, Reach.CONFIGURED), (None, Reach.PUBLIC)])
async def test_who_uses_a_login_later_reaches_the_issuer_that_was_named_for_it(
    world: World, issuer: str | None, expected: Reach
) -> None:
    world.token = {"expires_in": 1}
    await world.log_in(issuer=issuer)
    async with world.settings(interactive=False).open(URL) as authorizer:
        await authorizer.tokens()
    assert world.forms[-1]["grant_type"] == "refresh_token"
    assert world.reach is expected
    await log_out(world.store, URL)
    assert world.forms[-1]["token"] == "access-2"
    assert world.reach is expected


async def test_no_secret_is_in_a_log_record_or_an_error(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world.token = {"access_token": "canary-access", "refresh_token": "canary-refresh"}
    world.redirect = {"code": "canary-code"}
    server = ResourceServer((401, 'Bearer scope="a"'))
    async with world.settings(client_id="c", client_secret="canary-secret").open(URL) as authorizer:
        await send(authorizer, server)
        world.token_errors = ["invalid_grant"]
        tokens = await authorizer.stored_tokens()
        assert tokens is not None
        await authorizer.refresh(tokens)
        shown = [repr(await world.store.read(URL)), repr(authorizer), repr(world.store), repr(tokens), caplog.text]
    world.token = {"access_token": "canary access"}
    with pytest.raises(AuthorizationError) as caught:
        await world.log_in()
    assert "canary" not in " ".join([*shown, str(caught.value), repr(caught.value)])
    assert "logged in to" in caplog.text


@pytest.mark.parametrize(
    ("url", "settings", "expected"),
    [
        ("https://mcp.example/mcp", {}, Reach.PUBLIC),
        ("http://127.0.0.1:8000/mcp", {}, Reach.LOOPBACK),
        ("http://localhost:8000/mcp", {}, Reach.LOOPBACK),
        ("http://127.0.0.1:8000/mcp", {"issuer": ISSUER}, Reach.LOOPBACK),
        # The program has named the authorization server, and not what this server names.
        ("https://mcp.example/mcp", {"issuer": ISSUER}, Reach.PUBLIC),
    ],
)
async def test_only_the_client_of_a_server_on_this_machine_reaches_this_machine(
    world: World, url: str, settings: dict[str, Any], expected: Reach
) -> None:
    world.documents.clear()
    async with world.settings(**settings).open(url) as authorizer:
        with pytest.raises(AuthorizationError):
            await send(authorizer, ResourceServer(), url)
    assert world.reach is expected


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_of_a_token_request_is_not_followed(world: World, status: int) -> None:
    world.token_errors = [status]
    with refused(Kind.TOKEN):
        await world.log_in()
    assert len(world.forms) == 1


async def test_who_gets_the_lock_second_adopts_the_tokens_of_the_first(world: World) -> None:
    login = await world.log_in()
    world.seconds = 1.0
    renewed: list[bool] = []
    settings = world.settings(interactive=False)
    async with settings.open(URL) as first, settings.open(URL) as second:
        async with trio.open_nursery() as nursery:
            for authorizer in (first, second):

                async def refresh(authorizer: Authorizer = authorizer) -> None:
                    renewed.append(await authorizer.refresh(login.tokens))

                nursery.start_soon(refresh)
        assert [await each.tokens() for each in (first, second)] == [(await world.stored()).tokens] * 2
    assert renewed == [True, True]
    assert [form["grant_type"] for form in world.forms].count("refresh_token") == 1


async def test_a_login_that_another_client_has_finished_meanwhile_is_adopted(world: World) -> None:
    async with world.settings().open(URL) as authorizer:
        await world.log_in()
        login = await authorizer.log_in(Challenge("bearer", {}), None)
    assert login.tokens.access == "access-1"
    assert len(world.pages) == 1


async def test_only_an_authorization_server_that_the_program_names_may_be_at_a_private_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached: dict[str, Reach] = {}

    async def noted(url: str, reach: Reach, **_: Any) -> Reply:
        reached[url] = reach
        return Reply(404)

    monkeypatch.setattr("trio_mcp.auth.client.driver.fetch", noted)

    def steps() -> Any:
        yield Get(f"{ISSUER}/metadata")
        yield Get("https://mcp.example/metadata")

    driver = Driver(reach=Reach.PUBLIC, clock=lambda: 0.0, named=frozenset({ISSUER}))
    await driver.run(steps())
    assert reached == {f"{ISSUER}/metadata": Reach.CONFIGURED, "https://mcp.example/metadata": Reach.PUBLIC}


@pytest.mark.parametrize("url", ["0", "javascript:alert(1)", "https://", "https://a b"])
@pytest.mark.parametrize("options", [{"named": frozenset({ISSUER})}, {"proofs": Proofs()}], ids=["named", "dpop"])
async def test_a_malformed_endpoint_is_an_error_of_the_flow(url: str, options: dict[str, Any]) -> None:
    driver = Driver(reach=Reach.PUBLIC, clock=lambda: 0.0, **options)
    for request in (Get(url), Post(url, form={}, proof=True)):
        with refused(Kind.ADDRESS):
            await driver.run(fetched(request))
