"""Opaque tokens, listed tokens, and several verifiers at once."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
from provider import METADATA, Provider, use
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Caller
from trio_mcp.auth import CannotVerify, CredentialsRejected, any_of, introspection, jwt, static
from trio_mcp.auth.server.verifier import Verifier
from trio_mcp.testing import TestIssuer

AUDIENCE = "https://mcp.example.com/mcp"
GOOD = {"active": True, "aud": AUDIENCE, "sub": "alice", "scope": "a b", "iss": "https://issuer.test"}
LISTED = "a-long-random-token"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    made = Provider()
    made.active["good"] = dict(GOOD)
    use(monkeypatch, made)
    return made


def asking(provider: Provider, **options: Any) -> Verifier:
    return introspection(provider.url, client_id="notes:app", client_secret="s/cret", audience=AUDIENCE, **options)


async def outcome(verifier: Verifier, token: str) -> str:
    try:
        caller = await verifier({"authorization": f"Bearer {token}"})
    except CannotVerify:
        return "cannot verify"
    except CredentialsRejected as error:
        return f"rejected: {error}"
    return caller.principal


async def test_the_issuer_is_asked_about_an_opaque_token(provider: Provider) -> None:
    caller = await asking(provider, realm="r")({"authorization": "Bearer good"})
    assert caller == Caller("r:alice", ["a", "b"], {name: value for name, value in GOOD.items() if name != "active"})
    ((form, headers),) = provider.forms
    assert form == {"token": "good", "token_type_hint": "access_token"}
    assert headers["authorization"] == "Basic bm90ZXMlM0FhcHA6cyUyRmNyZXQ="  # notes%3Aapp:s%2Fcret


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"active": False}, "active"),
        ({"active": "true"}, "active"),
        ({"active": 1}, "active"),
        ({"active": None}, "active"),
        ({"aud": "https://other.example"}, "aud"),
        ({"aud": None}, "aud"),
        ({"iss": "https://evil.test"}, "iss"),
        ({"exp": 1}, "exp"),
        ({"exp": "9999999999"}, "exp"),
        ({"sub": 7}, "principal"),
        ({"sub": None}, "principal"),
        ({"cnf": {"jkt": "x"}}, "cnf"),
    ],
)
async def test_a_failed_check_refuses_the_token(answer: dict[str, Any], reason: str, provider: Provider) -> None:
    provider.active["good"] = {name: value for name, value in {**GOOD, **answer}.items() if value is not None}
    assert reason in (await outcome(asking(provider), "good")).removeprefix("rejected: ")


async def test_a_good_answer_counts_for_a_while_and_a_bad_one_does_not(provider: Provider) -> None:
    verifier = asking(provider, cache_seconds=20)
    for token in ("good", "good", "bad", "bad"):
        await outcome(verifier, token)
    assert provider.requests["/introspect"] == 3
    provider.active.clear()
    await trio.sleep(19)
    assert await outcome(verifier, "good") == "alice"
    await trio.sleep(2)
    assert "rejected" in await outcome(verifier, "good")


@pytest.mark.parametrize("token", ["good", "bad"])
async def test_one_token_is_asked_about_once_at_a_time(token: str, provider: Provider) -> None:
    verifier = asking(provider, endpoint=f"{provider.url}/introspect")
    provider.seconds = 1
    outcomes = list[str]()

    async def ask() -> None:
        outcomes.append(await outcome(verifier, token))

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(ask)
    assert len(outcomes) == 100
    assert len(set(outcomes)) == 1
    assert provider.requests == {"/introspect": 1}


async def test_if_the_client_that_asks_leaves_another_one_asks_again(provider: Provider) -> None:
    verifier = asking(provider, endpoint=f"{provider.url}/introspect")
    provider.seconds = 1
    outcomes = list[str]()

    async def ask(scope: trio.CancelScope) -> None:
        with scope:
            outcomes.append(await outcome(verifier, "good"))

    first = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, first)
        await wait_all_tasks_blocked()
        nursery.start_soon(ask, trio.CancelScope())
        await wait_all_tasks_blocked()
        first.cancel()
    assert outcomes == ["alice"]
    assert first.cancelled_caught
    assert provider.requests["/introspect"] == 2


async def test_made_up_tokens_cause_a_limited_number_of_requests_at_once(provider: Provider) -> None:
    verifier = asking(provider, endpoint=f"{provider.url}/introspect")
    provider.seconds = math.inf
    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(outcome, verifier, f"made-up-{number}")
        await wait_all_tasks_blocked()
        assert provider.requests["/introspect"] == 32
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("status", [400, 401, 500])
async def test_an_issuer_that_does_not_answer_is_no_failure_of_the_token(status: int, provider: Provider) -> None:
    verifier = asking(provider)
    await verifier.prepare()
    provider.status = status
    assert await outcome(verifier, "good") == "cannot verify"
    provider.status, provider.down = 200, True
    assert await outcome(verifier, "good") == "cannot verify"
    provider.down = False
    assert await outcome(verifier, "good") == "alice"
    assert provider.requests[METADATA] == 1


async def test_a_slow_issuer_is_given_up_before_the_request_is(provider: Provider) -> None:
    verifier = asking(provider, endpoint=f"{provider.url}/introspect")
    provider.seconds = 60
    assert await outcome(verifier, "good") == "cannot verify"
    assert trio.current_time() == 5  # a hook has 10 seconds


def test_settings_of_introspection_are_checked_and_show_no_secret() -> None:
    good: dict[str, Any] = {"issuer": "https://issuer.test", "client_id": "a", "client_secret": "canary-secret"}
    assert "canary" not in repr(introspection(**good))
    wrongs: list[dict[str, Any]] = [
        {"issuer": "http://issuer.test"},
        {"endpoint": "http://x.test"},
        {"client_secret": ""},
        {"client_id": 7},
        {"cache_seconds": -1},
    ]
    for wrong in wrongs:
        with pytest.raises((TypeError, ValueError)) as caught:
            introspection(**{**good, **wrong})
        assert "canary" not in str(caught.value)
    with pytest.raises(ValueError, match="audience="):
        introspection(**good).check()


async def test_listed_tokens_have_the_callers_of_the_list() -> None:
    verifier = static({LISTED: Caller("bot", ["a"]), "another-long-token": "ci"})
    verifier.check()
    assert await verifier({"authorization": f"Bearer {LISTED}"}) == Caller("bot", ["a"])
    assert await outcome(verifier, "another-long-token") == "ci"
    assert "rejected" in await outcome(verifier, LISTED + "x")


@pytest.mark.parametrize(
    "tokens", [{"canary": "bot"}, {}, {"canary with a space!": "bot"}, {"canary" * 9: 7}, ["canary" * 9], "canary" * 9]
)
def test_a_list_that_cannot_work_is_refused_without_showing_a_token(tokens: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        static(tokens)
    assert "canary" not in str(caught.value)


async def test_each_token_is_shown_only_to_verifiers_that_it_can_belong_to(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Provider("https://other.test")
    use(monkeypatch, provider, other)
    verifier = any_of(
        jwt(other.url, audience=AUDIENCE, realm="other"), static({LISTED: "bot"}), asking(provider, realm="opaque")
    )
    assert list(verifier.issuers) == ["https://other.test", "https://issuer.test"]
    other.down = True
    assert await outcome(verifier, LISTED) == "bot"
    assert await outcome(verifier, "good") == "opaque:alice"
    assert await outcome(verifier, other.issuer.token("carol", audience=AUDIENCE)) == "cannot verify"
    assert provider.forms == [({"token": "good", "token_type_hint": "access_token"}, provider.forms[0][1])]
    # A JWT of no other member may be one that its issuer wants to be asked about.
    unknown = TestIssuer("https://third.test").token("dave", audience=AUDIENCE)
    assert "rejected" in await outcome(verifier, unknown)
    assert len(provider.forms) == 2


async def test_if_one_issuer_cannot_be_asked_the_rejection_of_another_does_not_count(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Provider("https://other.test")
    use(monkeypatch, provider, other)
    for first, second in ((provider, other), (other, provider)):
        provider.down = other.down = False
        verifier = any_of(asking(first), asking(second, realm="second"))
        first.down = True
        assert await outcome(verifier, "bad") == "cannot verify"


def test_two_issuers_need_two_realms() -> None:
    with pytest.raises(ValueError, match="realm="):
        any_of(jwt("https://a.test"), jwt("https://b.test"))
    any_of(jwt("https://a.test"), jwt("https://b.test", realm="b"), static({LISTED: "bot"}))
    any_of(jwt("https://a.test"), introspection("https://a.test", client_id="a", client_secret="b"))
    for wrong in ((), ("text",), (jwt("https://a.test"), 7)):
        with pytest.raises((TypeError, ValueError)):
            any_of(*wrong)  # type: ignore[arg-type]


async def test_an_issuer_without_a_realm_cannot_name_its_users_like_those_of_another() -> None:
    home, partner = TestIssuer("https://home.test"), TestIssuer("https://partner.test")
    verifier = any_of(
        jwt(home.url, keys=home.jwks, audience=AUDIENCE),
        jwt(partner.url, keys=partner.jwks, audience=AUDIENCE, realm="partner"),
    )
    assert await outcome(verifier, partner.token("alice", audience=AUDIENCE)) == "partner:alice"
    forged = home.token("partner:alice", audience=AUDIENCE)
    for _ in range(2):  # cached, too
        assert "rejected" in await outcome(verifier, forged)
        assert verifier.known({"authorization": f"Bearer {forged}"}) is None
    assert await outcome(verifier, home.token("partners", audience=AUDIENCE)) == "partners"


async def test_any_of_may_be_a_part_of_another() -> None:
    inner = any_of(jwt("https://a.test"), static({LISTED: "bot"}))
    with pytest.raises(ValueError, match="realm="):
        any_of(inner, jwt("https://b.test"))
    outer = any_of(inner, jwt("https://b.test", realm="b"))
    assert list(outer.issuers) == ["https://a.test", "https://b.test"]
    assert await outcome(outer, LISTED) == "bot"


def test_any_of_lacks_an_audience_if_one_of_its_members_does() -> None:
    with pytest.raises(ValueError, match="audience="):
        any_of(jwt("https://a.test"), static({LISTED: "bot"})).check()
    any_of(jwt("https://a.test", audience=AUDIENCE), static({LISTED: "bot"})).check()
