"""The researcher, called in this process in both eras, and its demonstration as a process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from connected import connected
from serving import ROOT

from examples.researcher import QUESTION, Report, make_server, play_model
from trio_mcp import PeerError
from trio_mcp.providers import ScriptedProvider
from trio_mcp.testing import MockClient, replay_tool
from trio_mcp.types import CreateMessageRequestParams, CreateMessageResult, TextContent

REQUESTS = 11
"""The plan, three for each of its three questions, and the report."""


def is_loop(request: CreateMessageRequestParams) -> bool:
    return [tool.name for tool in request.tools or []] == ["search", "read_note"]


async def test_a_question_is_answered_from_the_notes(mode: str) -> None:
    provider, reported = ScriptedProvider([play_model] * REQUESTS), []
    async with connected(make_server(provider), mode) as client:
        report = await client.call_tool(
            "research", {"question": QUESTION}, returns=Report, on_progress=lambda each: reported.append(each.progress)
        )
    cost, energy, fish = report.reasons
    assert "84 million" in cost
    assert "40 gigawatt hours" in energy
    assert "Herring" in fish
    assert report.open_points == []
    assert reported == [1, 2, 3, 4]
    assert len([request for request in provider.requests if is_loop(request)]) == REQUESTS - 2


async def test_the_model_of_the_client_comes_first(mode: str) -> None:
    client = MockClient(samples=play_model, era=mode)
    result = await client.call((make_server(ScriptedProvider([])), "research"), question=QUESTION)
    assert not result.is_error
    assert len(client.questions) == REQUESTS


async def test_a_branch_without_tokens_is_an_open_point_and_the_others_go_on(mode: str) -> None:
    def expensive(request: CreateMessageRequestParams) -> CreateMessageResult:
        answer = play_model(request)
        first = request.messages[0].content
        if is_loop(request) and isinstance(first, TextContent) and "fish" in first.text:
            return answer.model_copy(update={"meta": {"usage": {"inputTokens": 90_000, "outputTokens": 1}}})
        return answer

    async with connected(make_server(ScriptedProvider([expensive] * REQUESTS)), mode) as client:
        report = await client.call_tool("research", {"question": QUESTION}, returns=Report)
    assert report.open_points == ["What of the fish?"]
    assert len(report.reasons) == 3


async def test_without_a_model_there_is_no_research(mode: str) -> None:
    async with connected(make_server(None), mode) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert ("research" in names) is (mode != "legacy")
        if mode == "legacy":
            assert (await client.call_tool("research", {"question": QUESTION})).is_error
        else:
            with pytest.raises(PeerError):
                await client.call_tool("research", {"question": QUESTION})


async def test_the_notes_can_be_searched_without_a_model(mode: str) -> None:
    async with connected(make_server(None), mode) as client:
        assert (await client.call_tool("search", {"words": "storm herring"})).data == [
            {"number": 6, "title": "The old mill"},
            {"number": 4, "title": "Fish in the bay"},
        ]
        assert (await client.call_tool("read_note", {"number": 99})).is_error


async def test_the_researcher_is_deterministic_between_its_questions() -> None:
    provider = ScriptedProvider([play_model] * REQUESTS)
    report = await replay_tool(make_server(provider), "research", {"question": QUESTION})
    report.check()


async def test_a_failed_model_is_an_error_result(mode: str) -> None:
    async with connected(make_server(ScriptedProvider([])), mode) as client:
        result = await client.call_tool("research", {"question": QUESTION})
    assert result.is_error
    assert "script" not in result.text


def test_the_demonstration_prints_a_report() -> None:
    clean = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    command = [sys.executable, str(ROOT / "examples" / "researcher.py"), "demo"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=clean, check=True)
    assert "4 of 5" in done.stdout
    assert "84 million" in done.stdout
