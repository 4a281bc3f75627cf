"""The demonstration of the researcher with the model of an API: a key in the environment is all that it needs.

The APIs are on this machine, and the script of the demonstration plays their model.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import trio
from model_api import Asked, Reply, anthropic_answer, model_api, openai_answer, says
from serving import ROOT

from examples.researcher import play_model
from trio_mcp.providers import from_anthropic, from_openai, to_anthropic, to_openai
from trio_mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
)

Json = dict[str, Any]

KEY = "sk-of-the-test"


class Spoken(NamedTuple):
    """What an API is asked, and what it answers."""

    variable: str
    path: str
    asked: Callable[[Json], tuple[list[SamplingMessage], list[Tool]]]
    answered: Callable[[SamplingMessage], Json]


def asked_of_openai(body: Json) -> tuple[list[SamplingMessage], list[Tool]]:
    functions = [tool["function"] for tool in body.get("tools", [])]
    return from_openai(body["messages"]), [Tool(name=f["name"], input_schema=f["parameters"]) for f in functions]


def answered_by_openai(said: SamplingMessage) -> Json:
    (message,) = to_openai([said])
    return {**openai_answer(), "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def asked_of_anthropic(body: Json) -> tuple[list[SamplingMessage], list[Tool]]:
    tools = [Tool(name=tool["name"], input_schema=tool["input_schema"]) for tool in body.get("tools", [])]
    return from_anthropic(body["messages"]), tools


def answered_by_anthropic(said: SamplingMessage) -> Json:
    (message,) = to_anthropic([said])
    return {**anthropic_answer(), **message}


APIS = [
    Spoken("OPENAI", "/v1/chat/completions", asked_of_openai, answered_by_openai),
    Spoken("ANTHROPIC", "/v1/messages", asked_of_anthropic, answered_by_anthropic),
]


def message_of(answer: CreateMessageResult) -> SamplingMessage:
    return SamplingMessage(role="assistant", content=answer.content)


def as_told(message: SamplingMessage) -> SamplingMessage:
    """Return a message as the script knows it: with structured results, which an API gets as text."""
    if not isinstance(message.content, list):
        return message
    blocks = [
        block.model_copy(update={"structured_content": json_in(block)})
        if isinstance(block, ToolResultContent)
        else block
        for block in message.content
    ]
    # A prompt is one block.
    return message.model_copy(update={"content": blocks[0] if len(blocks) == 1 else blocks})


def json_in(result: ToolResultContent) -> Json | None:
    for block in result.content:
        if isinstance(block, TextContent) and block.text.startswith("{"):
            return dict(json.loads(block.text))
    return None


@pytest.mark.parametrize("spoken", APIS, ids=lambda spoken: spoken.variable.lower())
@pytest.mark.parametrize("named", [True, False], ids=["a model that is named", "the default"])
async def test_the_demonstration_asks_the_api_whose_key_is_set(spoken: Spoken, named: bool) -> None:
    models: list[str] = []

    def answer(asked: Asked) -> Reply:
        if asked.method == "GET":
            return says({"data": [{"id": "first-model"}]})
        assert asked.path == spoken.path
        assert KEY in str(asked.headers)
        models.append(asked.body["model"])
        messages, tools = spoken.asked(asked.body)
        request = CreateMessageRequestParams(messages=list(map(as_told, messages)), max_tokens=1, tools=tools)
        return says(spoken.answered(message_of(play_model(request))))

    vendor = spoken.variable
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    environment |= {"MODEL": "named-model"} if named else {}
    command = [sys.executable, str(ROOT / "examples" / "researcher.py"), "demo"]
    async with model_api(always=answer) as api:
        environment |= {f"{vendor}_API_KEY": KEY, f"{vendor}_BASE_URL": f"{api.url}/v1"}
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, env=environment)
    assert b"84 million" in done.stdout
    assert KEY.encode() not in done.stdout + done.stderr
    default = {"OPENAI": "gpt-4.1-mini", "ANTHROPIC": "first-model"}[vendor]
    # The plan, three for each of its three questions, and the report.
    assert models == ["named-model" if named else default] * 11
