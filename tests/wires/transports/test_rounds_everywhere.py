"""What a modern client may rely on when a call asks it, over every transport: the same rules, the same bytes."""

from __future__ import annotations

import itertools
import json
import sys
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from rounds_app import KEYS, NAME, PARKED_BYTES, App
from serving import IMPORTS, retry, served
from talk import EVERYTHING, Json, accept, log_level, modern_meta, text_of
from wire_oracle import WireOracle

from trio_mcp import Client, LimitExceeded
from trio_mcp import accept as user_accepts
from trio_mcp.errors import InvalidRequestState
from trio_mcp.protocol.jsonrpc import (
    INVALID_PARAMS,
    MISSING_CAPABILITY,
    SERVER_BUSY,
    UNSUPPORTED_VERSION,
    ErrorDetail,
    ErrorResponse,
    Notification,
    Request,
    dump,
)
from trio_mcp.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from trio_mcp.protocol.revisions import MODERN
from trio_mcp.protocol.sealing.request_state import Claims, KeyRing, Sealer, digest
from trio_mcp.session import Envelope, find_transport

HERE = Path(__file__).parent
SOON = 10.0
LIMIT = 120.0
WINDOW = 64
"""Requests that are open at once where there are thousands of them."""

REFUSAL = dump(ErrorResponse(0, ErrorDetail(INVALID_PARAMS, InvalidRequestState.TEXT)))


class Peer:
    """One connection to the application, that speaks in plain JSON and hears every message."""

    def __init__(self, channel: trio.abc.Channel[Envelope]) -> None:
        self._channel = channel
        self._ids: Iterator[int] = itertools.count(1)
        self._replies: dict[int, Json] = {}
        self._oracle = WireOracle()
        self._sending = trio.Lock()
        self._news = trio.Condition()
        self.notifications: list[Json] = []

    async def run(self) -> None:
        """Hear what comes, until the connection ends."""
        async for envelope in self._channel:
            message = json.loads(dump(envelope.message))  # type: ignore[arg-type]
            self._oracle.heard(message)
            async with self._news:
                if "method" in message:
                    assert "id" not in message, f"a modern client was sent a request: {message}"
                    self.notifications.append(message)
                else:
                    self._replies[message["id"]] = message
                self._news.notify_all()

    async def request(self, method: str, params: Json) -> int:
        async with self._sending:
            request_id = next(self._ids)
            self._oracle.sent({"id": request_id, "method": method, "params": params})
            await self._channel.send(Envelope(Request(request_id, method, params)))
        return request_id

    async def leg(
        self,
        tool: str,
        arguments: Json | None = None,
        *,
        state: object = None,
        answers: Json | None = None,
        capabilities: Json = EVERYTHING,
        meta: Json | None = None,
    ) -> int:
        """Call a tool, or carry its call on; the id of the request."""
        params: Json = {"name": tool, "arguments": arguments or {}, "_meta": modern_meta(capabilities, meta)}
        params |= {} if state is None else {"requestState": state}
        params |= {} if answers is None else {"inputResponses": answers}
        return await self.request("tools/call", params)

    async def cancel(self, request_id: int) -> None:
        notice = Notification("notifications/cancelled", {"requestId": request_id, "reason": "not needed"})
        await self._channel.send(Envelope(notice, about=request_id))

    async def reply(self, request_id: int) -> Json:
        await self._until(lambda: request_id in self._replies)
        return self._replies.pop(request_id)

    def has_answer(self, request_id: int) -> bool:
        """Whether a reply has come that was not taken."""
        return request_id in self._replies

    async def notified(self, count: int = 1) -> None:
        """Wait until so many notifications have come."""
        await self._until(lambda: len(self.notifications) >= count)

    async def result(self, tool: str, arguments: Json | None = None, **more: Any) -> Json:
        message = await self.reply(await self.leg(tool, arguments, **more))
        assert "result" in message, message
        result: Json = message["result"]
        return result

    async def round(self, tool: str, arguments: Json | None = None, **more: Any) -> Json:
        """A leg that asks: its interim result."""
        result = await self.result(tool, arguments, **more)
        assert result["resultType"] == "input_required", result
        return result

    async def text(self, tool: str, arguments: Json | None = None, **more: Any) -> str:
        """A leg that ends its call: the text of the result."""
        result = await self.result(tool, arguments, **more)
        assert result["resultType"] == "complete", result
        assert not result.get("isError"), result
        return text_of(result)

    async def error(self, tool: str, arguments: Json | None = None, **more: Any) -> Json:
        message = await self.reply(await self.leg(tool, arguments, **more))
        assert "error" in message, message
        error: Json = message["error"]
        return error

    async def _until(self, true: Callable[[], bool]) -> None:
        with trio.fail_after(SOON):
            async with self._news:
                while not true():
                    await self._news.wait()


@dataclass
class Place:
    """The application on one transport. Over HTTP all connections share it, else each has one of its own."""

    transport: str
    target: Any
    options: Json
    log: Path

    def client(self, **options: Any) -> Client:
        """The library's own client."""
        return Client.connect(self.target, mode=MODERN, **options, **self.options)

    def channel(self) -> AbstractAsyncContextManager[trio.abc.Channel[Envelope]]:
        return find_transport(self.transport).connect(self.target, **self.options)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Peer]:
        async with self.channel() as channel, trio.open_nursery() as nursery:
            peer = Peer(channel)
            nursery.start_soon(peer.run)
            yield peer
            nursery.cancel_scope.cancel()


@pytest.fixture(params=["memory", "stdio", "http", "websocket"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    log = tmp_path / "log"
    with trio.fail_after(LIMIT):
        match request.param:
            case "memory":
                yield Place("memory", App(log).server, {}, log)
            case "stdio":
                command = [sys.executable, str(HERE / "rounds_app.py"), str(log)]
                yield Place("stdio", command, {"env": IMPORTS}, log)
            case "http":
                async with served(App(log).server) as url:
                    yield Place("http", url, {}, log)
            case "websocket":
                async with served(App(log).server) as url:
                    yield Place("websocket", url.replace("http:", "ws:"), {}, log)


@pytest.fixture
async def peer(place: Place) -> AsyncIterator[Peer]:
    async with place.connect() as peer:
        yield peer


# what each request says of itself


async def test_a_server_is_discovered_without_a_handshake(peer: Peer) -> None:
    reply = await peer.reply(await peer.request("server/discover", {"_meta": modern_meta()}))
    assert MODERN in reply["result"]["supportedVersions"]
    assert "tools" in reply["result"]["capabilities"]


async def test_an_unknown_version_is_refused_with_those_that_are_known(peer: Peer) -> None:
    error = await peer.error("ask", meta={PROTOCOL_VERSION: "2099-01-01"})
    assert error["code"] == UNSUPPORTED_VERSION
    assert MODERN in error["data"]["supported"]


async def test_a_request_that_does_not_say_what_its_client_can_do_is_refused(peer: Peer) -> None:
    params = {"name": "ask", "arguments": {}, "_meta": {PROTOCOL_VERSION: MODERN}}
    reply = await peer.reply(await peer.request("tools/call", params))
    assert reply["error"]["code"] == INVALID_PARAMS
    assert CLIENT_CAPABILITIES in reply["error"]["message"]
    assert await peer.text("effects") == ""


async def test_what_one_request_declares_does_not_count_for_the_next(peer: Peer) -> None:
    await peer.round("ask")
    assert (await peer.error("ask", capabilities={}))["code"] == MISSING_CAPABILITY
    await peer.round("ask")


# asking


async def test_a_question_ends_the_request_and_its_answer_carries_the_call_on(peer: Peer) -> None:
    asked = await peer.round("ask", {"to": "Oslo"})
    (question,) = asked["inputRequests"].values()
    assert question["method"] == "elicitation/create"
    assert question["params"]["message"] == "How many to Oslo?"
    assert await peer.text("ask", {"to": "Oslo"}, **retry(asked, 3)) == "3 to Oslo"
    assert await peer.text("effects") == "asked, answered 3"


async def test_a_user_a_model_and_the_roots_are_asked_in_one_round(peer: Peer) -> None:
    asked = await peer.round("every")
    answers = {
        "elicitation/create": accept(value=1),
        "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"},
        "roots/list": {"roots": [{"uri": "file:///srv"}]},
    }
    methods = {key: question["method"] for key, question in asked["inputRequests"].items()}
    assert sorted(methods.values()) == sorted(answers)
    given = {key: answers[method] for key, method in methods.items()}
    assert await peer.text("every", state=asked["requestState"], answers=given) == "1 hi file:///srv"


async def test_a_call_may_ask_in_several_rounds(peer: Peer) -> None:
    first = await peer.round("twice")
    second = await peer.round("twice", **retry(first, 1))
    assert next(iter(second["inputRequests"].values()))["params"]["message"] == "1, and second?"
    assert await peer.text("twice", **retry(second, 2)) == "1 2"


async def test_several_calls_ask_at_once_and_each_gets_its_own_answers(peer: Peer) -> None:
    texts: dict[int, str] = {}

    async def call(number: int) -> None:
        asked = await peer.round("twice")
        asked = await peer.round("twice", **retry(asked, number))
        texts[number] = await peer.text("twice", **retry(asked, number * 2))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(call, number)
    assert texts == {number: f"{number} {number * 2}" for number in range(20)}


async def test_a_hundred_branches_that_ask_need_one_round(peer: Peer) -> None:
    asked = await peer.round("many", {"n": 100})
    assert len(asked["inputRequests"]) == 100
    assert await peer.text("many", {"n": 100}, **retry(asked, *range(100))) == str(sum(range(100)))


async def test_what_was_not_answered_is_asked_again_and_what_was_is_kept(peer: Peer) -> None:
    asked = await peer.round("many", {"n": 3})
    one, two, three = asked["inputRequests"]
    again = await peer.round("many", {"n": 3}, state=asked["requestState"], answers={two: accept(value=10)})
    assert list(again["inputRequests"]) == [one, three]
    once_more = await peer.round("many", {"n": 3}, state=again["requestState"])
    assert once_more["inputRequests"] == again["inputRequests"]
    assert await peer.text("many", {"n": 3}, **retry(once_more, 1, 2)) == "13"


async def test_an_answer_to_what_was_not_asked_is_ignored(peer: Peer) -> None:
    asked = await peer.round("twice")
    carried = retry(asked, 1)
    carried["answers"] |= {"elicit-2": accept(value=666), "unheard of": {"a": 1}}
    asked = await peer.round("twice", **carried)
    assert await peer.text("twice", **retry(asked, 2)) == "1 2"


async def test_answers_without_a_state_are_not_taken(peer: Peer) -> None:
    answers = retry(await peer.round("ask"), 1)["answers"]
    await peer.round("ask", answers=answers)
    assert await peer.text("effects") == "asked, asked"


async def test_a_malformed_answer_is_an_error_that_names_it_and_the_call_goes_on_waiting(peer: Peer) -> None:
    asked = await peer.round("ask")
    (key,) = asked["inputRequests"]
    error = await peer.error("ask", state=asked["requestState"], answers={key: {"action": "perhaps"}})
    assert error["code"] == INVALID_PARAMS
    assert key in error["message"]
    assert await peer.text("ask", **retry(asked, 1)) == "1 to Lisbon"


async def test_the_same_leg_sent_again_gets_the_same_outcome_and_runs_nothing(peer: Peer) -> None:
    asked = await peer.round("ask")
    ids = [await peer.leg("ask", **retry(asked, 1)) for _ in range(5)]
    results = [(await peer.reply(request_id))["result"] for request_id in ids]
    results.append(await peer.result("ask", **retry(asked, 2)))
    assert all(result == results[0] for result in results)
    assert await peer.text("effects") == "asked, answered 1"


# capabilities, leg by leg


async def test_nothing_is_asked_that_the_first_leg_does_not_declare(peer: Peer) -> None:
    error = await peer.error("every", capabilities={"elicitation": {"form": {}}, "sampling": {}})
    assert error["code"] == MISSING_CAPABILITY
    assert error["data"] == {"requiredCapabilities": {"roots": {}}}


async def test_branches_that_ask_a_client_that_cannot_are_one_refusal(peer: Peer) -> None:
    error = await peer.error("many", {"n": 100}, capabilities={})
    assert error["code"] == MISSING_CAPABILITY


async def test_a_retry_that_declares_fewer_is_not_asked_what_it_does_not_declare(peer: Peer) -> None:
    asked = await peer.round("twice")
    error = await peer.error("twice", **retry(asked, 1), capabilities={"sampling": {}})
    assert error["code"] == MISSING_CAPABILITY
    assert error["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}


async def test_an_open_question_is_not_asked_again_of_a_retry_that_does_not_declare_it(peer: Peer) -> None:
    asked = await peer.round("ask")
    error = await peer.error("ask", state=asked["requestState"], capabilities={})
    assert error["code"] == MISSING_CAPABILITY


async def test_a_retry_may_declare_fewer_when_nothing_more_is_asked(peer: Peer) -> None:
    asked = await peer.round("ask")
    assert await peer.text("ask", **retry(asked, 1), capabilities={}) == "1 to Lisbon"


# states that are none


async def refusals(peer: Peer, states: Iterable[object]) -> set[bytes]:
    """What a retry with each of these states is told; the id aside, byte for byte."""
    told: set[bytes] = set()
    window: list[int] = []
    for state in states:
        window.append(await peer.leg("ask", state=state, answers={"elicit-1": accept(value=1)}))
        if len(window) == WINDOW:
            told |= {refused(await peer.reply(request_id)) for request_id in window}
            window.clear()
    return told | {refused(await peer.reply(request_id)) for request_id in window}


def refused(reply: Json) -> bytes:
    assert "error" in reply, f"taken: {reply}"
    return dump(ErrorResponse(0, ErrorDetail(**{"data": None, **reply["error"]})))


async def assert_still_waiting(peer: Peer, asked: Json) -> None:
    """Nothing has run, and the real state is still good."""
    assert await peer.text("effects") == "asked"
    assert await peer.text("ask", **retry(asked, 1)) == "1 to Lisbon"


def sealed(state: str) -> bytes:
    return urlsafe_b64decode(state + "=" * (-len(state) % 4))


def written(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


async def test_every_flipped_bit_of_a_state_is_refused_in_the_same_words(peer: Peer) -> None:
    asked = await peer.round("ask")
    data = sealed(asked["requestState"])

    def flipped() -> Iterator[str]:
        for place in range(len(data) * 8):
            changed = bytearray(data)
            changed[place // 8] ^= 1 << place % 8
            yield written(bytes(changed))

    assert await refusals(peer, flipped()) == {REFUSAL}
    await assert_still_waiting(peer, asked)


async def test_every_truncated_state_is_refused_in_the_same_words(peer: Peer) -> None:
    asked = await peer.round("ask")
    state = asked["requestState"]
    cut = [state[:length] for length in range(len(state))] + [state[start:] for start in range(1, len(state))]
    assert await refusals(peer, cut) == {REFUSAL}
    await assert_still_waiting(peer, asked)


async def test_other_writings_of_a_state_are_refused_in_the_same_words(peer: Peer) -> None:
    asked = await peer.round("ask")
    state = asked["requestState"]
    others = [
        f"{state}=",
        f"{state} ",
        f" {state}",
        f"{state}\n",
        f"{state}A",
        state + state,
        state.swapcase(),
        "\0",
        "☃",
    ]
    assert await refusals(peer, [*others, "x" * 100_000]) == {REFUSAL}
    await assert_still_waiting(peer, asked)


def claims_of(state: str) -> Claims:
    return Sealer(KEYS, NAME).open(state, None, "tools/call", digest("ask", {}))


def forged(state: str, sealer: Sealer, **changes: Any) -> str:
    """A state with the claims of this one, but for the changes, made by another sealer."""
    claims = claims_of(state)
    said = {name: getattr(claims, name) for name in ("principal", "method", "digest", "call_id", "leg", "journal")}
    return sealer.seal(**(said | changes))


async def test_an_expired_state_is_refused_in_the_same_words(peer: Peer) -> None:
    asked = await peer.round("ask")
    long_ago = Sealer(KEYS, NAME, ttl=600, clock=lambda: time.time() - 601)
    assert await refusals(peer, [forged(asked["requestState"], long_ago)]) == {REFUSAL}
    await assert_still_waiting(peer, asked)


async def test_a_foreign_state_is_refused_in_the_same_words(peer: Peer) -> None:
    asked = await peer.round("ask")
    state, ours = asked["requestState"], Sealer(KEYS, NAME)
    foreign = [
        forged(state, Sealer(KeyRing.random(), NAME)),  # another key
        forged(state, Sealer(KEYS, "another server")),
        forged(state, ours, principal="somebody else"),
        forged(state, ours, method="prompts/get"),
        forged(state, ours, digest=digest("twice", {})),
        forged(state, ours, digest=digest("ask", {"to": "Oslo"})),
        forged(state, ours, leg=7),  # which has not been
    ]
    assert await refusals(peer, foreign) == {REFUSAL}
    await assert_still_waiting(peer, asked)


@pytest.mark.parametrize("other", [("ask", {"to": "Oslo"}), ("twice", {}), ("effects", {})], ids=str)
async def test_a_state_is_refused_with_another_tool_or_other_arguments(other: tuple[str, Json], peer: Peer) -> None:
    asked = await peer.round("ask")
    reply = await peer.reply(await peer.leg(*other, **retry(asked, 1)))
    assert refused(reply) == REFUSAL
    await assert_still_waiting(peer, asked)


@pytest.mark.parametrize("state", [1, True, {}, []], ids=str)
async def test_a_state_that_is_no_text_is_refused(state: object, peer: Peer) -> None:
    asked = await peer.round("ask")
    error = await peer.error("ask", state=state, answers=retry(asked, 1)["answers"])
    assert error["code"] == INVALID_PARAMS
    await assert_still_waiting(peer, asked)


# cancelling


async def test_a_cancelled_leg_cancels_its_call_and_is_not_answered(peer: Peer) -> None:
    call = await peer.leg("wait", meta={"progressToken": "t"})
    await peer.notified()
    await peer.cancel(call)
    assert await peer.text("ended") in ("client\n", "disconnect\n")  # over HTTP a cancel is a closed stream
    await peer.text("effects")
    assert not peer.has_answer(call)


async def test_a_cancel_in_a_later_leg_cancels_the_call_and_a_copy_of_that_leg_is_told_so(peer: Peer) -> None:
    asked = await peer.round("then_wait")
    call = await peer.leg("then_wait", **retry(asked, True), meta={"progressToken": "t"})
    await peer.notified()
    await peer.cancel(call)
    await peer.text("ended")
    error = await peer.error("then_wait", **retry(asked, True))
    assert "cancelled" in error["message"]


async def test_the_end_of_a_connection_cancels_the_calls_that_run(place: Place) -> None:
    async with place.connect() as peer:
        await peer.leg("wait", meta={"progressToken": "t"})
        await peer.notified()
    if place.transport == "http":  # its server lives on, and has to notice
        async with place.connect() as other:
            await other.text("ended")
    assert place.log.read_text() == "disconnect\n"


# what a call reports on its legs


async def test_what_parked_calls_hold_is_counted_by_the_size_of_their_requests(peer: Peer) -> None:
    """First two legs of half the cap each do not fit; the room of a call that has ended is free again."""
    large = {"to": "x" * (PARKED_BYTES // 2)}
    first = await peer.round("ask", large)
    error = await peer.error("ask", large)
    assert error["code"] == SERVER_BUSY
    assert f"may hold {PARKED_BYTES} bytes of requests" in error["message"]
    (key,) = first["inputRequests"]
    assert await peer.text("ask", large, state=first["requestState"], answers={key: accept(value=1)})
    await peer.round("ask", large)


async def test_what_a_call_holds_grows_with_each_of_its_legs(peer: Peer) -> None:
    """What an earlier leg brought may still be held when the next one comes."""
    large = {"com.example/note": "x" * (PARKED_BYTES // 2)}
    first = await peer.round("twice", meta=large)
    (key,) = first["inputRequests"]
    error = await peer.error("twice", meta=large, state=first["requestState"], answers={key: accept(value=1)})
    assert f"may hold {PARKED_BYTES} bytes of requests" in error["message"]


async def test_progress_and_log_messages_belong_to_the_leg_they_are_sent_on(peer: Peer) -> None:
    asked = await peer.round("reports", meta={"progressToken": "one"})
    asked = await peer.round("reports", **retry(asked, True), meta=log_level("debug"))
    assert await peer.text("reports", **retry(asked, True), meta={"progressToken": 3, **log_level("error")}) == "done"
    told = [(message["method"].rpartition("/")[2], message["params"]) for message in peer.notifications]
    assert told == [
        ("progress", {"progressToken": "one", "progress": 1}),
        ("message", {"level": "info", "data": "leg 2"}),
        ("progress", {"progressToken": 3, "progress": 1}),
        ("message", {"level": "error", "data": "leg 3"}),
    ]


# the library's own client


async def test_the_client_gives_up_after_ten_rounds_or_as_many_as_it_is_told(place: Place) -> None:
    async with place.client(on_elicit=lambda _params: user_accepts(value=1)) as client:
        assert (await client.call_tool("loop", {"n": 10})).text == " ".join("1" * 10)
        with pytest.raises(LimitExceeded, match="more than 10 rounds"):
            await client.call_tool("loop", {"n": 11})
        with pytest.raises(LimitExceeded, match="more than 2 rounds"):
            await client.call_tool("loop", {"n": 3}, max_rounds=2)
        assert (await client.call_tool("loop", {"n": 11}, max_rounds=11)).text == " ".join("1" * 11)


async def test_a_call_that_is_given_up_while_its_user_thinks_leaves_the_client_usable(place: Place) -> None:
    thinking = trio.Event()

    async def think(_params: object) -> Any:
        thinking.set()
        await trio.sleep_forever()

    async with place.client(on_elicit=think) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "ask")
            await thinking.wait()
            nursery.cancel_scope.cancel()
        assert (await client.call_tool("effects")).text == "asked"
