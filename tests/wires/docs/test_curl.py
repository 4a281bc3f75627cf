"""The calls with curl in docs/http.md work as they are printed."""

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
