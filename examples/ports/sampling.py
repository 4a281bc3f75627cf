"""The sampling demo: a server that thinks with the client's model.

    python examples/ports/sampling.py

FastMCP 4.1 has no `ctx.sample` any more; in FastMCP 2, a tool had to pass the earlier messages to it. Here, a prompt continues
the conversation of the call. `requires={"sampling"}` keeps these tools from clients without a model.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from trio_mcp import Context, Server, ToolError

Mood: TypeAlias = Literal["positive", "neutral", "negative"]
MOOD: TypeAdapter[Mood] = TypeAdapter(Mood)

server = Server("writer")


@server.tool(requires={"sampling"})
async def summarize(text: str, ctx: Context) -> str:
    """Summarize a text in one sentence."""
    return (await ctx.sample(f"Summarize in one sentence:\n{text}", max_tokens=200, temperature=0)).text


@server.tool(requires={"sampling"})
async def classify(text: str, ctx: Context) -> Mood:
    """Say in which mood a text was written."""
    prompt = f"Is this text positive, neutral or negative? Answer with one word.\n{text}"
    for _ in range(2):
        answer = await ctx.sample(prompt, max_tokens=5, temperature=0)
        try:
            return MOOD.validate_python(answer.text.strip(" .\n").lower())
        except ValidationError:
            prompt = "Answer with one of the three words."
    raise ToolError("The model did not decide.")


@server.tool(requires={"sampling"})
async def refine(topic: str, ctx: Context) -> list[str]:
    """Write a poem, criticize it, and write it again: one conversation."""
    draft = await ctx.sample(f"Write a haiku about {topic}.")
    critique = await ctx.sample("What is weak in it?")
    final = await ctx.sample("Write it again without that.")
    return [draft.text, critique.text, final.text]


@server.tool(requires={"sampling"}, token_budget=5000)
async def translate(text: str, languages: list[str], ctx: Context) -> dict[str, str]:
    """Translate a text into several languages at the same time."""
    into = [partial(translation, text, language) for language in languages]
    return dict(zip(languages, await ctx.branch_all(*into), strict=True))


async def translation(text: str, language: str, ctx: Context) -> str:
    return (await ctx.sample(f"Translate into {language}:\n{text}", system_prompt="You are a translator.")).text


if __name__ == "__main__":
    server.run()
