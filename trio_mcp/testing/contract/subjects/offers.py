"""What the contract's server offers to list, read, complete and change."""

from __future__ import annotations

import itertools
from typing import Literal

from pydantic import BaseModel

from ....errors import ResourceNotFound
from ....server import Context, Server
from ....types import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from ..stage import Stage

PAGE = 100
"""Items of one page of a list."""

ODD_TEXT = 'two\r\nlines, \u2028 and \u0085 and \x00, "quotes" \\ and a \U0001f600, data: no event\n\nid: 7'
"""What a framing might take for its own."""

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CLICK = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="


class Sum(BaseModel):
    total: int


def add_contents(server: Server, _stage: Stage) -> None:
    @server.tool
    async def add(a: int, b: int) -> Sum:
        """Add two numbers."""
        return Sum(total=a + b)

    @server.tool
    async def show() -> list[TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource]:
        """One block of each kind."""
        return [
            TextContent(text="A text."),
            ImageContent(data=PIXEL, mime_type="image/png"),
            AudioContent(data=CLICK, mime_type="audio/wav"),
            ResourceLink(uri="contract://text", name="text"),
            EmbeddedResource(resource=TextResourceContents(uri="contract://text", text="embedded")),
        ]


def add_prompts(server: Server, _stage: Stage) -> None:
    @server.prompt
    async def review(code: str, language: str = "Python") -> list[str | PromptMessage]:
        """Have a look at some code."""
        answer = PromptMessage(role="assistant", content=TextContent(text="Gladly."))
        return [f"Review this {language}.", answer, code]

    @server.prompt
    async def seated(ctx: Context) -> str:
        """Ask first."""
        return f"I sit {await seat(ctx)}."

    @server.complete(prompt="review", argument="language")
    async def languages(value: str) -> list[str]:
        return [name for name in ("Pascal", "Perl", "Python") if name.startswith(value)]


def add_resources(server: Server, _stage: Stage) -> None:
    @server.resource("contract://text", mime_type="text/plain", title="A text")
    async def text() -> str:
        """A text with characters that are hard to frame."""
        return ODD_TEXT

    @server.resource("contract://bytes", mime_type="application/octet-stream")
    async def every_byte() -> bytes:
        return bytes(range(256))

    @server.resource("contract://books/{number}", name="book")
    async def book(number: int) -> str:
        if number > 99:
            raise ResourceNotFound(f"contract://books/{number}")
        return f"book {number}"

    @server.resource("contract://seat")
    async def where(ctx: Context) -> str:
        return await seat(ctx)

    @server.complete(resource="contract://books/{number}", argument="number")
    async def numbers(value: str) -> list[str]:
        return [number for number in ("1", "11", "2") if number.startswith(value)]


def add_changing_tools(server: Server, stage: Stage) -> None:
    numbers = itertools.count(1)

    async def extra() -> str:
        return "extra"

    @server.tool
    async def offer(kind: Literal["tools", "prompts", "resources"]) -> str:
        """Offer one more tool, prompt or resource; return its name."""
        name = f"extra{next(numbers)}"
        stage.spend()
        match kind:
            case "tools":
                server.add_tool(extra, name=name)
            case "prompts":
                server.add_prompt(extra, name=name)
            case "resources":
                server.add_resource(f"contract://{name}", extra, name=name)
        return name

    @server.tool
    async def stock(n: int) -> str:
        """Offer `n` more resources."""
        stage.spend()
        for number in range(n):
            server.add_resource(f"contract://stock/{number}", extra)
        return "stocked"

    @server.tool
    async def update(uri: str, times: int = 1) -> str:
        """Say that a resource has changed."""
        for _ in range(times):
            server.resource_updated(uri)
        return "said"


async def seat(ctx: Context) -> str:
    """Where the user wants to sit."""
    answer = await ctx.elicit("In which row?", int)
    return f"in row {answer.content}" if answer.action == "accept" else "nowhere"
