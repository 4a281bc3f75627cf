"""The recipes of the pages for agents of other frameworks work with their current versions, in the process of each.

Those of docs/agents.md have the URL of a server, those of docs/asyncio.md a client of ours, which also answers a question. The
models are those that the frameworks have for tests.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib.metadata import distribution
from os import environ, pathsep
from pathlib import Path

import pytest
from pages import Page
from processes import over_http
from serving import IMPORTS

BOUND = 60.0
FRAMEWORKS = ["pydantic_ai", "langchain", "openai_agents"]
SERVER = """
from trio_mcp import Context, Server, ToolError

server = Server("shop")


@server.tool
async def stock(item: str, ctx: Context) -> int:
    if item == "chair":
        return await ctx.elicit.strict("How many?", int)
    if item != "lamp":
        raise ToolError("no such item")
    return 3
"""

# Each asks for the items of the command line, one by one, and then prints what it has read as the results.
MODELS = {
    "pydantic_ai": """
import sys

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel


def respond(messages, info):
    items = sys.argv[2:]
    parts = [part for message in messages for part in message.parts if getattr(part, "tool_name", None)]
    results = [part.content for part in parts if not isinstance(part, ToolCallPart)]
    if len(results) < len(items):
        return ModelResponse(parts=[ToolCallPart("stock", {"item": items[len(results)]})])
    return ModelResponse(parts=[TextPart(repr(results))])


model = FunctionModel(respond)
""",
    "langchain": """
import sys

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage


class Model(GenericFakeChatModel):
    def bind_tools(self, tools, **options):
        return self

    def _generate(self, messages, *arguments, **options):
        results = [message.text for message in messages if isinstance(message, ToolMessage)]
        items = sys.argv[2:]
        if len(results) < len(items):
            call = {"name": "stock", "args": {"item": items[len(results)]}, "id": str(len(results)), "type": "tool_call"}
            self.messages = iter([AIMessage(content="", tool_calls=[call])])
        else:
            self.messages = iter([AIMessage(content=repr(results))])
        return super()._generate(messages, *arguments, **options)


model = Model(messages=iter([]))
""",
    "openai_agents": """
import sys

from agents import set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

set_tracing_disabled(True)


def tell(call):
    return [assistant_message(repr([item["output"] for item in call.input if item.get("type") == "function_call_output"]))]


model = ScriptedModel(
    [[function_call("stock", {"item": item}, call_id=item)] for item in sys.argv[2:]] + [ModelStep.respond(tell)]
)
""",
}
BY_URL = """
import asyncio

print(asyncio.run(ask_with_{framework}(model, sys.argv[1])))
"""
BY_CLIENT = """
import asyncio

from trio_mcp import ClientGroup, accept


async def main(url):
    async with Client.connect(url, on_elicit=lambda asked: accept(value=5)) as client:
        print(await ask_with_{framework}(model, client))
    async with ClientGroup({{"one": url, "two": url}}) as group:
        tools = [tool_for_{framework}(group, tool) for tool in await group.list_tools()]
        assert [tool.name for tool in tools] == ["one_stock", "two_stock"]


asyncio.run(main(sys.argv[1]))
"""
# The program of a page, what its model asks for, and what it reads.
RECIPES = {
    "agents": (BY_URL, ["lamp", "sofa"], ["3", "no such item"]),
    "asyncio": (BY_CLIENT, ["lamp", "sofa", "chair"], ["3", "no such item", "5"]),
}


def recipe(page: str, framework: str) -> str:
    """Return the block of a page that has the recipe for a framework."""
    blocks = re.findall(r"```py\n(.*?)```", Page(page).text, re.DOTALL)
    (found,) = (block for block in blocks if f"ask_with_{framework}" in block)
    return found


@pytest.fixture
def installed_names(tmp_path: Path) -> Path:
    """A folder in which another environment finds the transports of this checkout: the metadata of the distribution."""
    installed = distribution("trio-mcp")
    metadata = f"trio_mcp-{installed.version}.dist-info"
    folder = tmp_path / "names"
    folder.mkdir()
    (folder / metadata).symlink_to(str(installed.locate_file(metadata)))
    return folder


@pytest.mark.parametrize("page", RECIPES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_agent_of_another_framework_calls_a_tool_and_reads_its_result_and_its_error(
    page: str, framework: str, frameworks_python: str, installed_names: Path, tmp_path: Path
) -> None:
    main, items, expected = RECIPES[page]
    program = [recipe(page, framework), MODELS[framework], main.format(framework=framework)]
    (tmp_path / "shop.py").write_text(SERVER)
    (tmp_path / "agent.py").write_text("\n".join(program))
    environment = {**environ, "PYTHONPATH": pathsep.join([IMPORTS["PYTHONPATH"], str(installed_names)])}
    with over_http([sys.executable, "-m", "trio_mcp", "serve", str(tmp_path / "shop.py"), "--port", "0"]) as url:
        command = [frameworks_python, str(tmp_path / "agent.py"), url, *items]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    read = ast.literal_eval(done.stdout)
    assert [text in str(result) for text, result in zip(expected, read, strict=True)] == [True] * len(expected), read
