"""The code of docs/sweep.md does what the page says."""

from __future__ import annotations

import re
from typing import Any

from serving import ROOT

from trio_mcp.testing.sweep import Way

PAGE = (ROOT / "docs" / "sweep.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_code_of_the_page_runs_and_its_tool_survives() -> None:
    names: dict[str, Any] = {"__name__": "sweep_page"}
    for block in BLOCKS:
        exec(block, names)
    names["test_buying_survives_a_cancel_anywhere"]()
    assert names["report"].problems == ()


def test_the_page_names_every_way() -> None:
    assert re.findall(r"\| `Way\.(\w+)`", PAGE) == [way.name for way in Way]
