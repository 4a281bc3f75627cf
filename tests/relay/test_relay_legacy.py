"""The proxy between a host and a server that speak one legacy revision."""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from unittest.mock import ANY

import pytest
import trio
import trio.testing
from ends import LineEnd
from relaying import (
    FORM,
    HELLO,
    NOTE,
    PROMPT,
    TOOL,
    Json,
    Model,
    ask,
    call,
    cancel,
    initialize,
    initialized,
    legacy,
    relayed,
    result,
)

from trio_mcp.errors import ProviderError, ProviderErrorKind
from trio_mcp.relay import Backfill
from trio_mcp.relay.forwarding import MAX_UNSENT
from trio_mcp.session import Call, Envelope
from trio_mcp.testing.interruptions.census import only_new_objects
from trio_mcp.types import CreateMessageResult, ElicitRequestFormParams, ElicitResult

ASSISTANT = {"role": "assistant", "content": {"type": "tool_use", "id": "u1", "name": "look", "input": {}}}


# what passes


@pytest.mark.parametrize(
    ("of_host", "declared"),
    [
        (
            {"roots": {"x-unknown": 1}, "x-unknown": {}},
            {"roots": {"x-unknown": 1}, "x-unknown": {}, "sampling": {"tools": {}}},
        ),
        ({"sampling": {"context": {}}}, {"sampling": {"context": {}, "tools": {}}}),
        ({"sampling": {"tools": {}}}, {"sampling": {"tools": {}}}),
    ],
    ids=["no model", "a model without tools", "a model with tools"],
)
async def test_a_host_is_declared_to_have_a_model_with_tools_and_nothing_else(of_host: Json, declared: Json) -> None:
    async with relayed() as proxy:
        params = (await proxy.open_legacy(of_host))["params"]
        assert (params["capabilities"], params["clientInfo"]) == (declared, {"name": "host", "version": "1"})


async def test_a_ping_of_either_side_before_and_after_the_handshake_is_answered() -> None:
    async with relayed() as proxy:
        await proxy.host.send(ask("p", "ping", {"a": 1}))
        assert await proxy.host.receive() == {"jsonrpc": "2.0", "id": "p", "result": {}}
        await proxy.open_legacy()
        await proxy.server.send(ask("q", "ping", {}))
        assert await proxy.server.receive() == {"jsonrpc": "2.0", "id": "q", "result": {}}


async def test_replies_that_are_ready_together_share_a_write() -> None:
    writes: list[int] = []

    class Host(LineEnd):
        def send_nowait(self, value: Envelope) -> bool:
            writes.append(1)
            return super().send_nowait(value)

        async def send_many(self, values: Sequence[Envelope]) -> None:
            writes.append(len(values))
            await super().send_many(values)

    async with legacy(host_type=Host) as proxy:
        await proxy.passed(call(1))
        await proxy.passed(call(2))
        writes.clear()
        await proxy.server.send_together(result(1), result(2))
        assert [(await proxy.host.receive())["id"] for _ in range(2)] == [1, 2]
        assert writes == [2]


async def test_a_member_that_is_named_as_a_field_of_a_model_passes_as_it_came() -> None:
    async with relayed() as proxy:
        await proxy.open_legacy()
        params: Json = {"name": "look", "meta": {"x": 1}, "result_type": None}
        assert (await proxy.passed(ask(1, "tools/call", params)))["params"] == params


async def test_ids_of_the_two_sides_are_separate() -> None:
    async with relayed() as proxy:
        await proxy.open_legacy({"roots": {}})
        assert await proxy.passed(call(1)) == call(1)
        await proxy.server.send(ask(1, "roots/list", {"x": 1}))
        assert await proxy.host.receive() == ask(1, "roots/list", {"x": 1})
        await proxy.host.send(result(1, x="host"))
        assert await proxy.server.receive() == result(1, x="host")
        await proxy.server.send(result(1, x="server"))
        assert await proxy.host.receive() == result(1, x="server")


async def test_a_cancellation_of_the_host_crosses() -> None:
    async with legacy() as proxy:
        await proxy.passed(call(3))
        await proxy.host.send({**cancel(3), "params": {"requestId": 3, "reason": "bored"}})
        assert (await proxy.server.receive())["params"]["requestId"] == 3
        # The id is free again.
        assert await proxy.passed(call(3)) == call(3)


@pytest.mark.parametrize(
    "answer", [{"result": {}}, {"error": {"code": 1, "message": "no"}}, None], ids=["result", "error", "cancelled"]
)
async def test_a_call_is_freed_when_it_has_ended(answer: Json | None) -> None:
    async with legacy() as proxy:
        with only_new_objects():
            await proxy.passed(call(1))
            if answer is None:
                await proxy.host.send(cancel(1))
                await proxy.server.receive()
            else:
                await proxy.server.send({"jsonrpc": "2.0", "id": 1, **answer})
                await proxy.host.receive()
            await trio.testing.wait_all_tasks_blocked()
            assert [each for each in gc.get_objects() if isinstance(each, Call)] == []


async def test_an_id_that_is_in_use_is_rejected() -> None:
    async with legacy() as proxy:
        await proxy.host.send(call(3))
        await proxy.host.send(call(3))
        assert (await proxy.host.receive())["error"]["code"] == -32600


async def test_a_line_that_is_no_json_is_answered_by_the_proxy_and_ends_nothing() -> None:
    async with legacy() as proxy:
        await proxy.host.send(b"{nonsense")
        assert (await proxy.host.receive())["error"]["code"] == -32700
        await proxy.server.hears_nothing_before(proxy.host, call(4))


async def test_an_answer_that_cannot_be_read_fails_its_request_alone() -> None:
    async with legacy() as proxy:
        await proxy.passed(call(5))
        await proxy.server.send({"jsonrpc": "2.0", "id": 5, "result": [1]})
        await proxy.host.fails(5)
        await proxy.host.hears_nothing_before(proxy.server, NOTE)


async def test_the_messages_of_a_batch_of_the_server_pass_one_by_one_and_their_answers_come_in_one_array() -> None:
    async with relayed() as proxy:
        await proxy.open_legacy(version="2025-03-26")
        await proxy.passed(call(1))
        asked = ask("r", "roots/list", {"a": 1})
        await proxy.server.send([ask("s"), NOTE, asked, 7, {**call("bad"), "params": 1}])
        got = [await proxy.host.receive() for _ in range(2)]
        assert [each["method"] for each in got] == [NOTE["method"], "roots/list"]
        await proxy.host.send(result("r"))
        answers = await proxy.server.receive()
        assert {answer["id"]: "error" in answer for answer in answers} == {"s": False, "r": False, "bad": True}
        await proxy.server.send(result(1))
        assert await proxy.host.receive() == result(1)


@pytest.mark.parametrize("batch", [[], [NOTE] * 101])
async def test_a_batch_that_is_none_ends_nothing(batch: list[Json]) -> None:
    async with relayed() as proxy:
        await proxy.open_legacy(version="2025-03-26")
        await proxy.server.send(batch)
        await proxy.host.hears_nothing_before(proxy.server, NOTE)


async def test_an_array_of_a_server_whose_revision_has_no_batches_does_not_reach_the_host() -> None:
    async with legacy() as proxy:
        await proxy.server.send([NOTE])
        await proxy.host.hears_nothing_before(proxy.server, {**NOTE, "params": {"a": 2}})


async def test_a_handshake_that_the_server_rejects_is_rejected_for_the_host_and_may_be_repeated() -> None:
    async with relayed() as proxy:
        await proxy.host.send(initialize({}))
        got = await proxy.server.receive()
        await proxy.server.send({"jsonrpc": "2.0", "id": got["id"], "error": {"code": -32602, "message": "no"}})
        probe = await proxy.server.receive()
        assert probe["method"] == "server/discover"
        await proxy.server.send({"jsonrpc": "2.0", "id": probe["id"], "error": {"code": -32601, "message": "what?"}})
        assert (await proxy.host.receive())["error"] == {"code": -32602, "message": "no"}
        await proxy.open_legacy()


# what the proxy answers


async def test_a_sample_is_answered_by_the_provider_and_the_host_sees_nothing_of_it() -> None:
    model = Model()
    async with legacy(model) as proxy:
        await proxy.server.send(ask(1))
        assert await proxy.server.receive() == {"jsonrpc": "2.0", "id": 1, "result": HELLO}
        assert [request.max_tokens for request in model.asked] == [10]
        await proxy.host.hears_nothing_before(proxy.server, NOTE)


USE: Json = {"type": "tool_use", "id": "u1", "name": "look", "input": {"at": "sky"}}
WITH_TOOLS: Json = {**PROMPT, "tools": [TOOL], "toolChoice": {"mode": "required"}}


@pytest.mark.parametrize(
    ("answer", "params", "content"),
    [
        (HELLO["content"], PROMPT, HELLO["content"]),
        (USE, WITH_TOOLS, USE),
        ({"type": "tool_result", "toolUseId": "u1", "content": []}, PROMPT, None),
    ],
    ids=["a text", "a use of a tool", "a result of a tool, which no model says"],
)
async def test_an_answer_of_one_block_is_no_array_for_the_server(answer: Json, params: Json, content: Json) -> None:
    said = CreateMessageResult.model_validate({**HELLO, "content": [answer]})
    async with legacy(Model(answer=said)) as proxy:
        await proxy.server.send(ask(1, params=params))
        if content is None:
            await proxy.server.fails(1)
        else:
            assert (await proxy.server.receive())["result"]["content"] == content


@pytest.mark.parametrize("more", [{}, {"tools": [TOOL]}, {"toolChoice": {"mode": "none"}}])
async def test_a_host_with_a_model_that_uses_tools_is_asked(more: Json) -> None:
    model = Model()
    async with relayed(model) as proxy:
        await proxy.open_legacy({"sampling": {"tools": {}}})
        await proxy.server.send(ask(1, params={**PROMPT, **more}))
        assert await proxy.host.receive() == ask(1, params={**PROMPT, **more})
        await proxy.host.send(result(1))
        assert await proxy.server.receive() == result(1)
        assert not model.asked


@pytest.mark.parametrize("more", [{"tools": [TOOL]}, {"toolChoice": {"mode": "none"}}], ids=["tools", "choice"])
async def test_a_host_whose_model_uses_no_tools_is_asked_what_needs_none(more: Json) -> None:
    model = Model()
    async with relayed(model) as proxy:
        await proxy.open_legacy({"sampling": {}})
        await proxy.server.send(ask(1))
        assert await proxy.host.receive() == ask(1)
        await proxy.server.send(ask(2, params={**PROMPT, **more}))
        assert (await proxy.server.receive())["id"] == 2
        assert len(model.asked) == 1


async def test_a_cancellation_of_the_server_ends_the_request_to_the_model_without_an_answer() -> None:
    model = Model(held=True)
    async with legacy(model) as proxy:
        await proxy.server.send(ask(1))
        await model.began.wait()
        await proxy.server.send(cancel(1))
        await model.cancelled.wait()
        await proxy.server.hears_nothing_before(proxy.host, call(2))
        # It was for the proxy, and not for the host.
        await proxy.host.hears_nothing_before(proxy.server, result(2))


@pytest.mark.parametrize("_again", range(6))  # Trio runs the tasks of one step in any order
async def test_what_a_host_that_leaves_waits_for_is_cancelled_at_the_server(_again: int) -> None:
    async with legacy() as proxy:
        await proxy.passed(call(1))
        await proxy.host.leave()
        assert (await proxy.server.receive())["params"]["requestId"] == 1


async def test_a_host_that_leaves_ends_the_request_to_the_model() -> None:
    model = Model(held=True)
    async with legacy(model) as proxy:
        await proxy.server.send(ask(1))
        await model.began.wait()
        await proxy.host.leave()
        await model.cancelled.wait()
        await proxy.server.ends()


async def test_a_server_that_leaves_fails_what_waits_for_it_and_ends_the_proxy(autojump_clock: object) -> None:
    async with legacy() as proxy:
        await proxy.passed(call(1))
        await proxy.server.leave()
        await proxy.host.fails(1)
        await proxy.host.ends()
        assert proxy.relay.failure is not None


@pytest.mark.parametrize("kind", ProviderErrorKind)
async def test_a_failure_of_the_provider_is_named_without_its_words(kind: ProviderErrorKind) -> None:
    error = ProviderError("sk-secret and other words of the API", kind=kind)
    async with legacy(Model(fails=error)) as proxy:
        await proxy.server.send(ask(1))
        answer = await proxy.server.receive()
        assert answer["error"]["code"] == -32603
        assert "sk-secret" not in json.dumps(answer)


@pytest.mark.parametrize(
    "params",
    [{**PROMPT, "messages": [*PROMPT["messages"], ASSISTANT]}, {"messages": "none", "maxTokens": 1}, {"messages": []}],
    ids=["tool use without a result", "no list", "no maxTokens"],
)
async def test_a_request_that_breaks_the_rules_does_not_reach_the_provider(params: Json) -> None:
    model = Model()
    async with legacy(model) as proxy:
        await proxy.server.send(ask(1, params=params))
        assert (await proxy.server.receive())["error"]["code"] == -32602
        assert not model.asked


async def test_the_number_of_concurrent_samples_is_limited() -> None:
    model = Model(held=True)
    async with legacy(model, max_answering=2) as proxy:
        for number in range(3):
            await proxy.server.send(ask(number))
        assert "max_answering" in await proxy.server.fails(ANY, -32000)
        assert len(model.asked) == 2


# forms


async def answer_bob(form: ElicitRequestFormParams) -> ElicitResult:
    assert form.message == "Your name?"
    return ElicitResult(action="accept", content={"name": "Bob"})


async def test_a_host_that_shows_forms_is_asked() -> None:
    async with relayed(on_form=answer_bob) as proxy:
        got = await proxy.open_legacy({"elicitation": {}})
        assert got["params"]["capabilities"]["elicitation"] == {}
        await proxy.server.send(ask(1, "elicitation/create", FORM))
        assert await proxy.host.receive() == ask(1, "elicitation/create", FORM)


async def test_what_comes_behind_the_handshake_waits_for_its_answer() -> None:
    async with relayed() as proxy:
        await proxy.host.send(call(0, "early"))
        assert (await proxy.host.receive())["error"]["code"] == -32600
        await proxy.host.send(initialize({}))
        got = await proxy.passed(call(1))
        assert got["method"] == "initialize"
        await proxy.server.send({"jsonrpc": "2.0", "id": got["id"], "result": initialized()})
        assert await proxy.server.receive() == call(1)


async def test_a_host_may_send_only_so_much_before_the_server_answers() -> None:
    async with relayed() as proxy:
        await proxy.host.send(initialize({}))
        for number in range(300):
            await proxy.host.send(call(number))
        await proxy.host.fails(ANY, -32000)


async def test_only_so_much_waits_for_a_server_that_reads_nothing() -> None:
    async with legacy(reads=False) as proxy:
        for number in range(2 * MAX_UNSENT):
            await proxy.host.send(call(number))
        await proxy.host.fails(ANY, -32000)
        # A notification is dropped, and ends nothing.
        await proxy.host.send(NOTE)
        await trio.testing.wait_all_tasks_blocked()
        assert [await proxy.server.receive() for _ in range(MAX_UNSENT)] == [call(n) for n in range(MAX_UNSENT)]
        await proxy.host.send(call("last", "last"))
        while (got := await proxy.server.receive()) != call("last", "last"):
            assert got["method"] == "tools/call"


async def test_a_session_that_the_server_has_lost_ends_the_connection() -> None:
    async with legacy() as proxy:
        await proxy.passed(call(1))
        await proxy.server.send(b"LOST")
        assert (await proxy.host.receive())["error"]["code"] == -32603
        await proxy.host.ends()
        assert proxy.relay.failure == "lost"


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"provider": object()}, TypeError),
        ({"on_form": "form"}, TypeError),
        ({"max_answering": 0}, ValueError),
        ({"max_answering": "2"}, TypeError),
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, object], kind: type[Exception]) -> None:
    with pytest.raises(kind, match=next(iter(wrong))):
        Backfill(**wrong)  # type: ignore[arg-type]
