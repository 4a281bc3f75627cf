"""The program of docs/fastmcp.md runs, and what the page says is there, is."""

from __future__ import annotations

import re

import pytest
from pages import Names, Page

import trio_mcp
from trio_mcp import Context, Server, decline
from trio_mcp.testing import MockClient

PAGE = Page("fastmcp")


@pytest.fixture
def page() -> Names:
    return PAGE.run()


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_tool_of_the_page_asks(page: Names, era: str) -> None:
    client = MockClient(elicits=[{"weeks": 2}], samples=["A comedy."], era=era)
    assert (await client.call(page["borrow"], number="1")).text == "2 weeks. A comedy."
    assert (await MockClient(elicits=[decline()], era=era).call(page["borrow"], number="1")).text.startswith("Nothing")
    assert (await MockClient(era=era).call(page["borrow"], number="7")).is_error


def test_the_members_that_the_tables_name_exist() -> None:
    cells = [row.split("|")[2] for row in re.findall(r"^\|.*\|.*\|$", PAGE.text, re.MULTILINE)]
    ours = " ".join(cells)
    members = {("ctx", name) for name in re.findall(r"`ctx\.(\w+)", ours)}
    members |= {("server", name) for name in re.findall(r"`@?server\.(\w+)", ours)}
    assert len(members) > 12
    missing = [(owner, name) for owner, name in members if not hasattr(Context if owner == "ctx" else Server, name)]
    exported = {name for name in re.findall(r"`([A-Z]\w+)`", ours) if not hasattr(trio_mcp, name)}
    assert (missing, exported - {"MockClient", "Loan"}) == ([], set())
