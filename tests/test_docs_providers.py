"""The code of docs/providers.md is one program, and does what the page says; its numbers and kinds are those of the code."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
import trio
from model_api import model_api, openai_answer, openai_events, says, streams
from pages import Names, Page

from trio_mcp import SamplingProvider
from trio_mcp.errors import ProviderError, ProviderErrorKind
from trio_mcp.providers import AnthropicProvider, OpenAIProvider
from trio_mcp.providers.api import MAX_RETRIES, MAX_WAIT, PASSING, RETRY_BACKOFF, TIMEOUT
from trio_mcp.types import CreateMessageRequestParams, SamplingMessage, TextContent

PAGE = Page("providers")
BOUND = 20.0
REQUEST = CreateMessageRequestParams(
    messages=[SamplingMessage(role="user", content=TextContent(text="hi"))], max_tokens=9
)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Names:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of-the-environment")
    return PAGE.run()


async def test_its_own_test_passes(page: Names) -> None:
    with trio.fail_after(BOUND):
        await page["test_haiku"]()


async def test_its_consent_refuses_a_request_that_is_too_long(page: Names) -> None:
    assert not await page["consent"](REQUEST.model_copy(update={"max_tokens": 10_001}), "poet")


async def test_its_own_provider_answers_a_server(page: Names) -> None:
    with trio.fail_after(BOUND):
        assert "Write a haiku about rain." in await page["call"](page["make_server"](), page["Parrot"]())
    assert isinstance(page["Parrot"](), SamplingProvider)


@pytest.mark.wires
async def test_its_providers_ask_a_local_server(page: Names, capsys: pytest.CaptureFixture[str]) -> None:
    async with model_api(says(openai_answer()), says(openai_answer()), streams(openai_events())) as api:
        provider = OpenAIProvider("model-1", base_url=f"{api.url}/v1")
        assert await page["call_often"](page["make_server"](), provider, 2) == ["Hello.", "Hello."]
        assert api.connections == 1
        await page["print_answer"](provider, REQUEST)
    assert capsys.readouterr().out == "Looking. (toolUse)\n"


@pytest.mark.parametrize("kind", [AnthropicProvider, OpenAIProvider])
def test_its_table_has_the_arguments_and_their_defaults(kind: type[Any]) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.text.split("## Arguments")[1], re.MULTILINE))
    assert set(inspect.signature(kind).parameters) <= set(rows)
    assert rows["max_retries"] == str(MAX_RETRIES)
    assert rows["timeout"] == f"{TIMEOUT:g}"
    assert f"from {RETRY_BACKOFF.first:g} to {RETRY_BACKOFF.longest:g} seconds" in rows["backoff"]
    assert RETRY_BACKOFF.jitter == 0.5
    assert f"longer than {MAX_WAIT:g} seconds" in PAGE.prose


def test_its_table_has_every_kind_of_failure_and_says_which_are_repeated() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \|.*\| (yes|no) \|$", PAGE.text, re.MULTILINE)
    assert {name: repeated == "yes" for name, repeated in rows} == {
        kind.name: kind in PASSING for kind in ProviderErrorKind
    }
    assert all(ProviderError("x", kind=kind).public_text for kind in ProviderErrorKind)
