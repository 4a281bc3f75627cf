"""The tests of docs/testing.md pass, and the page names what the kit has."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pytest
from pages import Names, Page
from trio.testing import MockClock

from trio_mcp import Client
from trio_mcp.testing.mock.actions import ACTIONS

PAGE = Page("testing")
TESTS = re.findall(r"^(?:async )?def (test_\w+)", "\n".join(PAGE.blocks), re.MULTILINE)


@pytest.fixture(scope="module")
def page() -> Names:
    return PAGE.run()


def arguments(test: Callable[..., object], **fixtures: object) -> dict[str, object]:
    return {name: fixtures[name] for name in inspect.signature(test).parameters}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("name", TESTS)
async def test_each_test_of_the_page_passes(page: Names, name: str, era: str, autojump_clock: MockClock) -> None:
    test = page[name]
    async with Client.connect(page["server"], mode=era) as client:
        outcome = test(**arguments(test, mcp_era=era, mcp_client=client, autojump_clock=autojump_clock))
        if inspect.isawaitable(outcome):
            await outcome


def test_the_page_names_every_action() -> None:
    for action in ACTIONS:
        assert f"| `{action.__name__}(" in PAGE.text
