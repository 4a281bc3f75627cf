"""The text of a failure: short, and without the key, whatever the API has said."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from pages import Page

from trio_mcp.errors import ProviderError, ProviderErrorKind
from trio_mcp.providers.api import PASSING
from trio_mcp.providers.endpoint import HIDDEN, MAX_EXCERPT, Endpoint, Vendor, malformed, read_object, rejected_with

KEY = "sk-of-the-test"
ENDPOINT = Endpoint(Vendor("Model", "https://127.0.0.1", "KEY", "URL"), "https://127.0.0.1", KEY, is_named=True)


def rejected(said: str) -> ProviderError:
    return rejected_with(400, {}, json.dumps({"error": {"message": said}}).encode(), 0.0, ENDPOINT)


def nonsense(said: str) -> ProviderError:
    return malformed(f"MCP has no {said!r} block here", ENDPOINT)


def reported(said: str) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        read_object(json.dumps({"error": {"message": said}}).encode(), ENDPOINT)
    return caught.value


every_failure = pytest.mark.parametrize("failure", [rejected, nonsense, reported])


@every_failure
def test_the_words_of_an_api_are_cut_off(failure: Callable[[str], ProviderError]) -> None:
    assert len(str(failure("x" * 10_000))) == MAX_EXCERPT


@every_failure
def test_no_part_of_a_key_is_shown_also_where_the_words_are_cut_off(failure: Callable[[str], ProviderError]) -> None:
    texts = [str(failure(f"{'x' * before}{KEY} is no key")) for before in range(MAX_EXCERPT)]
    assert HIDDEN in texts[0]
    assert [text for text in texts if KEY[:4] in text] == []


def test_the_failures_of_providers_are_listed_with_those_that_are_tried_again() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \|.*\| (yes|no) \|$", Page("providers").text, re.MULTILINE)
    assert {name: again == "yes" for name, again in rows} == {kind.name: kind in PASSING for kind in ProviderErrorKind}
    assert all(ProviderError("x", kind=kind).public_text for kind in ProviderErrorKind)
