"""The proxy between a host and a server that speak the modern revision, beyond what is recorded of conversations."""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY

import pytest
from relaying import (
    DISCOVERED,
    FORM,
    HELLO,
    NOTE,
    PROMPT,
    TOOL,
    Json,
    Line,
    Model,
    Relayed,
    cancel,
    initialize,
    initialized,
    modern,
    relayed,
    result,
)
from wire_terms import CLIENT_CAPABILITIES

from trio_mcp.errors import ProviderError, ProviderErrorKind
from trio_mcp.relay.rounds import MAX_ROUNDS, PREFIX
from trio_mcp.types import CreateMessageResult

SAMPLE: Json = {"method": "sampling/createMessage", "params": PROMPT}
WITH_TOOLS: Json = {"method": "sampling/createMessage", "params": {**PROMPT, "tools": [TOOL]}}
ELICIT: Json = {"method": "elicitation/create", "params": FORM}
BOB: Json = {"action": "accept", "content": {"name": "Bob"}}


def interim(request_id: int | str, questions: Json, state: str | None = None, **more: Any) -> Json:
    members: Json = {"resultType": "input_required", "inputRequests": questions, **more}
    if state is not None:
        members["requestState"] = state
    return {"jsonrpc": "2.0", "id": request_id, "result": members}


def done(request_id: int | str, **members: Any) -> Json:
    return result(request_id, resultType="complete", **members)


def look(request_id: int | str, capabilities: Json | None = None, **members: Any) -> Json:
    return modern(
        request_id, "tools/call", {"name": "look", "arguments": {"at": "sky"}, "x-unknown": 1, **members}, capabilities
    )


async def called(proxy: Relayed, capabilities: Json | None = None, request_id: int | str = 1) -> Json:
    """Open a modern connection, and call the tool; return what the server was sent."""
    await proxy.open_modern()
    await proxy.host.send(look(request_id, capabilities))
    return dict(await proxy.server.receive())


@pytest.mark.parametrize("question", [SAMPLE, WITH_TOOLS])
async def test_a_host_with_a_model_that_uses_tools_gets_its_questions(question: Json) -> None:
    async with relayed() as proxy:
        got = await called(proxy, {"sampling": {"tools": {}}})
        assert got["params"]["_meta"][CLIENT_CAPABILITIES] == {"sampling": {"tools": {}}}
        await proxy.server.send(interim(1, {"q": question}))
        assert await proxy.host.receive() == interim(1, {"q": question})


async def test_a_round_is_split_between_a_host_without_tools_and_the_proxy() -> None:
    model = Model()
    async with relayed(model) as proxy:
        await called(proxy, {"sampling": {}})
        await proxy.server.send(interim(1, {"plain": SAMPLE, "tools": WITH_TOOLS}))
        got = (await proxy.host.receive())["result"]
        assert got["inputRequests"] == {"plain": SAMPLE}
        again = look(2, {"sampling": {}}, inputResponses={"plain": HELLO}, requestState=got["requestState"])
        await proxy.host.send(again)
        assert (await proxy.server.receive())["params"]["inputResponses"] == {"plain": HELLO, "tools": HELLO}
        assert [len(request.tools or []) for request in model.asked] == [1]


async def test_a_request_without_declared_capabilities_is_rejected() -> None:
    async with relayed() as proxy:
        await proxy.open_modern()
        bad = look(1)
        del bad["params"]["_meta"][CLIENT_CAPABILITIES]
        await proxy.host.send(bad)
        assert (await proxy.host.receive())["error"]["code"] == -32602


async def test_an_answer_of_one_block_in_a_round_is_no_array_for_the_server() -> None:
    answer = CreateMessageResult.model_validate({**HELLO, "content": [HELLO["content"]]})
    async with relayed(Model(answer=answer)) as proxy:
        await called(proxy)
        await proxy.server.send(interim(1, {"a": SAMPLE, "b": WITH_TOOLS}))
        assert (await proxy.server.receive())["params"]["inputResponses"] == {"a": HELLO, "b": HELLO}


async def test_each_round_carries_only_its_own_answers_and_state() -> None:
    async with relayed() as proxy:
        first = await called(proxy)
        await proxy.server.send(interim(1, {"a": SAMPLE}, "one"))
        retry = await proxy.server.receive()
        await proxy.server.send(interim(retry["id"], {"b": SAMPLE}))
        second = await proxy.server.receive()
        assert second["id"] not in (1, retry["id"])
        assert second["params"] == {**first["params"], "inputResponses": {"b": HELLO}}


async def test_the_rounds_that_the_proxy_answers_in_a_row_are_limited() -> None:
    async with relayed() as proxy:
        request_id = (await called(proxy))["id"]
        for _ in range(MAX_ROUNDS):
            await proxy.server.send(interim(request_id, {"a": SAMPLE}))
            request_id = (await proxy.server.receive())["id"]
        await proxy.server.send(interim(request_id, {"a": SAMPLE}))
        assert (await proxy.host.receive())["error"]["code"] == -32603


async def test_a_sample_that_fails_ends_the_call_and_the_server_is_owed_nothing() -> None:
    error = ProviderError("sk-secret", kind=ProviderErrorKind.AUTHENTICATION)
    async with relayed(Model(fails=error)) as proxy:
        await called(proxy)
        await proxy.server.send(interim(1, {"a": SAMPLE}, "state"))
        why = await proxy.host.fails(1)
        assert "sampling/createMessage" in why
        assert "sk-secret" not in why
        await proxy.server.hears_nothing_before(proxy.host, NOTE)


async def test_a_call_that_the_host_cancels_ends_the_request_to_the_model() -> None:
    model = Model(held=True)
    async with relayed(model) as proxy:
        await called(proxy)
        await proxy.server.send(interim(1, {"a": SAMPLE}))
        await model.began.wait()
        await proxy.host.send(cancel(1))
        await model.cancelled.wait()
        # The request of the server is over, so there is nothing to cancel there.
        await proxy.server.hears_nothing_before(proxy.host, NOTE)
        await proxy.host.hears_nothing_before(proxy.server, NOTE)


async def test_a_cancellation_names_the_request_that_the_server_has_now() -> None:
    async with relayed() as proxy:
        await called(proxy)
        await proxy.server.send(interim(1, {"a": SAMPLE}))
        retry = await proxy.server.receive()
        await proxy.host.send(cancel(1))
        assert (await proxy.server.receive())["params"]["requestId"] == retry["id"]
        # Its answer comes too late, when no call waits for it.
        await proxy.server.send(done(retry["id"]))
        await proxy.host.send(look(1))
        assert (await proxy.server.receive())["id"] == 1
        await proxy.server.send(done(1))
        assert await proxy.host.receive() == done(1)


async def split_round(proxy: Relayed, host: Line) -> str:
    """Answer the proxy's part of a mixed round; return the state that the host gets."""
    await proxy.server.send(interim(1, {"s": SAMPLE, "e": ELICIT}, "inner", x=1))
    got = await host.receive()
    state = got["result"].pop("requestState")
    assert got == interim(1, {"e": ELICIT}, x=1)
    assert state.startswith(PREFIX)
    return str(state)


async def test_a_host_cannot_replace_the_answers_of_the_proxy() -> None:
    async with relayed() as proxy:
        await called(proxy, {"elicitation": {}})
        state = await split_round(proxy, proxy.host)
        await proxy.host.send(look(2, {"elicitation": {}}, inputResponses={"e": BOB, "s": "mine"}, requestState=state))
        assert (await proxy.server.receive())["params"]["inputResponses"]["s"] == HELLO


async def test_after_a_mixed_round_the_proxy_goes_on_alone() -> None:
    model = Model()
    async with relayed(model) as proxy:
        first = await called(proxy, {"elicitation": {}})
        state = await split_round(proxy, proxy.host)
        await proxy.host.send(look(2, {"elicitation": {}}, inputResponses={"e": BOB}, requestState=state))
        await proxy.server.receive()
        await proxy.server.send(interim(2, {"t": SAMPLE}, "third"))
        retry = await proxy.server.receive()
        assert retry["params"] == {**first["params"], "inputResponses": {"t": HELLO}, "requestState": "third"}
        assert len(model.asked) == 2


@pytest.mark.parametrize(
    "change",
    [{"name": "other"}, {"arguments": {"at": "sea"}}, {"requestState": f"{PREFIX}AAAA"}, {"requestState": PREFIX}],
    ids=["another tool", "other arguments", "a forged state", "an empty state"],
)
async def test_a_state_is_good_for_its_own_request_alone(change: Json) -> None:
    async with relayed() as proxy:
        await called(proxy, {"elicitation": {}})
        state = await split_round(proxy, proxy.host)
        await proxy.host.send(look(2, {"elicitation": {}}, **{"requestState": state, **change}))
        await proxy.host.fails(2, -32602)
        await proxy.server.hears_nothing_before(proxy.host, NOTE)


async def test_answers_that_are_too_large_for_a_state_are_an_error_that_names_the_limit() -> None:
    large = Model()
    large.answer = (await Model().sample(None)).model_copy(  # type: ignore[arg-type]
        update={"model": "x" * 100_000}
    )
    async with relayed(large) as proxy:
        await called(proxy, {"elicitation": {}})
        await proxy.server.send(interim(1, {"s": SAMPLE, "e": ELICIT}))
        assert "max_state" in await proxy.host.fails(ANY, -32603)


async def test_the_state_of_a_proxy_behind_this_one_is_not_taken_for_its_own() -> None:
    inner = f"{PREFIX}of-another"
    async with relayed() as proxy:
        await called(proxy, {"elicitation": {}})
        await proxy.server.send(interim(1, {"e": ELICIT}, inner))
        got = await proxy.host.receive()
        assert got["result"]["inputRequests"] == {"e": ELICIT}
        state = got["result"]["requestState"]
        await proxy.host.send(look(2, {"elicitation": {}}, inputResponses={"e": BOB}, requestState=state))
        assert (await proxy.server.receive())["params"]["requestState"] == inner


async def test_a_server_that_names_a_modern_revision_in_its_error_is_a_modern_one() -> None:
    async with relayed() as proxy:
        await proxy.host.send(look(1))
        probe = await proxy.server.receive()
        error = {"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"], "requested": "x"}}
        await proxy.server.send({"jsonrpc": "2.0", "id": probe["id"], "error": error})
        assert (await proxy.server.receive())["method"] == "tools/call"


async def test_a_first_request_that_is_malformed_says_nothing_about_the_server() -> None:
    async with relayed() as proxy:
        first = look(1)
        first["params"]["_meta"][CLIENT_CAPABILITIES] = "none"
        await proxy.host.send(first)
        probe = await proxy.server.receive()
        assert probe["method"] == "server/discover"
        assert probe["params"]["_meta"][CLIENT_CAPABILITIES] == {}
        await proxy.server.send({"jsonrpc": "2.0", "id": probe["id"], "result": DISCOVERED})
        assert (await proxy.host.receive())["error"]["code"] == -32602


async def test_a_host_that_gives_up_on_its_probe_opens_a_session() -> None:
    async with relayed() as proxy:
        await proxy.host.send(modern("probe", "server/discover", {}))
        assert (await proxy.server.receive())["method"] == "server/discover"
        await proxy.host.send(initialize({}))
        assert (await proxy.server.receive())["method"] == "notifications/cancelled"
        got = await proxy.server.receive()
        assert got["method"] == "initialize"
        assert (await proxy.host.receive())["error"]["code"] == -32601
        await proxy.server.send({"jsonrpc": "2.0", "id": got["id"], "result": initialized()})
        assert (await proxy.host.receive())["result"] == initialized()
