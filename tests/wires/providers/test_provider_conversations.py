"""Whole conversations of both providers over real sockets, and how waits, deadlines and cancels reach the connection."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from model_api import model_api, says, streams
from provider_apis import KEY, REQUEST, WITH_TOOL, Api, both

from trio_mcp.errors import ProviderError, ProviderErrorKind
from trio_mcp.types import SamplingMessage, TextContent, ToolResultContent

# conversations


@both
async def test_a_tool_call_and_its_result_are_a_conversation(api: Api) -> None:
    async with model_api(streams(api.events), says(api.answer)) as server:
        provider = api.provider(server.url)
        called = await provider.stream(WITH_TOOL, print)
        result = ToolResultContent(tool_use_id="c1", content=[TextContent(text="a cat")])
        messages = [
            *WITH_TOOL.messages,
            SamplingMessage(role="assistant", content=called.content),
            SamplingMessage(role="user", content=result),
        ]
        answer = await provider.sample(WITH_TOOL.model_copy(update={"messages": messages}))
    assert answer.content == [TextContent(text="Hello.")]
    assert len(server.asked[0].body["messages"]) == 1
    assert len(server.asked[1].body["messages"]) == 3


# headers


FOREIGN = {
    "ANTHROPIC_AUTH_TOKEN": "foreign",
    "ANTHROPIC_CUSTOM_HEADERS": "Authorization: Bearer foreign\nx-api-key: foreign\nx-gateway: foreign",
    "OPENAI_ADMIN_KEY": "foreign",
    "OPENAI_CUSTOM_HEADERS": "Authorization: Bearer foreign\nx-gateway: foreign",
    "OPENAI_ORG_ID": "foreign",
    "OPENAI_PROJECT_ID": "foreign",
}


@both
@pytest.mark.parametrize("key", [KEY, None], ids=["with a key", "without"])
async def test_a_url_that_the_program_names_gets_nothing_of_the_environment(
    api: Api, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in FOREIGN.items():
        monkeypatch.setenv(name, value)
    listed = says({"data": [{"id": "model-1"}]})
    async with model_api(listed, says(api.answer), streams(api.events)) as server:
        provider = api.make(base_url=f"{server.url}/v1", api_key=key)
        await provider.sample(REQUEST)
        await provider.stream(REQUEST, print)
    for asked in server.asked:
        assert "foreign" not in str(asked.headers)
        assert asked.headers.get("authorization") == (f"Bearer {key}" if key else None)


@both
async def test_the_url_of_the_environment_gets_its_key_and_headers(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    vendor = api.name.upper()
    async with model_api(says(api.answer)) as server:
        monkeypatch.setenv(f"{vendor}_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv(f"{vendor}_API_KEY", KEY)
        monkeypatch.setenv(f"{vendor}_CUSTOM_HEADERS", "x-gateway: mine")
        await api.make("model-1").sample(REQUEST)
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.asked[0].headers["x-gateway"] == "mine"


# waits and deadlines


@both
@pytest.mark.parametrize("options", [{}, {"timeout": 10}], ids=["longer than any wait", "after the deadline"])
async def test_a_retry_after_that_cannot_be_waited_for_ends_the_attempts_at_once(
    api: Api, options: dict[str, Any]
) -> None:
    seconds = "15" if options else "3600"
    async with model_api(says({}, 429, retry_after=seconds)) as server:
        with pytest.raises(ProviderError) as caught:
            await api.provider(server.url, max_retries=9, **options).sample(REQUEST)
        assert len(server.asked) == 1
    assert (caught.value.kind, caught.value.retry_after) == (ProviderErrorKind.RATE_LIMITED, float(seconds))


@both
async def test_the_first_model_is_asked_for_again_if_the_list_failed(api: Api) -> None:
    listed = says({"data": [{"id": "model-7"}]})
    async with model_api(says({}, 500), listed, says({}, 500), says(api.answer)) as server:
        await api.provider(server.url, None, max_retries=2).sample(REQUEST)
    assert [asked.method for asked in server.asked] == ["GET", "GET", "POST", "POST"]
    assert server.asked[-1].body["model"] == "model-7"


# the rest of a response


@both
async def test_a_response_that_does_not_end_after_its_answer_is_given_up(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_mcp.providers.connection.LEFTOVER_SECONDS", 0)
    async with model_api(streams(api.events, "hang")) as server:
        result = await api.provider(server.url).stream(WITH_TOOL, print)
        await server.left.wait()
    assert result.stop_reason == "toolUse"


@both
async def test_a_cancel_while_the_rest_is_read_closes_the_connection(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp.providers.connection.LEFTOVER_SECONDS", 1000)
    async with model_api(streams(api.events, "hang")) as server:
        async with api.provider(server.url) as provider:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(provider.stream, WITH_TOOL, print)
                await server.hangs.wait()
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            await server.left.wait()
            assert server.open_connections == 0


@both
@pytest.mark.parametrize("at", ["models", "answer"])
async def test_a_cancel_before_the_answer_is_complete_closes_the_connection(api: Api, at: str) -> None:
    """While the list of models, or the answer, arrives."""
    async with model_api(streams([b" "], "hang")) as server:
        provider = api.provider(server.url, {"models": None, "answer": "model-1"}[at])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(provider.sample, REQUEST)
            await server.hangs.wait()
            nursery.cancel_scope.cancel()
        await server.left.wait()
    assert server.asked[0].method == {"models": "GET", "answer": "POST"}[at]


@both
async def test_one_of_many_requests_is_cancelled_alone(api: Api) -> None:
    async with model_api(streams([b": x\n\n"], "hang"), says(api.answer), says(api.answer)) as server:
        async with api.provider(server.url) as provider, trio.open_nursery() as nursery:
            nursery.start_soon(provider.stream, REQUEST, print)
            await server.hangs.wait()
            assert (await provider.sample(REQUEST)).content == [TextContent(text="Hello.")]
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await server.left.wait()
                assert (await provider.sample(REQUEST)).content == [TextContent(text="Hello.")]
    assert server.connections == 2
