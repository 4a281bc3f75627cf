"""What type checkers infer of `ctx.sample`; checked and never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_type

from pydantic import BaseModel

from trio_mcp import Client, Context, Image, SampleInvalid, Server, tool
from trio_mcp.server import BreakToolLoop, ClientTools, SampleAttempt, Sampled, SampleExchange, ToolLoopResult
from trio_mcp.types import (
    JsonObject,
    JsonValue,
    SamplingContentBlock,
    SamplingMessage,
    TextContent,
    Tool,
    ToolUseContent,
)

server = Server("typed")


class Weather(BaseModel):
    degrees: int


@dataclass
class Point:
    x: int


def search(query: str) -> str:
    return query


class Query(BaseModel):
    query: str


LOOK_UP = tool("look_up").parameters(Query).execute(lambda params, ctx: params.query)
SCHEMA: JsonObject = {"type": "object"}


@server.tool
async def typed(ctx: Context) -> str:
    plain = await ctx.sample("?")
    assert_type(plain, Sampled[None])
    assert_type(plain.data, None)
    assert_type(plain.content, list[SamplingContentBlock])
    assert_type(plain.tool_calls, list[ToolUseContent])
    assert_type(plain.usage.input_tokens, int | None)
    assert_type(plain.stop_reason, str | None)
    assert_type(plain.exchange, SampleExchange)
    assert_type(plain.exchange.messages, tuple[SamplingMessage, ...])
    assert_type(plain.exchange.to_openai(), list[JsonObject])

    assert_type(await ctx.sample("?", returns=Weather), Sampled[Weather])
    assert_type((await ctx.sample("?", returns=Weather, retries=1, timeout=3)).data, Weather)
    assert_type((await ctx.sample("?", returns=Point)).data, Point)
    assert_type((await ctx.sample("?", returns=int)).data, int)
    assert_type((await ctx.sample("?", returns=list[int])).data, list[int])
    assert_type((await ctx.sample("?", returns=SCHEMA)).data, JsonValue)
    assert_type((await ctx.sample_schema("?", Weather)).data, Weather)
    assert_type((await ctx.sample_schema("?", SCHEMA)).data, JsonValue)

    assert_type(await ctx.sample_tools("?", [search]), Sampled[None])
    assert_type(await ctx.sample(["?", Image("a.png")], tools=[search, LOOK_UP], tool_choice="required"), Sampled[None])
    await ctx.sample(messages=[SamplingMessage(role="user", content=TextContent(text="?"))], tools=[search])
    ctx.add_tool_results({call.id: "fine" for call in plain.tool_calls})
    await ctx.sample(tools=[Tool(name="a", input_schema={"type": "object"})])

    return plain.text


@server.tool
async def choice(ctx: Context) -> str:
    answer = await ctx.sample("?", returns=Literal["a", "b"])
    assert_type(answer.data, object)
    return str(answer.data)


@server.tool
async def loop(ctx: Context) -> str:
    async with Client.connect(server) as client:
        result = await ctx.run_tool_loop("?", [search, LOOK_UP, "loop", client, ClientTools(client, ["loop"])])
    assert_type(result, ToolLoopResult)
    assert_type(result.ended_by, Literal["answer", "limit", "break"])
    assert_type(result.value, JsonValue)
    assert_type(result.usage.output_tokens, int | None)
    await ctx.run_tool_loop(result.messages, [search], max_iterations=3, tool_choice="required", progress=True)
    if result.ended_by == "limit":
        raise BreakToolLoop({"said": result.text})
    return result.text


@server.tool
async def attempts(ctx: Context) -> str:
    try:
        return str((await ctx.sample("?", returns=Weather)).data.degrees)
    except SampleInvalid as error:
        assert_type(error.attempts, tuple[SampleAttempt, ...])
        assert_type(error.last_result, Sampled[None])
        return error.last_result.text
