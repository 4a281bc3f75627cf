"""Asking in the middle is not tied to tools: any request whose handler returns a plan may ask."""

from __future__ import annotations

import trio
from talk import Talk

from trio_mcp.runtime import Actor, Lane
from trio_mcp.session import Call, Plan, Question, open_service
from trio_mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    Implementation,
    Model,
    PromptsCapability,
    ServerCapabilities,
)


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
        raise AssertionError("the call is never answered")

    routes = {"prompts/get": lambda _facts, _params: Plan(body, "choose")}
    capabilities = ServerCapabilities(prompts=PromptsCapability())
    async with open_service(routes, Implementation(name="poet", version="1"), capabilities) as service:
        talk = Talk(service)
        asked = await talk.round(talk.ask("prompts/get", name="x"))
        assert asked.keys == [name or f"sample-{order.index(name) + 1}" for name in order]
