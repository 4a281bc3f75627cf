"""The recipes of docs/agents.md for agents of other frameworks work, with their current versions, in the process of each."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import Page
from processes import over_http

BOUND = 60.0
SERVER = """
from trio_mcp import Server

server = Server("shop")


@server.tool
def stock() -> dict[str, int]:
    return {"lamp": 3}
"""
PYDANTIC_AI, LANGCHAIN = re.findall(r"```py\n(.*?)```", Page("agents").text, re.DOTALL)
PROGRAMS = {
    "pydantic-ai": f"""{PYDANTIC_AI}
import asyncio, sys
from pydantic_ai.models.test import TestModel
print(asyncio.run(ask_with_pydantic_ai(TestModel(call_tools="all"), sys.argv[1])))
""",
    "LangChain": f"""{LANGCHAIN}
import asyncio, sys

async def main(url):
    async with MCPAdapter(url) as adapter:
        (tool,) = await adapter.list_tools()
        print(tool.name, await tool.ainvoke({{}}))

assert [tool.name for tool in asyncio.run(tools_for_langchain(sys.argv[1]))] == ["stock"]
asyncio.run(main(sys.argv[1]))
""",
}


@pytest.mark.parametrize("framework", PROGRAMS)
def test_an_agent_of_another_framework_calls_a_tool(framework: str, frameworks_python: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SERVER)
    (tmp_path / "agent.py").write_text(PROGRAMS[framework])
    with over_http([sys.executable, "-m", "trio_mcp", "serve", str(tmp_path / "shop.py"), "--port", "0"]) as url:
        command = [frameworks_python, str(tmp_path / "agent.py"), url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)
    assert done.returncode == 0, done.stderr
    assert "stock" in done.stdout
    assert "lamp" in done.stdout
