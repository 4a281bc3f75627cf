"""Asking in the middle is not tied to tools: any request whose handler returns a plan may ask, in either era."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import trio

from trio_mcp.protocol.jsonrpc import dump, parse
from trio_mcp.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from trio_mcp.runtime import Actor, Lane, Outbox
from trio_mcp.session import (
    Call,
    Envelope,
    Plan,
    Question,
    RequestFacts,
    Route,
    ServerSession,
    open_service,
)
from trio_mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    GetPromptRequestParams,
    GetPromptResult,
    Implementation,
    Model,
    PromptMessage,
    PromptsCapability,
    SamplingMessage,
    ServerCapabilities,
    TextContent,
)

SAMPLE = {"role": "assistant", "content": {"type": "text", "text": "An ode."}, "model": "m"}
META = {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {"sampling": {}}}


async def compose(call: Call, actor: Actor) -> Model:
    """A prompt that a model writes."""
    params = CreateMessageRequestParams(
        messages=[SamplingMessage(role="user", content=TextContent(text="Write an ode."))], max_tokens=10
    )
    question = Question("sample", "sampling/createMessage", params, CreateMessageResult, ("sampling",))
    answer = await call.ask(Lane(actor), question)
    assert isinstance(answer.content, TextContent)
    return GetPromptResult(messages=[PromptMessage(role="user", content=answer.content)])


def get_prompt(_facts: RequestFacts, params: Model) -> Plan:
    assert isinstance(params, GetPromptRequestParams)
    return Plan(compose, params.name)


class Conversation:
    def __init__(self, session: ServerSession) -> None:
        self.session = session
        self.outbox: Outbox[Envelope] = Outbox()

    async def say(self, **message: object) -> dict[str, object]:
        self.session.receive(Envelope(parse(json.dumps({"jsonrpc": "2.0", **message}).encode())), self.outbox)
        with trio.fail_after(5):
            (envelope,) = await self.outbox.take()
        return json.loads(dump(envelope.message))


@asynccontextmanager
async def conversation(routes: Mapping[str, Route] | None = None) -> AsyncIterator[Conversation]:
    routes = routes or {"prompts/get": get_prompt}
    capabilities = ServerCapabilities(prompts=PromptsCapability())
    async with open_service(routes, Implementation(name="poet", version="1"), capabilities) as service:
        yield Conversation(ServerSession(service))


def text_of(answer: dict[str, object]) -> str:
    return answer["result"]["messages"][0]["content"]["text"]


async def test_a_prompt_may_ask_in_rounds() -> None:
    async with conversation() as talk:
        params: dict[str, object] = {"name": "ode", "_meta": META}
        asked = (await talk.say(id=1, method="prompts/get", params=params))["result"]
        assert [question["method"] for question in asked["inputRequests"].values()] == ["sampling/createMessage"]
        params["requestState"] = asked["requestState"]
        params["inputResponses"] = dict.fromkeys(asked["inputRequests"], SAMPLE)
        assert text_of(await talk.say(id=2, method="prompts/get", params=params)) == "An ode."


async def test_questions_are_in_the_order_asked_whatever_their_names_hold() -> None:
    """Keys hold a name or numbers, and neither says where a question stands."""
    order: list[str | None] = []

    async def ask(call: Call, lane: Lane, name: str | None) -> None:
        order.append(name)
        params = CreateMessageRequestParams(messages=[], max_tokens=1)
        await call.ask(
            lane, Question("sample", "sampling/createMessage", params, CreateMessageResult, ("sampling",), name)
        )

    async def body(call: Call, actor: Actor) -> Model:
        lane = Lane(actor)
        async with trio.open_nursery() as nursery:
            for name in ("delivery-date", None, "seat/1-0", "plain"):
                nursery.start_soon(ask, call, lane, name)
        raise AssertionError("nobody answers")

    async with conversation({"prompts/get": lambda _facts, _params: Plan(body, "choose")}) as talk:
        asked = (await talk.say(id=1, method="prompts/get", params={"name": "x", "_meta": META}))["result"]
        wanted = [name or f"sample-{order.index(name) + 1}" for name in order]
        assert list(asked["inputRequests"]) == wanted


async def test_a_prompt_may_ask_live() -> None:
    async with conversation() as talk:
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"sampling": {}},
            "clientInfo": {"name": "t", "version": "1"},
        }
        await talk.say(id=1, method="initialize", params=hello)
        question = await talk.say(id=2, method="prompts/get", params={"name": "ode"})
        assert question["method"] == "sampling/createMessage"
        assert text_of(await talk.say(id=question["id"], result=SAMPLE)) == "An ode."
