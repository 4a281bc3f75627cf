"""The keys of an issuer: when they are fetched, how long they count, and what happens while they cannot be fetched."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NoReturn

import pytest
import trio
from provider import METADATA, Provider, use
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Caller
from trio_mcp.auth import CannotVerify, CredentialsRejected, ProtectedResource, any_of, introspection, jwt, static
from trio_mcp.auth.server.verifier import CachingVerifier, Verified, VerifiedTokens, Verifier

AUDIENCE = "https://mcp.example.com/mcp"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    made = Provider()
    use(monkeypatch, made)
    return made


@pytest.fixture
def verifier(provider: Provider) -> Verifier:
    return jwt(provider.url, audience=AUDIENCE)


def headers(provider: Provider, name: str = "alice", **options: Any) -> dict[str, str]:
    return {"authorization": f"Bearer {provider.issuer.token(name, audience=AUDIENCE, **options)}"}


async def outcome(verifier: Verifier, request: dict[str, str]) -> str:
    try:
        caller = await verifier(request)
    except CannotVerify:
        return "cannot verify"
    except CredentialsRejected:
        return "rejected"
    return caller.principal


async def test_keys_are_fetched_once_through_the_metadata_of_the_issuer(provider: Provider, verifier: Verifier) -> None:
    for name in ("alice", "bob"):
        assert await outcome(verifier, headers(provider, name)) == name
    assert provider.requests == {METADATA: 1, "/jwks": 1}


async def test_keys_at_a_given_url_need_no_metadata(provider: Provider) -> None:
    assert (
        await outcome(jwt(provider.url, jwks=f"{provider.url}/jwks", audience=AUDIENCE), headers(provider)) == "alice"
    )
    assert provider.requests == {"/jwks": 1}


async def test_preparing_fetches_the_keys(provider: Provider, verifier: Verifier) -> None:
    await verifier.prepare()
    assert provider.requests["/jwks"] == 1
    await outcome(verifier, headers(provider))
    await verifier.prepare()
    assert provider.requests["/jwks"] == 1


async def test_tokens_that_come_at_once_share_one_fetch(provider: Provider, verifier: Verifier) -> None:
    provider.seconds = 1
    outcomes = list[str]()

    async def ask(number: int) -> None:
        outcomes.append(await outcome(verifier, headers(provider, f"user-{number}")))

    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(ask, number)
    assert sorted(outcomes) == sorted(f"user-{number}" for number in range(100))
    assert provider.requests["/jwks"] == 1


async def test_a_client_that_leaves_does_not_end_the_fetch_that_others_wait_for(
    provider: Provider, verifier: Verifier
) -> None:
    provider.seconds = 1
    outcomes = list[str]()

    async def ask(scope: trio.CancelScope, name: str) -> None:
        with scope:
            outcomes.append(await outcome(verifier, headers(provider, name)))
            await trio.lowlevel.checkpoint()

    first, second = trio.CancelScope(), trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, first, "alice")
        await wait_all_tasks_blocked()
        nursery.start_soon(ask, second, "bob")
        await wait_all_tasks_blocked()
        first.cancel()
    assert "bob" in outcomes
    assert first.cancelled_caught
    assert provider.requests["/jwks"] == 1


@pytest.mark.parametrize("kind", ["jwt", "any_of", "resource", "introspection"])
async def test_a_client_of_a_server_that_leaves_ends_at_once_and_the_fetch_goes_on(
    provider: Provider, kind: str
) -> None:
    verifier = jwt(provider.url, audience=AUDIENCE)
    hooks = {
        "jwt": verifier,
        "any_of": any_of(verifier, jwt("https://other.example", audience=AUDIENCE, realm="other")),
        "resource": ProtectedResource(AUDIENCE, jwt(provider.url)),
        "introspection": introspection(provider.url, client_id="c", client_secret="s", audience=AUDIENCE),
    }
    hook, request = hooks[kind], headers(provider)
    async with trio.open_nursery() as nursery:
        # It begins with a failure, after which the next request tries again.
        provider.status = 503
        nursery.start_soon(hook.run)
        await trio.sleep(2)
        provider.status, provider.seconds = 200, 1
        provider.requests.clear()
        began = trio.current_time()
        with trio.move_on_after(0.1) as leaving:
            await outcome(hook, request)
        assert leaving.cancelled_caught
        assert trio.current_time() - began == pytest.approx(0.1)
        await trio.sleep(4)
        assert provider.requests[METADATA] == 1
        if kind != "introspection":
            assert provider.requests["/jwks"] == 1
            assert await outcome(hook, request) == "alice"
            assert provider.requests["/jwks"] == 1
        nursery.cancel_scope.cancel()


async def test_the_end_of_the_server_ends_a_fetch(provider: Provider, verifier: Verifier) -> None:
    provider.seconds = 4
    with trio.move_on_after(1) as serving:
        await verifier.run()
    assert serving.cancelled_caught
    assert trio.current_time() == pytest.approx(1)
    # Without a server, and in the next one, keys are fetched all the same.
    provider.seconds = 0
    await trio.sleep(60)
    assert await outcome(verifier, headers(provider)) == "alice"


async def test_a_client_that_only_waits_can_leave_at_once(provider: Provider, verifier: Verifier) -> None:
    provider.seconds = 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outcome, verifier, headers(provider))
        await wait_all_tasks_blocked()
        with trio.move_on_after(0.1):
            await outcome(verifier, headers(provider))
        assert trio.current_time() == pytest.approx(0.1)


async def test_a_new_key_works_at_once_and_the_old_one_no_more(provider: Provider, verifier: Verifier) -> None:
    before = headers(provider)
    assert await outcome(verifier, before) == "alice"
    provider.issuer.rotate()
    assert await outcome(verifier, headers(provider)) == "alice"
    # It was cached.
    assert await outcome(verifier, before) == "rejected"


async def test_unknown_keys_cause_one_refresh_in_half_a_minute(provider: Provider, verifier: Verifier) -> None:
    for number in range(40):
        unknown = headers(provider, header={"kid": f"made-up-{number}"})
        assert await outcome(verifier, unknown) == "rejected"
    assert provider.requests["/jwks"] == 2
    await trio.sleep(30)
    for number in range(40):
        assert await outcome(verifier, headers(provider, header={"kid": f"again-{number}"})) == "rejected"
    assert provider.requests["/jwks"] == 3


async def test_a_good_token_of_a_new_key_waits_for_the_refresh_that_runs(
    provider: Provider, verifier: Verifier
) -> None:
    await outcome(verifier, headers(provider))
    provider.seconds = 1
    provider.issuer.rotate()
    outcomes = list[str]()

    async def ask(request: dict[str, str]) -> None:
        outcomes.append(await outcome(verifier, request))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, headers(provider, header={"kid": "made-up"}))
        await wait_all_tasks_blocked()
        nursery.start_soon(ask, headers(provider))
    assert sorted(outcomes) == ["alice", "rejected"]


@pytest.mark.parametrize(
    ("cache_control", "seconds"),
    [
        ("", 3_600),
        ("max-age=7200", 7_200),
        ("public, max-age=1", 300),
        ("max-age=9999999", 86_400),
        ("no-store", 3_600),
    ],
)
async def test_keys_are_fetched_again_when_they_are_no_longer_fresh(
    cache_control: str, seconds: float, provider: Provider, verifier: Verifier
) -> None:
    provider.cache_control = cache_control
    await outcome(verifier, headers(provider))
    await trio.sleep(seconds - 1)
    await outcome(verifier, headers(provider, "bob"))
    assert provider.requests["/jwks"] == 1
    await trio.sleep(2)
    await outcome(verifier, headers(provider, "carol"))
    assert provider.requests["/jwks"] == 2


async def test_old_keys_count_for_a_day_if_the_issuer_is_down_and_not_longer(
    provider: Provider, verifier: Verifier
) -> None:
    await outcome(verifier, headers(provider))
    provider.down = True
    await trio.sleep(86_000)
    assert await outcome(verifier, headers(provider, "bob")) == "bob"
    await trio.sleep(1_000)
    assert await outcome(verifier, headers(provider, "carol")) == "cannot verify"
    provider.down = False
    await trio.sleep(60)
    assert await outcome(verifier, headers(provider, "dave")) == "dave"


async def test_who_has_keys_does_not_wait_for_a_refresh_that_others_run(provider: Provider, verifier: Verifier) -> None:
    await outcome(verifier, headers(provider))
    await trio.sleep(4_000)
    provider.seconds = 2
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outcome, verifier, headers(provider, "bob"))
        await wait_all_tasks_blocked()
        began = trio.current_time()
        assert await outcome(verifier, headers(provider, "carol")) == "carol"
        assert trio.current_time() == began


async def test_an_issuer_that_is_down_is_asked_again_after_1_2_4_to_60_seconds(
    provider: Provider, verifier: Verifier
) -> None:
    provider.down = True
    tries = list[float]()
    for _ in range(200):
        before = provider.requests.total()
        assert await outcome(verifier, headers(provider)) == "cannot verify"
        if provider.requests.total() > before:
            tries.append(trio.current_time())
        await trio.sleep(1)
    assert [b - a for a, b in pairwise(tries)] == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_the_error_says_when_to_try_again(provider: Provider, verifier: Verifier) -> None:
    provider.down = True
    for expected in (1, 2, 4):
        with pytest.raises(CannotVerify) as caught:
            await verifier(headers(provider))
        assert caught.value.retry_after == expected
        await trio.sleep(expected)


async def test_a_slow_issuer_is_given_up_after_five_seconds(provider: Provider, verifier: Verifier) -> None:
    provider.seconds = 60
    assert await outcome(verifier, headers(provider)) == "cannot verify"
    assert trio.current_time() == 5


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://issuer.test/"},
        {"issuer": "https://evil.test"},
        {"issuer": None},
        {"jwks_uri": None},
        {"jwks_uri": 7},
    ],
)
async def test_metadata_that_is_not_of_the_issuer_or_lacks_keys_is_not_used(
    metadata: dict[str, Any], provider: Provider, verifier: Verifier
) -> None:
    provider.metadata |= metadata
    assert await outcome(verifier, headers(provider)) == "cannot verify"
    assert provider.requests["/jwks"] == 0


@pytest.mark.parametrize("status", [404, 429, 500, 503])
async def test_a_failed_issuer_is_no_failed_token(status: int, provider: Provider, verifier: Verifier) -> None:
    provider.status = status
    assert await outcome(verifier, headers(provider)) == "cannot verify"


async def test_a_verified_token_is_verified_again_after_its_expiry_and_after_five_minutes(
    provider: Provider, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = headers(provider, expires_in=100), headers(provider, expires_in=10_000)
    assert await outcome(verifier, short) == await outcome(verifier, long) == "alice"
    # Whatever is verified now is refused, so that only the cache can answer.
    provider.issuer.rotate()
    monkeypatch.setattr("trio_mcp.auth.server.jwks.UNKNOWN_SECONDS", 1e9)
    assert await outcome(verifier, long) == "alice"
    await trio.sleep(301)
    monkeypatch.setattr("trio_mcp.auth.server.jwt.time.time", lambda: 1e12)
    assert await outcome(verifier, short) == await outcome(verifier, long) == "rejected"


async def test_the_cache_does_not_grow_beyond_its_limit_and_invalid_tokens_are_not_in_it(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_mcp.auth.server.verifier.MAX_CACHED", 3)
    calls = list[str]()

    async def check(claims: dict[str, Any]) -> dict[str, Any] | None:
        calls.append(claims["sub"])
        return claims if claims["sub"] != "mallory" else None

    verifier = jwt(provider.url, audience=AUDIENCE, check=check)
    requests = [headers(provider, name) for name in "abcd"]
    for request in (*requests, requests[3], requests[1], requests[0]):
        await outcome(verifier, request)
    assert calls == ["a", "b", "c", "d", "a"]
    bad = headers(provider, "mallory")
    for _ in range(2):
        assert await outcome(verifier, bad) == "rejected"
    assert calls[-2:] == ["mallory", "mallory"]


async def test_keys_that_cannot_be_fetched_at_the_start_are_a_warning_with_the_reason(
    provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    await jwt(f"{provider.url}/", audience=AUDIENCE).prepare()
    (record,) = [each for each in caplog.records if each.name == "trio_mcp.auth"]
    assert record.levelname == "WARNING"
    assert f"{provider.url}/" in record.getMessage()


async def test_a_caller_is_known_as_long_as_its_token_is_in_the_cache_and_suffices(
    provider: Provider, verifier: Verifier
) -> None:
    request = headers(provider, scopes=["read"])
    resource = ProtectedResource(AUDIENCE, verifier, required=["read"])  # type: ignore[arg-type]
    demanding = ProtectedResource(AUDIENCE, verifier, required=["write"])  # type: ignore[arg-type]
    both = any_of(jwt(provider.url, audience=AUDIENCE), static({"a-long-random-token": "bot"}))
    assert resource.known(request) is None
    for hook in (verifier, resource, both):
        # The first token brings the keys, which empties the cache.
        await hook(request)
        caller = await hook(request)
        assert caller is not None
        assert hook.known(request) == caller
        assert hook.known({}) is hook.known({"authorization": "Basic x"}) is None
    with pytest.raises(CredentialsRejected):
        await demanding(request)
    assert demanding.known(request) is None
    await trio.sleep(301)
    assert resource.known(request) is None


async def test_a_token_is_not_remembered_if_the_keys_have_changed_while_it_was_verified() -> None:
    cache = VerifiedTokens()

    class Slow(CachingVerifier):
        def bound(self, *_: Any) -> NoReturn:
            raise NotImplementedError

        def owns(self, token: str) -> bool:
            return True

        async def verify(self, token: str) -> Verified:
            cache.clear()
            return Verified(Caller("alice"), math.inf)

    verifier = Slow(cache, None)
    assert (await verifier.caller_of("a-token")).principal == "alice"
    assert verifier.cached("a-token") is None


# The clock of each Trio run begins somewhere else, and an asyncio host may start several in one process.


def use_in_run(verifier: Verifier, begin: float, *requests: dict[str, str]) -> list[str]:
    """Return the outcomes of requests to a server that starts in a new Trio run, whose clock shows these seconds."""

    async def main() -> list[str]:
        await trio.sleep(begin)
        async with verifier.background():
            return [await outcome(verifier, request) for request in requests]

    return trio.run(main, clock=MockClock(autojump_threshold=0))


def test_a_token_that_was_verified_in_an_earlier_trio_run_is_verified_again(provider: Provider) -> None:
    provider.active["opaque"] = {"active": True, "aud": AUDIENCE, "sub": "alice"}
    request = {"authorization": "Bearer opaque"}
    verifier = introspection(provider.url, client_id="notes", client_secret="secret", audience=AUDIENCE)
    assert use_in_run(verifier, 1_000, request) == ["alice"]
    del provider.active["opaque"]
    assert use_in_run(verifier, 0, request) == ["rejected"]


def test_keys_of_an_earlier_trio_run_are_to_be_refreshed(provider: Provider, verifier: Verifier) -> None:
    assert use_in_run(verifier, 1_000, headers(provider)) == ["alice"]
    before = headers(provider, "bob")
    provider.issuer.rotate()
    assert use_in_run(verifier, 0, before, headers(provider, "carol")) == ["rejected", "carol"]
    provider.down = True
    assert use_in_run(verifier, 1_000_000, headers(provider, "dave")) == ["dave"]


def test_a_failure_of_an_earlier_trio_run_does_not_delay_the_next_attempt(
    provider: Provider, verifier: Verifier
) -> None:
    provider.down = True
    assert use_in_run(verifier, 1_000, headers(provider)) == ["cannot verify"]
    provider.down = False
    assert use_in_run(verifier, 0, headers(provider)) == ["alice"]
