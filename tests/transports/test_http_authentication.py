"""The hook `authenticate`: it is asked for every request, fails closed, and no other principal can use what one has opened."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from asgi_peer import (
    ALICE,
    BOB,
    JSON_HEADERS,
    AsgiPeer,
    Reply,
    by_token,
    initialize,
    legacy_call,
    modern_call,
    modern_request,
    served,
)
from stage import Stage, Talk
from talking import Session, said
from trio.testing import wait_all_tasks_blocked

from trio_mcp import HttpOptions, Server
from trio_mcp_transports.http import HttpLimits, asgi_app

Hook = Callable[[Mapping[str, str]], Awaitable[Any]]


@asynccontextmanager
async def guarded(hook: Hook, stage: Stage | None = None, **limits: int) -> AsyncIterator[AsgiPeer]:
    app = asgi_app((stage or Stage()).server, authenticate=hook, limits=HttpLimits(**{"sessions": 2, **limits}))
    async with served(app) as peer:
        yield peer


def refusal(reply: Reply) -> str:
    return str(reply.json["error"]["message"])


# who may call


async def test_a_tool_knows_the_principal_in_both_eras() -> None:
    async with guarded(by_token) as peer:
        reply = await peer.post(*modern_call("whoami", headers=ALICE))
        assert reply.json["result"]["content"][0]["text"] == "alice None"
        session = await peer.open_session(who=BOB)
        reply = await peer.post(legacy_call("whoami"), session)
        assert reply.json["result"]["content"][0]["text"] == "bob None"


async def test_the_hook_is_asked_after_host_and_origin_and_before_the_body_is_read() -> None:
    asked = list[str]()

    async def note(headers: Mapping[str, str]) -> str | None:
        asked.append(headers["host"])
        return None

    async with guarded(note) as peer:
        for wrong, status in (({"host": "evil.example"}, 421), ({"origin": "https://evil.example"}, 403)):
            assert (await peer.post(b"{}", JSON_HEADERS | wrong)).status == status
        assert asked == []
        announced = JSON_HEADERS | {"content-length": str(10**12), "content-type": "text/plain"}
        assert (await peer.post(b"no JSON", announced)).status == 401


async def test_a_token_that_expires_is_refused_from_then_on() -> None:
    expired = trio.Event()

    async def until_expired(_headers: Mapping[str, str]) -> str | None:
        return None if expired.is_set() else "alice"

    async with guarded(until_expired) as peer:
        session = await peer.open_session()
        assert (await peer.post(legacy_call("whoami"), session)).status == 200
        expired.set()
        assert (await peer.post(legacy_call("whoami"), session)).status == 401


# streams that stay open


class Tokens:
    """A hook whose answer may change while streams are open."""

    def __init__(self) -> None:
        self.principal: str | None = "alice"
        self.asked = 0

    async def __call__(self, _headers: Mapping[str, str]) -> str | None:
        self.asked += 1
        if self.principal == "fails":
            raise RuntimeError("the database is down")
        return self.principal


LISTEN = {"notifications": {"resourcesListChanged": True}}
ENDS = {"expired": None, "another's": "bob", "the hook fails": "fails"}


async def listening(peer: AsgiPeer, kind: str) -> Reply:
    """A stream of one kind, which stays open for as long as its client wants."""
    if kind == "subscriptions/listen":
        reply = peer.start(*modern_request("subscriptions/listen", LISTEN))
    else:
        session = Session(peer, await peer.open_session())
        reply = await session.get()
        if kind == "resumed":
            await session.drop(reply)
            reply = await session.get(reply.ids[0])
    await wait_all_tasks_blocked()
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
    return reply


@pytest.mark.parametrize("later", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("kind", ["standing", "resumed", "subscriptions/listen"])
async def test_a_stream_of_changes_ends_when_its_credentials_are_no_longer_accepted(
    stage: Stage, kind: str, later: str | None
) -> None:
    tokens = Tokens()
    async with guarded(tokens, stage, recheck_seconds=60) as peer:
        reply = await listening(peer, kind)
        await trio.sleep(1000)
        asked = tokens.asked
        assert not reply.ended.is_set()
        tokens.principal = later
        await trio.sleep(61)
        assert (reply.ended.is_set(), tokens.asked) == (True, asked + 1)
        assert peer.app.service.statistics().is_idle
        stage.server.add_resource("news:late", lambda: "")
        await trio.sleep(61)
        assert b"list_changed" not in reply.body
        assert tokens.asked == asked + 1


@pytest.mark.parametrize("kind", ["standing", "resumed", "subscriptions/listen"])
async def test_a_stream_that_its_client_has_left_is_authenticated_no_more(kind: str) -> None:
    tokens = Tokens()
    async with guarded(tokens, recheck_seconds=60) as peer:
        reply = await listening(peer, kind)
        reply.gone.set()
        await wait_all_tasks_blocked()
        asked = tokens.asked
        await trio.sleep(1000)
        assert tokens.asked == asked


async def test_a_session_outlives_its_standing_stream_and_serves_the_next_token(stage: Stage) -> None:
    tokens = Tokens()
    async with guarded(tokens, stage, recheck_seconds=60) as peer:
        session = Session(peer, await peer.open_session())
        reply = await session.get()
        tokens.principal = None
        await trio.sleep(61)
        stage.server.add_resource("news:late", lambda: "")
        assert reply.ended.is_set()
        assert (await session.get()).status == 401
        tokens.principal = "alice"
        again = await session.get()
        assert b"list_changed" in again.body


# a hook that fails


async def raises(_headers: Mapping[str, str]) -> str:
    raise RuntimeError("the database said: secret")


async def exits(_headers: Mapping[str, str]) -> str:
    raise SystemExit(1)


async def raises_several(_headers: Mapping[str, str]) -> str:
    raise BaseExceptionGroup("several", [SystemExit(1), ValueError()])


def returning(value: object) -> Hook:
    async def hook(_headers: Mapping[str, str]) -> object:
        return value

    return hook


async def gives_up_by_itself(_headers: Mapping[str, str]) -> str:
    with trio.fail_after(1):
        await trio.sleep_forever()
    return "alice"


async def spoils_the_headers(headers: Any) -> str:
    headers["mcp-session-id"] = "another"
    return "alice"


BROKEN = {
    "raises": raises,
    "exits": exits,
    "raises several": raises_several,
    "true": returning(True),
    "bytes": returning(b"alice"),
    "far too much": returning("a" * 2000),
    "half a character": returning("al\ud800ice"),  # no request state could be sealed for it
    "gives up by itself": gives_up_by_itself,
    "spoils the headers": spoils_the_headers,
}


@pytest.mark.parametrize("hook", BROKEN.values(), ids=BROKEN)
async def test_a_hook_that_fails_authenticates_no_caller_and_discloses_nothing(
    caplog: pytest.LogCaptureFixture, hook: Hook
) -> None:
    async with guarded(hook) as peer:
        reply = await peer.post(initialize({}), JSON_HEADERS | ALICE)
        assert reply.status == 500
        assert refusal(reply) == "The server could not check your credentials; its log has the reason."
        assert "authenticate" in caplog.text


async def test_a_hook_that_fails_again_and_again_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with guarded(gives_up_by_itself) as peer:
        for _ in range(3):
            assert (await peer.post(initialize({}), JSON_HEADERS | ALICE)).status == 500
        assert len(caplog.records) == 1
    # The end of the application logs how many were only counted.
    assert [record.args[0] for record in caplog.records[1:] if isinstance(record.args, tuple)] == [2]


async def test_a_hook_that_hangs_authenticates_no_caller(caplog: pytest.LogCaptureFixture) -> None:
    async def hangs(_headers: Mapping[str, str]) -> str:
        await trio.sleep_forever()
        return "alice"

    async with guarded(hangs) as peer:
        began = trio.current_time()
        reply = peer.start(initialize({}), JSON_HEADERS | ALICE)
        with trio.fail_after(11):
            await reply.ended.wait()
        assert (reply.status, reply.headers["retry-after"], trio.current_time() - began) == (503, "1", 10)
        assert "within 10 seconds" in caplog.text


@pytest.mark.parametrize("principal", [None, ""])
async def test_an_empty_principal_is_rejected(principal: str | None) -> None:
    async def says(_headers: Mapping[str, str]) -> str | None:
        return principal

    async with guarded(says) as peer:
        assert (await peer.post(initialize({}))).status == 401


def plain(headers: Mapping[str, str]) -> str | None:
    return headers.get("authorization")


@pytest.mark.parametrize(
    "hook", [plain, lambda _: "alice", partial(plain), "alice"], ids=["def", "lambda", "partial", "str"]
)
def test_what_is_no_async_function_is_refused_where_it_is_written(hook: Any) -> None:
    with pytest.raises(TypeError, match="authenticate"):
        asgi_app(Server("known"), authenticate=hook)
    with pytest.raises(TypeError, match="authenticate"):
        HttpOptions(authenticate=hook)


class Directory:
    async def __call__(self, headers: Mapping[str, str]) -> str | None:
        return await by_token(headers)

    async def find(self, headers: Mapping[str, str]) -> str | None:
        return await by_token(headers)


@pytest.mark.parametrize(
    "hook",
    [Directory(), Directory().find, partial(by_token), partial(Directory())],
    ids=["object", "method", "partial", "both"],
)
async def test_what_can_be_awaited_is_a_function_too(hook: Callable[..., Any]) -> None:
    async with guarded(hook) as peer:
        assert (await peer.post(initialize({}))).status == 401
        assert (await peer.post(initialize({}), JSON_HEADERS | ALICE)).status == 200


async def test_a_refused_request_opens_no_session() -> None:
    async with guarded(by_token) as peer:
        for _ in range(5):
            assert (await peer.post(initialize({}))).status == 401
        await peer.open_session(who=ALICE)
        await peer.open_session(who=BOB)  # of the two that there may be


# what is whose


async def test_the_session_of_another_principal_is_as_unknown_as_one_that_never_was() -> None:
    async with guarded(by_token) as peer:
        session = await peer.open_session(who=ALICE)
        stolen, made_up = session | BOB, session | BOB | {"mcp-session-id": "made-up"}
        for method in ("POST", "GET", "DELETE"):
            body: object = legacy_call("whoami") if method == "POST" else b""
            theirs = await peer.post(body, stolen, method=method)
            none = await peer.post(body, made_up, method=method)
            assert (theirs.status, theirs.body) == (none.status, none.body)
            assert theirs.status == 404
        assert (await peer.post(legacy_call("whoami"), session)).status == 200


async def test_a_stream_is_resumed_by_its_own_principal_only(stage: Stage, talk: Talk) -> None:
    async with guarded(by_token, stage) as peer:
        alice = Session(peer, await peer.open_session(who=ALICE))
        bob = Session(peer, alice.headers | BOB)  # type: ignore[operator]
        reply = await alice.call()
        await talk.say(1, 2)
        refused = await bob.get("1-0")
        assert refused.status == 404
        assert not reply.ended.is_set()  # nothing was taken from its reader
        await alice.drop(reply)
        assert (await bob.get("1-0")).status == 404
        resumed = await alice.get("1-1")
        await talk.answer()
        assert said(await resumed.end()) == [2, "done"]
        assert (await bob.get("1-1")).status == 404


async def test_an_answer_to_the_question_of_another_principal_is_not_delivered() -> None:
    async with guarded(by_token) as peer:
        alice, bob = await peer.open_session(who=ALICE), await peer.open_session(who=BOB)
        reply = peer.start(legacy_call("ask"), alice)
        await reply.until("elicitation/create")
        answer = {"jsonrpc": "2.0", "id": reply.last["id"]}
        forged = answer | {"result": {"action": "accept", "content": {"value": 666}}}
        assert (await peer.post(forged, alice | BOB)).status == 404
        assert (await peer.post(forged, bob)).status == 202
        await wait_all_tasks_blocked()
        assert not reply.ended.is_set()
        await peer.post(answer | {"result": {"action": "accept", "content": {"value": 1}}}, alice)
        assert (await reply.end()).last["result"]["content"][0]["text"] == "got 1"


async def test_a_request_state_counts_for_its_own_principal_only() -> None:
    async with guarded(by_token) as peer:
        state = (await peer.post(*modern_call("ask", headers=ALICE))).json["result"]["requestState"]
        ids = itertools.count(3)

        async def retry(who: Mapping[str, str]) -> Any:
            return (await peer.post(*modern_call("ask", id=next(ids), requestState=state, headers=dict(who)))).json

        assert (await retry(BOB))["error"]["code"] == -32602
        assert (await retry(ALICE))["result"]["resultType"] == "input_required"


async def test_the_sessions_of_one_principal_are_limited_and_the_rest_is_for_others() -> None:
    async with guarded(by_token, per_principal=1) as peer:
        held = await peer.open_session(who=ALICE)
        for _ in range(2):
            assert (await peer.post(legacy_call("whoami"), held)).status == 200
        second = await peer.post(initialize({}), JSON_HEADERS | ALICE)
        assert second.status == 503
        assert "HttpLimits.per_principal" in refusal(second)
        await peer.open_session(who=BOB)
        assert (await peer.post(b"", held, method="DELETE")).status == 204
        await peer.open_session(who=ALICE)


async def test_a_principal_who_holds_all_he_may_loses_his_own_unused_session_only() -> None:
    async with guarded(by_token, per_principal=1) as peer:
        bobs = await peer.open_session(who=BOB)
        unused = await peer.open_session(who=ALICE)
        await peer.open_session(who=ALICE)
        assert (await peer.post(legacy_call("whoami"), unused)).status == 404
        assert (await peer.post(legacy_call("whoami"), bobs)).status == 200
