"""The application of docs/asyncio.md in FastAPI on uvicorn, as a newcomer has it: the official SDK's client, and our command."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from os import environ
from pathlib import Path

import pytest
import trio
from asgi_peer import JSON_HEADERS, modern_call
from fastapi.testclient import TestClient
from official import QUIET, User, accepting, client_of, only_text
from pages import Page
from serving import IMPORTS, child

BOUND = 60.0
SERVE = """
import socket, uvicorn

with socket.create_server(("127.0.0.1", 0)) as listening:
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/tools/mcp", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
"""

pytestmark = QUIET


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[str]:
    """Serve the application of the page in a process; yield the URL of its server."""
    blocks = [block for block in Page("asyncio").blocks if "__main__" not in block]
    script = folder / "app.py"
    script.write_text("\n\n".join([*blocks, SERVE]))
    async with child(script, limit=BOUND, strict=False) as host:
        yield (await host.line()).decode()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_client_of_the_official_sdk_answers_a_question(mode: str, tmp_path: Path) -> None:
    user = User(accepting(value="yes"))
    async with served(tmp_path) as url:
        async with client_of(url, mode, elicitation_callback=user.elicit) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["order"]
            result = await client.call_tool("order", {"item": "lamp"})
    assert (only_text(result), [each.message for each in user.asked]) == ("Ordered.", ["Pay 4 for the lamp?"])


async def test_the_command_of_the_page_calls_the_tool(tmp_path: Path) -> None:
    # The first asks at the terminal.
    *_, line = [line for line in Page("asyncio").text.splitlines() if line.startswith("trio-mcp call ")]
    _, *words = line.split()
    async with served(tmp_path) as url:
        words = [url if word.startswith("http") else word for word in words]
        command = [sys.executable, "-m", "trio_mcp", *words]
        done = await trio.run_process(command, capture_stdout=True, env={**environ, **IMPORTS})
    assert done.stdout.decode().strip() == "Ordered."


def test_a_test_client_finds_the_server_under_an_allowed_name(tmp_path: Path) -> None:
    (sentence,) = re.findall(r"`TestClient\(app, base_url=\"(.*?)\"\)`", Page("asyncio").text)
    with TestClient(Page("asyncio").run()["app"], base_url=sentence) as http:
        body, headers = modern_call("order", {"item": "lamp"})
        del headers["host"]
        asked = http.post("/tools/mcp", json=body, headers={**JSON_HEADERS, **headers})
        assert "Pay 4 for the lamp?" in asked.text
        assert http.post("http://testserver/tools/mcp", json=body, headers=headers).status_code == 421
