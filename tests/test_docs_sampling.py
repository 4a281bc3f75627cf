"""The code of docs/sampling.md is one program, and does what the page says."""

from __future__ import annotations

import re

import pytest
from pages import Names, Page

from trio_mcp.server import Sampled, SampleOptions
from trio_mcp.testing import MockClient, tool_use
from trio_mcp.types import CreateMessageRequestParams

PAGE = Page("sampling")

both_eras = pytest.mark.parametrize("era", ["modern", "legacy"])


@pytest.fixture
def page() -> Names:
    return PAGE.run()


def asked(client: MockClient, number: int) -> CreateMessageRequestParams:
    params = client.questions[number].params
    assert isinstance(params, CreateMessageRequestParams)
    return params


@both_eras
async def test_a_haiku_is_the_text_of_the_answer(page: Names, era: str) -> None:
    client = MockClient(samples=["Rain, rain, rain."], era=era)
    assert (await client.call((page["server"], "haiku"), place="Oslo")).text == "Rain, rain, rain."
    assert (asked(client, 0).max_tokens, asked(client, 0).temperature) == (100, 0.9)


@both_eras
async def test_complete_messages_are_sent_as_they_are(page: Names, era: str) -> None:
    client = MockClient(samples=["yes"], era=era)
    assert (await client.call((page["server"], "compare"))).text == "yes"
    assert asked(client, 0).system_prompt == "Answer yes or no."
    assert len(asked(client, 0).messages) == 1


@both_eras
async def test_a_forecast_is_a_value_of_its_type(page: Names, era: str) -> None:
    data = {"place": "Oslo", "degrees": 4, "sky": "rain"}
    client = MockClient(samples=["It will rain.", page["Forecast"](**data)], era=era)
    assert (await client.call((page["server"], "forecast"), place="Oslo")).data == data
    assert len(client.questions) == 2


@both_eras
@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([True], "Take it."),
        (["No.", False], "Leave it."),
        (["No.", "No!"], "The model did not say"),
    ],
)
async def test_an_umbrella_needs_an_answer(page: Names, era: str, samples: list[object], text: str) -> None:
    assert text in (await MockClient(samples=samples, era=era).call((page["server"], "umbrella"), place="Oslo")).text


@both_eras
async def test_the_model_continues_from_the_results_of_its_tools(page: Names, era: str) -> None:
    calls = [tool_use("temperature", place="Lisbon"), tool_use("temperature", place="Rome")]
    client = MockClient(samples=[calls, tool_use("temperature", place="Oslo"), "Lisbon."], era=era)
    assert (await client.call((page["server"], "advise"))).text == "Lisbon."
    sent = str([message.wire() for message in asked(client, 2).messages])
    assert [text in sent for text in ("21 degrees", "There is no such place.", "4 degrees")] == [True] * 3


@both_eras
async def test_an_exchange_is_a_part_of_another_conversation(page: Names, era: str) -> None:
    data = {"place": "Oslo", "degrees": 4, "sky": "rain"}
    client = MockClient(samples=[data, "A coat."], era=era)
    assert (await client.call((page["server"], "pack"), place="Oslo")).text == "A coat."
    assert [message.role for message in asked(client, 1).messages] == ["user", "assistant", "user", "user"]


def test_the_page_names_every_option_and_every_member() -> None:
    table = set(re.findall(r"`(\w+)=", PAGE.text))
    assert SampleOptions.__optional_keys__ | {"tools", "tool_choice", "returns", "retries"} <= table
    members = {name for name in dir(Sampled) if not name.startswith("_")} - {"reply", "request"}
    assert {name for name in members if f"`{name}`" not in PAGE.text} == set()
