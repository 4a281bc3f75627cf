"""The report, called in this process in both eras, and its demonstration: a server that is killed twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio
from serving import ROOT

import examples.report
from trio_mcp import Client, ServiceOptions, accept


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(examples.report, "PACE", 0.0)
    monkeypatch.setattr(examples.report, "FOLDER", tmp_path)


@pytest.mark.parametrize(("published", "place"), [(True, "the library"), (False, "the drawer")])
async def test_a_report_is_filed_where_its_user_says(mode: str, published: bool, place: str) -> None:
    server = examples.report.server.copy(options=ServiceOptions())
    with trio.fail_after(10):
        async with Client.connect(server, mode=mode, on_elicit=lambda _: accept(value=published)) as client:
            result = await client.call_tool("report", {"topic": "tides"}, task=True)
    assert place in result.text


def test_the_demonstration_does_each_thing_once() -> None:
    command = [sys.executable, str(ROOT / "examples" / "report.py"), "demo"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    assert done.stdout.count("kill -9 ") == 2
    _, effects = done.stdout.split("What was done, each once:\n")
    done_once = [f"read {source}" for source in examples.report.SOURCES]
    assert [line.strip() for line in effects.splitlines()][:-1] == done_once
    assert "filed the report" in effects
