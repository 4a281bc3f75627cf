"""The calls with curl in docs/http.md and docs/rounds.md work as they are printed."""

from __future__ import annotations

import re
import shutil

import pytest
import trio
from pages import Page
from serving import START, served

PAGE = Page("http")
SCRIPTS = {
    "modern" if "2026-07-28" in block else "legacy": block
    for block in re.findall(r"```sh\n(.*?)```", PAGE.text, re.DOTALL)
    if "curl" in block
}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_tool_is_called_with_curl(era: str) -> None:
    names = PAGE.run()
    async with served(names["server"], authenticate=names["authenticate"]) as url:
        assert url.endswith("/mcp")
        script = SCRIPTS[era].replace("http://127.0.0.1:8000/mcp", url)
        with trio.fail_after(START):
            done = await trio.run_process(["/bin/sh", "-ec", script], capture_stdout=True)
    assert '"text":"alice"' in done.stdout.decode()


ROUNDS = Page("rounds")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_a_question_is_answered_with_curl() -> None:
    (script,) = (block for block in re.findall(r"```sh\n(.*?)```", ROUNDS.text, re.DOTALL) if "curl" in block)
    names = ROUNDS.run()
    async with served(names["server"]) as url:
        with trio.fail_after(START):
            script = script.replace("http://127.0.0.1:8000/mcp", url)
            done = await trio.run_process(["/bin/sh", "-ec", script], capture_stdout=True)
    printed = done.stdout.decode()
    assert '"message":"Charge 30 euros?"' in printed
    assert '"text":"Charged 30 euros."' in printed
    assert names["ledger"][-2:] == ["reserved 30", "charged 30"]
    shown = ROUNDS.text.partition("```text\n{")[2].partition("```")[0]
    assert [member for member in re.findall(r'"[\w-]+":', shown) if member not in printed] == []
