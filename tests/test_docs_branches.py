"""The code of docs/branches.md is one program, and does what the page says; its numbers are those of the code."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
import trio
from pages import Names, Page
from trio.testing import MockClock

from trio_mcp import Client, ServiceOptions, accept
from trio_mcp.server import BranchOptions
from trio_mcp.types import CallToolResult, CreateMessageRequestParams

PAGE = Page("branches")
BOUND = 20.0

both_eras = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])


class Model:
    """Answers every prompt with its last word, after some seconds, and keeps what it was asked."""

    def __init__(self, seconds: float = 0) -> None:
        self.asked: list[CreateMessageRequestParams] = []
        self._seconds = seconds

    async def __call__(self, params: CreateMessageRequestParams) -> str:
        self.asked.append(params)
        await trio.sleep(self._seconds)
        return str(params.messages[-1].content.text).split()[-1]  # type: ignore[union-attr]


@pytest.fixture
def page() -> Names:
    return PAGE.run()


async def call(page: Names, mode: str, tool: str, model: Model, **arguments: str) -> CallToolResult:
    with trio.fail_after(BOUND):
        async with Client.connect(
            page["server"], mode=mode, on_sample=model, on_elicit=lambda _: accept(value=True)
        ) as client:
            return await client.call_tool(tool, arguments)


@both_eras
async def test_a_review_looks_from_three_sides_and_sums_up(page: Names, mode: str) -> None:
    model = Model()
    assert (await call(page, mode, "review", model, text="a poem")).text == "poem"
    assert len(model.asked) == 4
    assert [len(params.messages) for params in model.asked] == [1] * 4


@both_eras
async def test_the_lawyers_begin_with_what_was_said_and_do_not_hear_each_other(page: Names, mode: str) -> None:
    model = Model()
    result = await call(page, mode, "argue", model, thesis="sun")
    assert result.structured_content == {"result": ["2 messages", "right?"]}
    pleas = [params for params in model.asked if params.system_prompt is not None]
    assert sorted(len(params.messages) for params in pleas) == [3, 3, 5, 5]
    assert {params.system_prompt for params in pleas} == {"You are for the thesis.", "You are against the thesis."}
    assert len(model.asked[-1].messages) == 2


@both_eras
@pytest.mark.parametrize(("seconds", "said"), [(0, "here"), (11, "2 words (time)")])
async def test_an_opinion_is_given_within_its_time(
    page: Names, mode: str, seconds: float, said: str, autojump_clock: MockClock
) -> None:
    assert (await call(page, mode, "opinion", Model(seconds), text="text here")).text == said


async def test_an_opinion_is_given_within_its_tokens(page: Names) -> None:
    text = " ".join(["word"] * 1000)
    assert (await call(page, "legacy", "opinion", Model(), text=text)).text == "1000 words (tokens)"


@pytest.mark.parametrize(("seconds", "first"), [(0, "Sampled"), (10, "Accepted")])
async def test_the_first_word_decides(page: Names, seconds: float, first: str, autojump_clock: MockClock) -> None:
    """The user of this test answers after five seconds."""

    async def late(_question: object) -> Any:
        await trio.sleep(5)
        return accept(value=True)

    with trio.fail_after(BOUND):
        async with Client.connect(page["server"], mode="legacy", on_sample=Model(seconds), on_elicit=late) as client:
            assert (await client.call_tool("approve", {"change": "it"})).text == first


def test_the_page_lists_every_option_of_a_branch() -> None:
    assert [name for name in get_type_hints(BranchOptions) if f"`{name}=" not in PAGE.text] == []


def test_the_numbers_and_names_are_those_of_the_code() -> None:
    assert f"never more than the server ({ServiceOptions().max_depth})" in PAGE.prose
    assert not ServiceOptions().parallel_prompts
    assert "ServiceOptions(parallel_prompts=True)" in PAGE.prose
    assert "ServiceOptions(estimate_tokens=...)" in PAGE.prose
    ServiceOptions(parallel_prompts=True, estimate_tokens=lambda _params, _result: 1)
