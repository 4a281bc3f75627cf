"""The code of docs/sweep.md does what the page says."""

from __future__ import annotations

import re

from pages import Page

from trio_mcp.testing import Way

PAGE = Page("sweep")


def test_the_code_of_the_page_runs_and_its_tool_survives() -> None:
    names = PAGE.run()
    names["test_buying_survives_a_cancel_anywhere"]()
    assert names["report"].problems == ()


def test_the_page_names_every_way() -> None:
    assert re.findall(r"\| `Way\.(\w+)`", PAGE.text) == [way.name for way in Way]
