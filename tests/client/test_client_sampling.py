"""What a client does with a server's sampling requests: its rules, tools, a provider, and the consent of its user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from naming import unnamed
from scripted import (
    FOLLOWS_TASKS,
    SAMPLE,
    SAMPLE_QUESTION,
    Json,
    as_legacy,
    as_modern,
    calling,
    conversation,
    interim,
    opening_client,
    runs_tasks,
)
from wire_terms import INTERNAL_ERROR, INVALID_PARAMS

from trio_mcp import Client, Context, Server
from trio_mcp.client import Handlers
from trio_mcp.client.sampling import ProviderSampling
from trio_mcp.errors import LocalProtocolError, MalformedQuestion, ProviderError, ProviderErrorKind, SampleRefused
from trio_mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingContentBlock,
    SamplingMessage,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)

TOOL: Json = {"name": "look", "inputSchema": {"type": "object"}}
USE: Json = {"type": "tool_use", "id": "u1", "name": "look", "input": {}}
RESULT: Json = {"type": "tool_result", "toolUseId": "u1", "content": []}
TEXT: Json = {"type": "text", "text": "hi"}
OPEN_USE: Json = {
    "messages": [{"role": "assistant", "content": [USE]}, {"role": "user", "content": TEXT}],
    "maxTokens": 5,
}
MIXTURE: Json = {
    "messages": [{"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT, TEXT]}],
    "maxTokens": 5,
}
BALANCED: Json = {
    "messages": [{"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT]}],
    "maxTokens": 5,
}


def sample(params: Json, **more: Any) -> Json:
    return {"method": "sampling/createMessage", "params": {**params, **more}}


async def legacy_answer(question: Json, **handlers: Any) -> Json:
    async with conversation(as_legacy, **handlers) as (_client, wire, _start):
        return await wire.answer_to(question)


async def modern_error(question: Json, kind: type[Exception], **handlers: Any) -> Any:
    """What a call raises whose round has this question; nothing more is sent."""
    async with calling(as_modern, handlers) as (wire, call, request):
        await wire.respond(request, interim({"q": question}))
        caught = await call.fails(kind)
        await wire.silence()
    return caught


def answer(*blocks: SamplingContentBlock, role: Any = "assistant") -> CreateMessageResult:
    return CreateMessageResult(role=role, content=list(blocks), model="m")


def never(_params: object) -> str:
    raise AssertionError("the model is not asked")


async def test_a_program_that_takes_tools_declares_them_and_receives_them() -> None:
    asked: list[CreateMessageRequestParams] = []

    def on_sample(params: CreateMessageRequestParams) -> CreateMessageResult:
        asked.append(params)
        return answer(ToolUseContent(id="u1", name="look", input={}))

    question = sample(SAMPLE, tools=[TOOL], toolChoice={"mode": "required"})
    assert (await legacy_answer(question, on_sample=on_sample, sample_tools=True))["result"]["content"] == USE
    assert asked[0].tools is not None
    assert [tool.name for tool in asked[0].tools] == ["look"]


@pytest.mark.parametrize(
    ("options", "declared"),
    [
        ({"sample_tools": True}, {"tools": {}}),
        ({"sample_context": True}, {"context": {}}),
        ({"sample_tools": True, "sample_context": True}, {"tools": {}, "context": {}}),
    ],
    ids=["tools", "context", "both"],
)
async def test_what_a_program_takes_in_a_sample_is_declared_where_it_exists(options: Json, declared: Json) -> None:
    handlers = {"on_sample": str, **options}
    assert Handlers(**handlers).capabilities.wire() == {
        "sampling": declared,
        **runs_tasks({"sampling": {}}),
        **FOLLOWS_TASKS,
    }
    for version, expected in (("2025-11-25", declared), ("2025-06-18", {})):
        async with opening_client(mode=version, **handlers) as (_client, wire, _opened):
            assert (await wire.request("initialize"))["params"]["capabilities"]["sampling"] == expected


async def test_context_that_was_not_declared_is_no_reason_to_refuse() -> None:
    reply = await legacy_answer(sample(SAMPLE, includeContext="allServers"), on_sample=lambda _: "hi")
    assert reply["result"]["content"] == TEXT


@pytest.mark.parametrize("option", ["sample_tools", "sample_context"])
def test_tools_and_context_need_a_handler(option: str) -> None:
    with pytest.raises(ValueError, match=option):
        Handlers(**{option: True})  # type: ignore[arg-type]


@pytest.mark.parametrize("messages", [OPEN_USE, MIXTURE], ids=["no result", "a mixture"])
async def test_a_conversation_that_breaks_a_rule_never_reaches_the_handler(messages: Json) -> None:
    error = (await legacy_answer(sample(messages), on_sample=never))["error"]
    assert error["code"] == INVALID_PARAMS
    assert unnamed(error["message"], "messages[1]", "u1") == []
    raised = await modern_error(sample(messages), MalformedQuestion, on_sample=never)
    assert unnamed(str(raised), "messages[1]", "u1") == []


async def test_a_balanced_conversation_is_answered_also_without_tools_in_this_request() -> None:
    assert (await legacy_answer(sample(BALANCED), on_sample=lambda _: "hi"))["result"]["content"] == TEXT


INVALID_ANSWERS = [
    answer(TextContent(text="hi"), role="user"),
    answer(ToolResultContent(tool_use_id="u1", content=[])),
    answer(ToolUseContent(id="u1", name="look", input={}), ToolUseContent(id="u1", name="look", input={})),
]


@pytest.mark.parametrize("given", INVALID_ANSWERS, ids=["role", "result", "one id twice"])
async def test_an_invalid_answer_of_a_model_is_not_sent(given: CreateMessageResult) -> None:
    handlers: Json = {"on_sample": lambda _: given, "sample_tools": True}
    assert (await legacy_answer(SAMPLE_QUESTION, **handlers))["error"]["code"] == INTERNAL_ERROR
    await modern_error(SAMPLE_QUESTION, LocalProtocolError, **handlers)


class Provider:
    """Answers with the text of the last message, or raises."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.asked: list[CreateMessageRequestParams] = []

    async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        await trio.lowlevel.checkpoint()
        self.asked.append(request)
        if self.failure is not None:
            raise self.failure
        content = request.messages[-1].content
        return answer(TextContent(text=f"heard {content.text}"))


async def test_a_provider_answers_the_samples_of_a_server(mode: str) -> None:
    server, provider = Server("curious"), Provider()

    @server.tool
    async def wonder(ctx: Context) -> str:
        return (await ctx.sample("why?")).text

    async with Client.connect(server, mode=mode, sampling=provider) as client:
        assert client.capabilities.wire() == {
            "sampling": {"tools": {}},
            **runs_tasks({"sampling": {}}),
            **FOLLOWS_TASKS,
        }
        assert (await client.call_tool("wonder")).text == "heard why?"


def consenting(provider: Provider, approve: Any) -> Json:
    return {"on_sample": ProviderSampling(provider, approve), "sample_tools": True}


async def refuse_later(_params: object, _server: object) -> bool:
    await trio.lowlevel.checkpoint()
    return False


@pytest.mark.parametrize("refuse", [lambda _params, _server: False, refuse_later], ids=["plain", "async"])
async def test_a_user_may_refuse_a_sample(refuse: Callable[..., Any]) -> None:
    provider = Provider()
    error = (await legacy_answer(SAMPLE_QUESTION, **consenting(provider, refuse)))["error"]
    assert error == {"code": -1, "message": "User rejected sampling request"}
    await modern_error(SAMPLE_QUESTION, SampleRefused, **consenting(provider, refuse))
    assert provider.asked == []


async def test_the_user_is_asked_with_the_request_and_the_name_of_the_server(opening: Any) -> None:
    asked: list[tuple[int, str | None]] = []

    def approve(params: CreateMessageRequestParams, server: str | None) -> bool:
        asked.append((params.max_tokens, server))
        return True

    async with calling(opening, consenting(Provider(), approve)) as (wire, _call, request):
        if opening is as_legacy:
            await wire.answer_to(SAMPLE_QUESTION)
        else:
            await wire.respond(request, interim({"q": SAMPLE_QUESTION}))
            await wire.request("tools/call")
    assert asked == [(5, "scripted")]


async def test_a_user_may_change_what_the_model_is_asked() -> None:
    changed = CreateMessageRequestParams(
        messages=[SamplingMessage(role="user", content=TextContent(text="hello"))], max_tokens=3
    )
    reply = await legacy_answer(SAMPLE_QUESTION, **consenting(Provider(), lambda _params, _server: changed))
    assert reply["result"]["content"] == {"type": "text", "text": "heard hello"}


async def test_a_consent_that_is_neither_yes_nor_no_is_a_mistake_and_not_a_yes() -> None:
    provider = Provider()
    await modern_error(SAMPLE_QUESTION, TypeError, **consenting(provider, lambda _params, _server: None))
    assert provider.asked == []


@pytest.mark.parametrize("kind", ProviderErrorKind)
async def test_the_words_of_an_api_are_only_logged(kind: ProviderErrorKind, caplog: pytest.LogCaptureFixture) -> None:
    failure = ProviderError("the API said hunter2", kind=kind, status=500)
    error = (await legacy_answer(SAMPLE_QUESTION, on_sample=Provider(failure).sample))["error"]
    assert error["code"] == INTERNAL_ERROR
    assert "hunter2" not in str(error)
    assert [record.exc_info for record in caplog.records] == [None]
    assert unnamed(caplog.text, kind, "hunter2") == []


async def test_a_call_raises_the_error_of_its_provider() -> None:
    failure = ProviderError("busy", kind=ProviderErrorKind.RATE_LIMITED)
    assert await modern_error(SAMPLE_QUESTION, ProviderError, on_sample=Provider(failure).sample) is failure


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"sampling": Provider(), "on_sample": str}, ValueError),
        ({"approve_sample": bool}, ValueError),
        ({"sampling": str}, TypeError),
        ({"sampling": Provider(), "approve_sample": True}, TypeError),
        ({"on_sample": str, "sample_tools": 1}, TypeError),
        ({"max_handlers": 0}, ValueError),
        ({"handler_timeout": 0}, ValueError),
    ],
    ids=["two answer", "nothing to approve", "no provider", "no function", "no flag", "no handlers", "no time"],
)
def test_options_that_are_wrong_or_exclude_each_other_are_rejected(options: Json, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        Client.connect(Server("s"), **options)
