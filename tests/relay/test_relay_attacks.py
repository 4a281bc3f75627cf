"""The proxy between hosts, servers and providers that break the rules: what they break is their own."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing
from relaying import (
    DISCOVERED,
    HELLO,
    NOTE,
    SECONDS,
    Json,
    Model,
    Relayed,
    ask,
    call,
    cancel,
    initialize,
    initialized,
    legacy,
    modern,
    relayed,
    result,
    saying,
)
from wire_terms import LEGACY_REVISIONS

from trio_mcp.relay.forwarding import MAX_UNSENT
from trio_mcp.types import CreateMessageRequestParams, CreateMessageResult

SAMPLE = {"method": "sampling/createMessage", "params": ask(0)["params"]}
BROKEN = {"method": "sampling/createMessage", "params": {"messages": "none", "maxTokens": 1}}


def line(message: Json) -> bytes:
    return json.dumps(message).encode()


def round_of(request_id: int | str, **questions: Json) -> Json:
    interim = {"resultType": "input_required", "inputRequests": questions, "requestState": "s"}
    return {"jsonrpc": "2.0", "id": request_id, "result": interim}


@pytest.mark.parametrize(
    "outcome", [None, "hello", HELLO, SystemExit(), KeyboardInterrupt(), KeyError("secret")], ids=repr
)
async def test_a_provider_that_returns_or_raises_something_else_fails_its_sample_alone(outcome: object) -> None:
    class Odd:
        async def sample(self, request: CreateMessageRequestParams) -> Any:
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

    async with legacy(Odd()) as proxy:
        await proxy.server.send(ask(1))
        answer = await proxy.server.receive()
        assert answer["error"]["code"] == -32603
        assert "secret" not in json.dumps(answer)
        await proxy.host.hears_nothing_before(proxy.server, NOTE)
        assert await proxy.passed(call(2)) == call(2)


@pytest.mark.parametrize("is_modern", [False, True])
async def test_half_of_a_character_in_a_name_costs_a_host_this_message_alone(is_modern: bool) -> None:
    async with relayed() as proxy:
        await (proxy.open_modern() if is_modern else proxy.open_legacy())
        await proxy.host.send(modern(7, "tools/call", {"name": "\ud800"}) if is_modern else call(7, "\ud800"))
        await proxy.host.fails(7, -32602)
        await proxy.host.send(b'{"jsonrpc": "2.0", "method": "notifications/x", "params": {"uri": "\\ud800"}}')
        assert await proxy.passed(NOTE) == NOTE


async def test_a_provider_that_answers_in_spite_of_its_cancel_answers_no_other_question() -> None:
    """The server cancels its sample and uses the id again while the provider still cleans up."""
    let_go = trio.Event()

    class Stubborn:
        calls = 0

        async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
            self.calls += 1
            if self.calls > 1:
                await trio.sleep_forever()
            with trio.CancelScope(shield=True):
                await let_go.wait()
            return saying("the first")

    async with legacy(Stubborn()) as proxy:
        await proxy.server.send(ask(1))
        await trio.testing.wait_all_tasks_blocked()
        await proxy.server.send(cancel(1))
        await proxy.server.send(ask(1))
        await trio.testing.wait_all_tasks_blocked()
        # The id is that of a question that the proxy still answers.
        assert (await proxy.server.receive())["error"]["code"] == -32600
        let_go.set()
        await trio.testing.wait_all_tasks_blocked()
        await proxy.server.hears_nothing_before(proxy.host, NOTE)


async def test_all_samples_of_a_round_may_fail_at_once() -> None:
    async with relayed() as proxy:
        await proxy.open_modern()
        await proxy.host.send(modern(1, "tools/call", {"name": "look"}))
        got = await proxy.server.receive()
        await proxy.server.send(round_of(got["id"], a=BROKEN, b=BROKEN, c=BROKEN))
        await proxy.host.fails(1, -32602)
        await proxy.host.send(modern(2, "tools/call", {"name": "look"}))
        assert (await proxy.server.receive())["id"] == 2


async def test_a_server_that_dies_in_a_sample_ends_the_request_to_the_model(autojump_clock: object) -> None:
    model = Model(held=True)
    async with legacy(model) as proxy:
        await proxy.passed(call(1))
        await proxy.server.send(ask(1))
        await model.began.wait()
        await proxy.server.leave()
        assert (await proxy.host.receive())["error"]["code"] == -32603
        with trio.fail_after(SECONDS):
            await model.cancelled.wait()
            await proxy.over.wait()


async def test_what_follows_the_handshake_at_once_reaches_the_host_after_it() -> None:
    async with relayed() as proxy:
        await proxy.host.send(initialize({"sampling": {"tools": {}}}))
        got = await proxy.server.receive()
        answer = {"jsonrpc": "2.0", "id": got["id"], "result": initialized()}
        await proxy.server.send_together(answer, NOTE, ask(1))
        assert (await proxy.host.receive())["id"] == "open"
        assert await proxy.host.receive() == NOTE
        # The host has a model, which counts from the handshake on.
        assert await proxy.host.receive() == ask(1)


async def test_a_sample_before_the_handshake_is_rejected() -> None:
    model = Model()
    async with relayed(model) as proxy:
        await proxy.server.send(ask(1))
        assert (await proxy.server.receive())["error"]["code"] == -32600
        assert model.asked == []
        await proxy.open_legacy()


async def test_a_modern_server_that_sends_a_sample_as_a_request_gets_no_answer_of_a_model() -> None:
    model = Model()
    async with relayed(model) as proxy:
        await proxy.open_modern()
        await proxy.server.send(ask(1))
        # It may not send requests, and no answers either are due to it (M-RPC-1c).
        await proxy.server.hears_nothing_before(proxy.host, modern(1, "x/y", {}, {"sampling": {"tools": {}}}))
        assert model.asked == []


async def test_a_request_of_the_proxy_that_is_answered_twice_ends_nothing() -> None:
    async with relayed() as proxy:
        await proxy.host.send(initialize({}))
        got = await proxy.server.receive()
        answer = {"jsonrpc": "2.0", "id": got["id"], "result": initialized()}
        await proxy.server.send_together(answer, answer, answer)
        assert (await proxy.host.receive())["id"] == "open"
        assert await proxy.passed(call(1)) == call(1)


async def test_a_second_answer_during_a_round_does_not_reach_the_host() -> None:
    model = Model(held=True)
    async with relayed(model) as proxy:
        await proxy.open_modern()
        await proxy.host.send(modern(1, "tools/call", {"name": "look"}))
        await proxy.server.receive()
        await proxy.server.send(round_of(1, a=SAMPLE))
        await model.began.wait()
        await proxy.server.send(result(1, resultType="complete"))
        await proxy.host.hears_nothing_before(proxy.server, NOTE)


@pytest.mark.parametrize("named", [True, 1.5, None, [1], {"a": 1}])
async def test_a_cancellation_of_no_id_cancels_no_sample(named: object) -> None:
    model = Model(held=True)
    async with legacy(model) as proxy:
        for request_id in (1, ""):
            await proxy.server.send(ask(request_id))
        await trio.testing.wait_all_tasks_blocked()
        await proxy.server.send({**cancel(1), "params": {"requestId": named}})
        await trio.testing.wait_all_tasks_blocked()
        assert not model.cancelled.is_set()


async def test_number_and_digits_are_the_ids_of_two_samples() -> None:
    model = Model(held=True)
    async with legacy(model) as proxy:
        for request_id in (1, "1"):
            await proxy.server.send(ask(request_id))
        await trio.testing.wait_all_tasks_blocked()
        assert len(model.asked) == 2


async def test_ten_thousand_samples_at_once_are_answered_or_rejected() -> None:
    async with legacy(max_answering=32) as proxy, trio.open_nursery() as nursery:
        ids = range(10_000)
        nursery.start_soon(proxy.server.send, b"\n".join([line(ask(number)) for number in ids]))
        answers = [await proxy.server.receive() for _ in ids]
        assert sorted(answer["id"] for answer in answers) == list(ids)
        assert {answer["error"]["code"] for answer in answers if "error" in answer} <= {-32000}
        assert await proxy.passed(call(1)) == call(1)


@pytest.mark.parametrize("version", LEGACY_REVISIONS)
async def test_uses_of_tools_can_be_said_or_are_an_error_in_every_legacy_revision(version: str) -> None:
    uses = {"type": "tool_use", "id": "u1", "name": "look", "input": {}}
    answer = CreateMessageResult.model_validate({**HELLO, "content": [uses, {**uses, "id": "u2"}]})
    async with relayed(Model(answer=answer)) as proxy:
        await proxy.open_legacy(version=version)
        await proxy.server.send(ask(1))
        assert (await proxy.server.receive())["id"] == 1
        assert await proxy.passed(call(1)) == call(1)


@pytest.mark.parametrize("answer", [result(1), {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}}])
async def test_a_host_does_not_answer_a_question_that_the_proxy_answers(answer: Json) -> None:
    model = Model(held=True)
    async with legacy(model) as proxy:
        await proxy.server.send(ask(1))
        await model.began.wait()
        await proxy.host.send(answer)
        await proxy.server.hears_nothing_before(proxy.host, NOTE)


@pytest.mark.parametrize(
    "first",
    [
        b'{"jsonrpc":"2.0","id":1,"result":[]}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","error":{"code":1,"message":"no"}}',
        b'{"jsonrpc":"2.0","id":1}',
        b"[]",
        b"[1]",
        b'[{"jsonrpc":"2.0","method":"x"}]',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
        b'{"jsonrpc":"2.0","method":"notifications/x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}',
    ],
)
async def test_a_host_may_begin_with_anything_and_still_open_a_session(first: bytes) -> None:
    async with relayed() as proxy:
        await proxy.host.send(first)
        await proxy.host.send(initialize({}))
        while (got := await proxy.server.receive()).get("method") != "initialize":
            pass
        await proxy.server.send({"jsonrpc": "2.0", "id": got["id"], "result": initialized()})
        while not isinstance(answer := await proxy.host.receive(), dict) or answer.get("id") != "open":
            pass


# what the proxy holds

LARGE = "x" * 1024 * 1024


async def test_the_bytes_that_wait_for_a_server_that_does_not_read_are_limited() -> None:
    """Also of requests that the proxy changes."""
    async with relayed(reads=False) as proxy:
        await proxy.host.send(modern("discover", "server/discover", {}))
        for _ in range(2):
            probe = await proxy.server.receive()
            await proxy.server.send({"jsonrpc": "2.0", "id": probe["id"], "result": DISCOVERED})
        assert (await proxy.host.receive())["id"] == "discover"
        for number in range(24):
            await proxy.host.send(modern(number, "tools/call", {"name": "look", "arguments": {"a": LARGE}}))
        assert (await proxy.host.receive())["error"]["code"] == -32000


async def test_the_bytes_that_wait_until_the_server_is_reached_are_limited() -> None:
    async with relayed() as proxy:
        await proxy.host.send(initialize({}))
        for number in range(24):
            await proxy.host.send(call(number, arguments={"a": LARGE}))
        assert (await proxy.host.receive())["error"]["code"] == -32000


async def test_the_bytes_that_a_server_sends_before_the_handshake_are_limited() -> None:
    async with relayed() as proxy:
        large = {**NOTE, "params": {"a": LARGE[: len(LARGE) // 4]}}
        for _ in range(8):
            await proxy.server.send(large)
        await proxy.host.send(initialize({}))
        got = await proxy.server.receive()
        for _ in range(8):
            await proxy.server.send(large)
        await proxy.server.send({"jsonrpc": "2.0", "id": got["id"], "result": initialized()})
        assert (await proxy.host.receive())["id"] == "open"
        await proxy.server.send(NOTE)
        assert [await proxy.host.receive() for _ in range(4)] == [*[large] * 3, NOTE]


async def test_a_host_that_reads_nothing_stops_the_reading_of_its_server() -> None:
    sent = 0

    async def flood(proxy: Relayed) -> None:
        nonlocal sent
        for _ in range(64):
            await proxy.server.send({**NOTE, "params": {"a": LARGE}})
            sent += 1

    async with legacy(reads=False, host_reads=False) as proxy, trio.open_nursery() as nursery:
        nursery.start_soon(flood, proxy)
        await trio.testing.wait_all_tasks_blocked()
        assert sent < 16
        nursery.cancel_scope.cancel()


async def test_a_server_that_asks_on_and_reads_no_answers_is_not_read_without_end() -> None:
    model = Model()
    async with legacy(model, reads=False) as proxy, trio.open_nursery() as nursery:
        ids = range(MAX_UNSENT)

        async def flood() -> None:
            for number in ids:
                await proxy.server.send(ask(number))

        nursery.start_soon(flood)
        await trio.testing.wait_all_tasks_blocked()
        assert len(model.asked) < MAX_UNSENT // 4
        answers = [await proxy.server.receive() for _ in ids]
        assert sorted(answer["id"] for answer in answers) == list(ids)
