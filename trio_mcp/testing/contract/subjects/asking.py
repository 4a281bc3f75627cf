"""Tools of the contract's server that ask, report, and lose their client in the middle."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from pydantic import BaseModel

from ....errors import CapabilityError, LocalProtocolError, PeerError, RemoteProtocolError
from ....server import Context, SampleInvalid, Server
from ....types import (
    AudioContent,
    ImageContent,
    ModelHint,
    ModelPreferences,
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)
from ..stage import Stage
from .offers import CLICK, PIXEL


class Everything(BaseModel):
    """A form with a field of each kind that every revision with forms has."""

    name: str
    row: int
    weight: float
    window: bool
    meal: Literal["fish", "none"]


class Wish(BaseModel):
    """A form without required fields."""

    wish: str = "nothing"


class Row(BaseModel):
    """Structured data that a model gives."""

    row: int


TWO_USES: Final = SamplingMessage(
    role="assistant", content=[ToolUseContent(id=name, name="search", input={}) for name in ("a", "b")]
)
RESULT_A: Final = ToolResultContent(tool_use_id="a", content=[])
RESULT_B: Final = ToolResultContent(tool_use_id="b", content=[])
SO: Final = TextContent(text="So?")

WRONG: Final[Mapping[str, list[SamplingMessage]]] = MappingProxyType(
    {
        "orphan": [SamplingMessage(role="user", content=SO), SamplingMessage(role="user", content=RESULT_A)],
        "mixture": [TWO_USES, SamplingMessage(role="user", content=[RESULT_A, RESULT_B, SO])],
        "partial": [TWO_USES, SamplingMessage(role="user", content=RESULT_A)],
        "text": [TWO_USES, SamplingMessage(role="user", content=SO)],
    }
)
"""Conversations whose second message breaks a rule, by what is wrong with it."""


def add_forms(server: Server, _stage: Stage) -> None:
    @server.tool
    async def fill_in(ctx: Context) -> str:
        """Ask for a field of each kind."""
        answer = await ctx.elicit("Tell all.", Everything)
        return answer.content.model_dump_json() if answer.action == "accept" else answer.action

    @server.tool
    async def wish(ctx: Context) -> str:
        """Ask with a form without required fields."""
        answer = await ctx.elicit("What else?", Wish)
        return answer.content.wish if answer.action == "accept" else answer.action


def add_sampling_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def ask_model_twice(ctx: Context) -> str:
        """Ask the model twice, one after the other."""
        first = (await ctx.sample("first")).text
        return f"{first}, {(await ctx.sample('second')).text}"

    @server.tool
    async def ask_in_detail(ctx: Context) -> str:
        """Ask the model with every parameter."""
        answer = await ctx.sample(
            messages=[said("user", "Hello"), said("assistant", "Yes?"), said("user", "A line, please")],
            max_tokens=77,
            system_prompt="Be brief.",
            temperature=0.5,
            stop_sequences=["END"],
            model_preferences=ModelPreferences(hints=[ModelHint(name="small")], speed_priority=1.0),
            metadata={"vendor": {"seed": 1}},
        )
        return f"{answer.model} {answer.stop_reason} {answer.text}"

    @server.tool
    async def show_model(sound: bool, ctx: Context) -> str:
        """Show the model a block, and return the kinds of blocks in its answer."""
        seen = (
            AudioContent(data=CLICK, mime_type="audio/wav")
            if sound
            else ImageContent(data=PIXEL, mime_type="image/png")
        )
        content = (await ctx.sample(messages=[SamplingMessage(role="user", content=seen)])).message.content
        return ", ".join(block.type for block in (content if isinstance(content, list) else [content]))

    @server.tool
    async def ask_bravely(ctx: Context) -> str:
        """Ask the model, and return the error if there is one."""
        stage.mark("ask_bravely began")
        try:
            return (await ctx.sample("A line, please")).text
        except CapabilityError as error:
            return f"without {', '.join(error.required)}"
        except PeerError as error:
            return f"refused with {error.code}: {error.message}"
        except RemoteProtocolError:
            return "malformed"


def look_up(word: str) -> str:
    """Look a word up."""
    return word


SEARCH = Tool(name="search", description="Search.", input_schema={"type": "object"})


def add_tools_for_models(server: Server, _stage: Stage) -> None:
    @server.tool
    async def ask_with_tools(ctx: Context) -> str:
        """Offer the model tools until it calls none."""
        try:
            answer = await ctx.sample("A line, please", tools=[look_up, SEARCH], tool_choice="auto")
            while answer.tool_calls:
                ctx.add_tool_results({call.id: look_up(str(call.input["word"])) for call in answer.tool_calls})
                answer = await ctx.sample(tools=[look_up, SEARCH])
        except CapabilityError as error:
            return f"without {missing_in(error)}"
        return answer.text

    @server.tool
    async def require_a_call_and_forbid_it(ctx: Context) -> str:
        """Ask with a required call, then with none allowed and no tools offered."""
        answer = await ctx.sample("A line, please", tools=[SEARCH], tool_choice="required")
        ctx.add_tool_results({call.id: "found" for call in answer.tool_calls})
        return (await ctx.sample(tool_choice="none")).text


def add_tools_that_sample_wrongly(server: Server, _stage: Stage) -> None:
    @server.tool
    async def forget_a_result(ctx: Context) -> str:
        """Send the model one result for two calls."""
        answer = await ctx.sample("A line, please", tools=[look_up])
        (kept, forgotten) = answer.tool_calls
        result = ToolResultContent(tool_use_id=kept.id, content=[])
        try:
            await ctx.sample(
                messages=[*answer.exchange.messages, SamplingMessage(role="user", content=result)], tools=[look_up]
            )
        except LocalProtocolError as error:
            return f"not sent: {forgotten.id}" if repr(forgotten.id) in str(error) else str(error)
        return "sent"

    @server.tool
    async def send_wrongly(wrong: Literal["orphan", "mixture", "partial", "text"], ctx: Context) -> str:
        """Send the model messages that break a rule."""
        try:
            await ctx.sample(messages=WRONG[wrong])
        except LocalProtocolError as error:
            return str(error).partition(":")[0]
        return "sent"


def add_tools_with_context_and_data(server: Server, _stage: Stage) -> None:
    @server.tool
    async def ask_with_context(ctx: Context) -> str:
        """Ask the model with the context of this server."""
        try:
            return (await ctx.sample("A line, please", include_context="thisServer")).text
        except CapabilityError as error:
            return f"without {missing_in(error)}"

    @server.tool
    async def ask_for_data(ctx: Context) -> str:
        """Ask the model for a row."""
        try:
            return f"row {(await ctx.sample('Which row?', returns=Row)).data.row}"
        except SampleInvalid as error:
            return f"invalid after {len(error.attempts)}"


def missing_in(error: CapabilityError) -> str:
    """Return a missing capability with its member, as in `sampling.tools`."""
    ((name, members),) = error.required.items()
    assert isinstance(members, dict)
    return ".".join([name, *members])


def add_telling_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def tell(n: int, ctx: Context, name: str = "tell", gates: int = 1) -> str:
        """Report once, and n times more behind each gate."""
        await ctx.progress(0)
        for gate in range(gates):
            stage.mark(f"{name} waits")
            await stage.gate(f"{name} {gate}")
            for done in range(n):
                await ctx.progress(gate * n + done + 1)
        stage.mark(f"{name} reported")
        return f"{name} reported {gates * n}"

    @server.tool
    async def tell_and_ask(ctx: Context) -> str:
        """Report, wait at a gate, ask, and report again."""
        await ctx.progress(1)
        stage.mark("tell_and_ask began")
        await stage.gate("tell_and_ask")
        answer = await ctx.elicit("And now?", str)
        await ctx.progress(2)
        return answer.content if answer.action == "accept" else answer.action

    @server.tool
    async def let_go(ctx: Context) -> str:
        """Report, end the stream of the response, and report again afterwards."""
        await ctx.progress(1)
        await ctx.end_stream(0)
        stage.mark("stream ended")
        await ctx.progress(2)
        return "still here"


def said(role: Literal["user", "assistant"], text: str) -> SamplingMessage:
    return SamplingMessage(role=role, content=TextContent(text=text))
