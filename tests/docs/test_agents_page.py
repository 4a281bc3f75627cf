"""What the code of docs/agents.md does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from anthropic.types import Message, TextBlock, ToolUseBlock, Usage
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from openai.types.chat.chat_completion import Choice
from pages import Names, run
from programs import Programs, programs
from scripted_model import check_conversation

from trio_mcp import Client, ClientGroup, Context
from trio_mcp.providers import ScriptedProvider
from trio_mcp.testing import tool_use
from trio_mcp.types import ToolResultContent

__all__ = ["programs"]

BOUND = 20.0
FORECAST = tool_use("weather_forecast", city="Lisbon")


@pytest.fixture
def page() -> Names:
    return run("agents")


@pytest.fixture
def servers(page: Names) -> Names:
    return {"library": page["library_server"], "weather": page["weather_server"]}


@pytest.fixture
async def clients(mcp_era: str, servers: Names) -> AsyncIterator[list[Client]]:
    library, weather = (Client.connect(server, mode=mcp_era) for server in servers.values())
    with trio.fail_after(BOUND):
        async with library, weather:
            yield [library, weather]


@pytest.fixture
async def group(servers: Names) -> AsyncIterator[ClientGroup]:
    with trio.fail_after(BOUND):
        async with ClientGroup(servers) as opened:
            yield opened


async def test_a_call_that_is_not_allowed_is_an_error_result(page: Names, clients: list[Client]) -> None:
    result = await page["ask_carefully"](page["script"](), *clients)
    assert result.text == "Read Emma: it rains."
    blocks = [block for message in result.messages for block in message.content if isinstance(block, ToolResultContent)]
    assert [bool(given.is_error) for given in blocks] == [False, False, True]


async def test_a_talk_is_one_conversation(page: Names, clients: list[Client]) -> None:
    messages = await page["talk"](ScriptedProvider(["Hello", "Emma"]), ["Hi", "A book?"], clients[0])
    assert [message.role for message in messages] == ["user", "assistant"] * 2
    check_conversation(messages)


async def test_the_text_is_shown(page: Names, clients: list[Client], capsys: pytest.CaptureFixture[str]) -> None:
    await page["show"](ScriptedProvider(["Emma"]), clients[0])
    assert capsys.readouterr().out == "Emma"


async def test_an_agent_over_a_file_has_its_servers(
    page: Names, servers: Names, tmp_path: Path, programs: Programs
) -> None:
    programs.servers = servers
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {name: {"command": name} for name in servers}}))
    with trio.fail_after(BOUND):
        assert await page["ask_group"](ScriptedProvider([FORECAST, "It rains."]), "?", str(file)) == "It rains."


async def test_tools_that_are_filtered_out_cannot_be_called(page: Names, group: ClientGroup) -> None:
    provider = ScriptedProvider([tool_use("library_lend", title="Emma"), "Nothing was lent."])
    assert await page["ask_reading"](provider, group) == "Nothing was lent."
    assert {tool.name for tool in provider.requests[0].tools or ()} == {"library_find", "weather_forecast"}


async def test_the_progress_of_all_servers_is_shown(
    page: Names, group: ClientGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    @page["library_server"].tool
    async def search(ctx: Context) -> str:
        await ctx.progress(1, total=3, message="first shelf")
        return "nothing"

    provider = ScriptedProvider([tool_use("library_search"), "Nothing."])
    assert await page["ask_with_progress"](provider, group) == "Nothing."
    assert capsys.readouterr().out.splitlines() == ["library search: 1 of 3, first shelf"]


class Api:
    """What a client library is in the loops of the page: it gives the answers of a list, and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.messages = self.chat = self.completions = self
        self.asked: list[dict[str, Any]] = []
        self._answers = list(answers)

    async def create(self, **request: Any) -> Any:
        await trio.lowlevel.checkpoint()
        self.asked.append({**request, "messages": [*request["messages"]]})
        return self._answers.pop(0)


async def test_a_loop_over_the_messages_api_runs_the_calls(page: Names, group: ClientGroup) -> None:
    def answer(*blocks: Any) -> Message:
        usage = Usage(input_tokens=1, output_tokens=1)
        return Message(id="m", type="message", role="assistant", model="x", content=[*blocks], usage=usage)

    use = ToolUseBlock(type="tool_use", id="1", name="weather_forecast", input={"city": "Lisbon"})
    api = Api(answer(use), answer(TextBlock(type="text", text="It rains.")))
    assert await page["ask_claude"](api, "?", group) == "It rains."
    assert [tool["name"] for tool in api.asked[0]["tools"]] == ["library_find", "library_lend", "weather_forecast"]
    assert [message["role"] for message in api.asked[1]["messages"]] == ["user", "assistant", "user"]
    assert api.asked[1]["messages"][2]["content"][0]["content"] == [{"type": "text", "text": "rain in Lisbon"}]


async def test_a_loop_over_chat_completions_runs_the_calls(page: Names, group: ClientGroup) -> None:
    def answer(**members: Any) -> ChatCompletion:
        message = ChatCompletionMessage(role="assistant", **members)
        choice = Choice(finish_reason="stop", index=0, message=message)
        return ChatCompletion(id="c", choices=[choice], created=0, model="x", object="chat.completion")

    function = {"name": "weather_forecast", "arguments": '{"city": "Lisbon"}'}
    api = Api(answer(tool_calls=[{"id": "1", "type": "function", "function": function}]), answer(content="It rains."))
    assert await page["ask_gpt"](api, "?", group) == "It rains."
    assert [tool["function"]["name"] for tool in api.asked[0]["tools"]][-1] == "weather_forecast"
    assert [message["role"] for message in api.asked[1]["messages"]] == ["user", "assistant", "tool"]
    assert api.asked[1]["messages"][2]["content"] == "rain in Lisbon"
