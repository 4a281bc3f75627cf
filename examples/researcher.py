"""A researcher: a model plans, researches each sub-question in a branch with a token budget, and writes a report.

    python examples/researcher.py                    serves it on stdio
    python examples/researcher.py http 8000          serves it at http://127.0.0.1:8000/mcp
    python examples/researcher.py demo [QUESTION]    asks one question, and prints the report

The model is that of the client, if it has one that takes tools. Otherwise it is one of OpenAI or Anthropic, if `OPENAI_API_KEY`
or `ANTHROPIC_API_KEY` is set; `MODEL` names it. The demonstration does without a key: then a script plays the model.

The plan and the report are structured answers. Each sub-question is a tool loop over the notes of a small archive, which is a
SQLite database in memory. A branch that uses up its tokens ends with what it has found, and the others go on.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import trio
from pydantic import BaseModel, Field

from trio_mcp import Client, Context, SamplingProvider, Server, ToolError
from trio_mcp.errors import BranchLimit
from trio_mcp.providers import AnthropicProvider, OpenAIProvider, ScriptedProvider
from trio_mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    JsonObject,
    TextContent,
    ToolAnnotations,
    ToolResultContent,
    ToolUseContent,
)

QUESTION = "Should Port Alder build the tidal power station?"
TOKENS = 20_000
"""What the research of one sub-question may use."""
READ_ONLY = ToolAnnotations(read_only_hint=True)

NOTES = {
    "Cost of the station": "The tidal power station in Port Alder would cost 84 million euros and be paid back in 19 years.",
    "Energy of the tide": "The tide in the bay has a range of 6 metres. A station would yield 40 gigawatt hours a year.",
    "Demand for energy": "The town uses 52 gigawatt hours of energy a year, most of it in winter.",
    "Fish in the bay": "Herring spawn in the bay in March. In a similar bay, turbines that stop in March did the fish no harm.",
    "Shipping": "Two ferries cross the bay each hour. A lock in the barrage would delay them by twelve minutes.",
    "The old mill": "A tide mill stood in the bay from 1780 until a storm destroyed it in 1911.",
}


class Plan(BaseModel):
    """What has to be found out."""

    questions: Annotated[list[str], Field(min_length=1, max_length=4)]


class Finding(BaseModel):
    """What was found out about one sub-question."""

    question: str
    answer: str
    complete: bool = True


class Report(BaseModel):
    """The answer to the question."""

    answer: str
    reasons: list[str]
    open_points: list[str] = []


@dataclass(frozen=True)
class Hit:
    """A note that was found."""

    number: int
    title: str


@dataclass(frozen=True)
class Archive:
    """The notes."""

    database: sqlite3.Connection


@asynccontextmanager
async def open_archive(_server: Server) -> AsyncIterator[Archive]:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("create table note (number integer primary key, title text, body text)")
        database.executemany("insert into note (title, body) values (?, ?)", NOTES.items())
        yield Archive(database)


async def search(words: str, ctx: Context[Archive]) -> list[Hit]:
    """Find the notes that have one of these words."""
    found: dict[int, Hit] = {}
    # A database in memory answers at once, so that no thread is needed.
    for word in words.split()[:10]:
        pattern = f"%{word.strip('?.,')}%"
        rows = ctx.state.database.execute("select number, title from note where title || body like ?", [pattern])
        found.update((number, Hit(number, title)) for number, title in rows)
    return list(found.values())


async def read_note(number: int, ctx: Context[Archive]) -> str:
    """Read a note."""
    row = ctx.state.database.execute("select body from note where number = ?", [number]).fetchone()
    if row is None:
        raise ToolError(f"There is no note {number}.")
    return str(row[0])


async def research(question: str, ctx: Context[Archive]) -> Report:
    """Answer a question from the notes of the archive."""
    plan = (await ctx.sample(f"Which questions have to be answered first, one to four? {question}", returns=Plan)).data
    steps = len(plan.questions) + 2
    await ctx.progress(1, steps, f"{len(plan.questions)} questions")
    done = 1

    async def find(sub_question: str, child: Context[Archive]) -> Finding:
        nonlocal done
        prompt = f"Answer from the notes only, in a sentence: {sub_question}"
        try:
            result = await child.run_tool_loop(prompt, ["search", "read_note"], max_iterations=6, max_tokens=500)
            finding = Finding(question=sub_question, answer=result.text, complete=result.ended_by == "answer")
        except BranchLimit as error:
            finding = Finding(question=sub_question, answer=str(error), complete=False)
        done += 1
        await ctx.progress(done, steps, sub_question)
        return finding

    async with ctx.branches() as group:
        # A branch begins without the conversation of its parent: the plan is not needed to answer one question of it.
        branches = [
            group.start(partial(find, each), token_budget=TOKENS, inherit_messages=False) for each in plan.questions
        ]
    findings = [branch.value for branch in branches]
    known = "\n".join(f"- {each.question} {each.answer}" for each in findings)
    report = (await ctx.sample(f"Answer the question from these findings.\n{known}\n{question}", returns=Report)).data
    missing = [each.question for each in findings if not each.complete]
    return report.model_copy(update={"open_points": [*report.open_points, *missing]})


def make_server(provider: SamplingProvider | None) -> Server:
    """Return the server. Without a provider, only clients that have a model can use `research`."""
    researcher = Server(
        "researcher",
        version="1.0",
        instructions="Ask `research` about the tidal power station in Port Alder.",
        lifespan=open_archive,
        sampling=provider,
    )
    # Read-only tools are replayed, if a call that waits for its client goes on in another process.
    researcher.add_tool(search, annotations=READ_ONLY)
    researcher.add_tool(read_note, annotations=READ_ONLY)
    researcher.add_tool(research, annotations=READ_ONLY, requires={"sampling.tools"}, timeout=600, heartbeat=10)
    return researcher


def provider_of_environment() -> SamplingProvider | None:
    """Return the provider whose key is set; None without a key."""
    model = os.environ.get("MODEL")
    if os.environ.get("OPENAI_API_KEY"):
        return OpenAIProvider(model or "gpt-4.1-mini")
    if os.environ.get("ANTHROPIC_API_KEY"):
        return AnthropicProvider(model)
    return None


# The model of the demonstration


def play_model(request: CreateMessageRequestParams) -> CreateMessageResult:
    """Answer as a model might that knows nothing, and has to search and read."""
    tools = [tool.name for tool in request.tools or []]
    if tools == ["__schema__"]:
        return called("__schema__", plan_or_report(request))
    results = results_in(request)
    if not results:
        return called("search", {"words": subject_of(request)})
    last = results[-1]
    hits = (last.structured_content or {}).get("result") if isinstance(last.structured_content, dict) else None
    if isinstance(hits, list) and hits and isinstance(hits[0], dict):
        return called("read_note", {"number": hits[0]["number"]})
    return CreateMessageResult(role="assistant", content=text_in(last), model="script", stop_reason="endTurn")


def plan_or_report(request: CreateMessageRequestParams) -> JsonObject:
    """Return the plan, or the report that repeats the findings."""
    (schema,) = [tool.input_schema for tool in request.tools or []]
    if "questions" in str(schema.get("properties")):
        return {"questions": ["What does it cost?", "How much energy is there?", "What of the fish?"]}
    findings = [line.partition("? ")[2] for line in prompt_of(request).splitlines() if line.startswith("- ")]
    return {"answer": "Yes, if the turbines stop while the herring spawn.", "reasons": [*findings]}


def called(name: str, arguments: JsonObject) -> CreateMessageResult:
    use = ToolUseContent(id=f"{name}-1", name=name, input=arguments)
    return CreateMessageResult(role="assistant", content=[use], model="script", stop_reason="toolUse")


def results_in(request: CreateMessageRequestParams) -> list[ToolResultContent]:
    contents = [each.content if isinstance(each.content, list) else [each.content] for each in request.messages]
    return [block for blocks in contents for block in blocks if isinstance(block, ToolResultContent)]


def text_in(result: ToolResultContent) -> TextContent:
    return next(block for block in result.content if isinstance(block, TextContent))


def prompt_of(request: CreateMessageRequestParams) -> str:
    blocks = [each.content if isinstance(each.content, list) else [each.content] for each in request.messages]
    return "".join(block.text for block in blocks[-1] if isinstance(block, TextContent))


def subject_of(request: CreateMessageRequestParams) -> str:
    """Return the last word of the question, without its question mark."""
    block = request.messages[0].content
    assert isinstance(block, TextContent)
    subject = {"cost?": "cost", "there?": "yield", "fish?": "fish"}
    return subject.get(block.text.split()[-1], block.text)


async def demonstrate(question: str) -> None:
    """Ask one question, and print what the researcher reports."""
    # A script needs one step for each request: the plan, three for each of its questions, and the report.
    provider = provider_of_environment() or ScriptedProvider([play_model] * 11)
    print("A model plans, researches each sub-question in a separate branch, and reports")
    print("=============================================================================\n")
    async with Client.connect(make_server(provider)) as client:
        print(f"{question}\n")
        report = await client.call_tool(
            "research",
            {"question": question},
            returns=Report,
            on_progress=lambda each: print(f"  {each.progress:g} of {each.total:g}: {each.message}"),
        )
    print(f"\n{report.answer}")
    for reason in report.reasons:
        print(textwrap.fill(f"- {reason}", 78, subsequent_indent="  "))
    for point in report.open_points:
        print(f"- still open: {point}")


server = make_server(provider_of_environment())


if __name__ == "__main__":
    if sys.argv[1:2] == ["demo"]:
        trio.run(demonstrate, " ".join(sys.argv[2:]) or QUESTION)
    elif sys.argv[1:2] == ["http"]:
        server.run("http", port=int(sys.argv[2]))
    else:
        server.run()
