"""What the code of docs/asyncio.md does in asyncio; the errors on the page are those of the code."""

from __future__ import annotations

import asyncio
import re
import tomllib

from pages import Page, sources
from serving import ROOT

from trio_mcp import Client, accept
from trio_mcp.session.event_loop import ASYNCIO_ERRORS, PAGE as ADVICE, TRIO_ERRORS

PAGE = Page("asyncio")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BOUND = 20.0


def test_the_advice_for_asyncio_leads_to_this_page_without_a_clone() -> None:
    folder = PROJECT["urls"]["Documentation"].removesuffix("index.md")
    assert f"{folder}{PAGE.name}.md" == ADVICE


def test_programs_of_asyncio_and_without_async_use_a_client() -> None:
    page = PAGE.run()
    assert asyncio.run(page["ask_prices"](["lamp", "table"])) == ["4", "5"]
    assert page["price_of"]("lamp") == "4"


def test_a_mounted_server_uses_what_its_host_has_opened(mcp_era: str) -> None:
    page = PAGE.run()

    async def main() -> str:
        async with page["open_app"](page["app"]):
            async with Client.connect(
                page["orders"], mode=mcp_era, on_elicit=lambda asked: accept(value="yes")
            ) as client:
                return (await client.call_tool("order", {"item": "lamp"})).text

    assert asyncio.run(asyncio.wait_for(main(), BOUND)) == "Ordered."


ERRORS = PAGE.text.partition("## Errors")[2]


OTHERS = (
    "trio._core._run",
    "uvicorn.server",
    *(f"asyncio.{name}" for name in ["timeouts", "taskgroups", "runners", "events", "tasks"]),
)
"""Modules of others that raise some of them."""
BY_PYTHON = ("'RunContext' object has no attribute", "'NoneType' object has no attribute")
"""Texts of the interpreter itself."""


def test_the_errors_of_the_page_are_raised_by_the_code() -> None:
    source = sources(*OTHERS).replace("{what}", "tool").replace("{library}", "asyncio")
    quoted = re.findall(
        r"`([^`]+)`", " ".join(line.split(" | ")[0] for line in ERRORS.splitlines() if line[:2] == "| ")
    )
    texts = [re.sub(r"^\w+Error: ", "", quote) for quote in quoted]
    pieces = [
        piece
        for text in texts
        for piece in re.split(r" ?\.\.\. ?|'example\.com'|/tools/(?:mcp\.)?", text)
        if len(piece) > 3
    ]
    missing = [piece for piece in pieces if piece not in source and not piece.startswith(BY_PYTHON)]
    assert missing == []
    assert len(pieces) > 20


def test_the_errors_of_the_code_are_on_the_page() -> None:
    known = [text for _, text in (*ASYNCIO_ERRORS, *TRIO_ERRORS)]
    assert [text for text in known if text not in " ".join(ERRORS.split())] == []
