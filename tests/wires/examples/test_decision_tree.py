"""The decision tree example: options are explored concurrently and apart, and each is rated by the user."""

from __future__ import annotations

from examples.decision_tree import TOKENS, Rating, decide, server
from trio_mcp import accept, decline
from trio_mcp.testing import MockClient, replay_tool
from trio_mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    TextContent,
)

TREE = {"question": "Where to?", "options": ["Rome", "Oslo"]}


def model(params: CreateMessageRequestParams) -> str:
    """Says which case it was asked about."""
    (prompt,) = params.messages
    assert isinstance(prompt.content, TextContent)
    return "sun" if "the best" in prompt.content.text else "rain"


def user(question: ElicitRequestFormParams) -> ElicitResult:
    """Likes Oslo better."""
    return accept(stars=5 if question.message.startswith("Oslo") else 2)


async def test_the_options_come_in_the_order_of_the_users_ratings(mode: str) -> None:
    client = MockClient(elicits=user, samples=model, era=mode)
    result = await client.call(decide, **TREE)
    assert result.data == {
        "choice": "Oslo",
        "options": [
            {"name": "Oslo", "best": "sun", "worst": "rain", "stars": 5},
            {"name": "Rome", "best": "sun", "worst": "rain", "stars": 2},
        ],
    }


async def test_each_option_is_rated_with_its_own_cases_at_hand(mode: str) -> None:
    client = MockClient(elicits=user, samples=model, era=mode)
    await client.call(decide, **TREE)
    asked = [question.message for question in client.questions if question.key == "rating"]
    assert sorted(asked) == [f"{name}\nAt best: sun\nAt worst: rain\nHow do you like it?" for name in ("Oslo", "Rome")]


async def test_the_questions_of_all_options_go_out_together() -> None:
    client = MockClient(elicits=user, samples=model)
    await client.call(decide, **TREE)
    assert sorted((question.leg, question.kind) for question in client.questions) == [
        *[(1, "sample")] * 4,
        *[(2, "elicit")] * 2,
    ]


async def test_the_tree_is_the_same_when_every_leg_is_replayed() -> None:
    report = await replay_tool(server, "decide", TREE, on_elicit=user, on_sample=model)
    report.check()
    assert report.result is not None
    assert report.result.data["choice"] == "Oslo"


async def test_an_option_that_is_not_rated_comes_last(mode: str) -> None:
    client = MockClient(
        elicits=lambda question: decline() if question.message.startswith("Rome") else Rating(stars=1),
        samples=model,
        era=mode,
    )
    result = await client.call(decide, **TREE)
    assert [option["stars"] for option in result.data["options"]] == [1, None]


async def test_a_wordy_model_costs_the_option_its_cases_and_not_the_rating(mode: str) -> None:
    def wordy(params: CreateMessageRequestParams) -> CreateMessageResult:
        return CreateMessageResult(
            role="assistant",
            content=TextContent(text=model(params)),
            model="wordy",
            _meta={"usage": {"totalTokens": TOKENS + 1}},
        )

    client = MockClient(elicits=user, samples=wordy, era=mode)
    result = await client.call(decide, **TREE)
    assert result.data["choice"] == "Oslo"
    assert {option["best"] for option in result.data["options"]} == {"(not explored)"}


async def test_one_option_is_no_decision(mode: str) -> None:
    result = await MockClient(era=mode).call(decide, question="Where to?", options=["Rome"])
    assert result.is_error
