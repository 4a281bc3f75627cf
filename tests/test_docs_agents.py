"""The code of docs/agents.md is one program, and does what the page says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from pages import Names, Page

from trio_mcp import Client
from trio_mcp.client import agent
from trio_mcp.protocol.conversation import conversation_problem
from trio_mcp.providers import ScriptedProvider
from trio_mcp.session import tool_loop
from trio_mcp.types import ToolResultContent

PAGE = Page("agents")
BOUND = 20.0


@pytest.fixture
def page() -> Names:
    return PAGE.run()


@pytest.fixture(params=["legacy", "modern"])
async def clients(request: pytest.FixtureRequest, page: Names) -> AsyncIterator[tuple[Client, Client]]:
    library, weather = (Client.connect(page[name], mode=request.param) for name in ("library_server", "weather_server"))
    with trio.fail_after(BOUND):
        async with library, weather:
            yield library, weather


def results_of(messages: object) -> list[ToolResultContent]:
    assert isinstance(messages, tuple)
    return [block for message in messages for block in message.content if isinstance(block, ToolResultContent)]


async def test_the_main_function_prints_what_its_comments_say(page: Names, capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(BOUND):
        await page["main"]()
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["Read Emma: it rains.", "3"]
    assert all(f"# {line}" in PAGE.text for line in printed)


async def test_a_call_that_is_not_allowed_is_an_error_result(page: Names, clients: tuple[Client, Client]) -> None:
    result = await page["ask_carefully"](page["script"](), *clients)
    assert result.text == "Read Emma: it rains."
    assert [bool(given.is_error) for given in results_of(result.messages)] == [False, False, True]


async def test_a_talk_is_one_conversation(page: Names, clients: tuple[Client, Client]) -> None:
    messages = await page["talk"](ScriptedProvider(["Hello", "Emma"]), ["Hi", "A book?"], clients[0])
    assert [message.role for message in messages] == ["user", "assistant"] * 2
    assert conversation_problem(messages) is None


async def test_the_text_is_shown(
    page: Names, clients: tuple[Client, Client], capsys: pytest.CaptureFixture[str]
) -> None:
    await page["show"](ScriptedProvider(["Emma"]), clients[0])
    assert capsys.readouterr().out == "Emma"


@pytest.mark.parametrize(
    "text",
    [
        f"`max_iterations` ({tool_loop.MAX_ITERATIONS})",
        f"No answer has more than {tool_loop.MAX_CALLS} calls",
        f"at most `max_parallel` of them ({agent.MAX_PARALLEL})",
        f"`max_result` bytes ({agent.MAX_RESULT // 1024**2} MiB)",
        f"`max_tokens` ({agent.MAX_TOKENS:,} for one answer)",
        f"`list_timeout` seconds ({agent.LIST_TIMEOUT:g})",
    ],
)
def test_the_page_has_the_limits_of_the_code(text: str) -> None:
    assert text in PAGE.prose
