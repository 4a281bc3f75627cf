"""`trio-mcp dev` under hundreds of saves: no call fails, no lifespan stays open, and no process is left."""

from __future__ import annotations

from pathlib import Path

from developing import save_under_load, write_project


async def test_three_hundred_saves_under_four_clients_that_call_without_a_pause_fail_no_call(tmp_path: Path) -> None:
    await save_under_load(write_project(tmp_path), 300)
