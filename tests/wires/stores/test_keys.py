"""Processes whose keys differ, on a real server: the second one does not start, and the error names the keys."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio
from orders import BOUND, new_key, process_of


async def test_a_process_with_other_keys_does_not_start_and_the_error_names_them(store: str, tmp_path: Path) -> None:
    ours, theirs = new_key(), new_key()
    first, stranger, both = (process_of(store, tmp_path, keys) for keys in (ours, theirs, f"{theirs},{ours}"))
    file = tmp_path / "app.py"
    file.write_text("from trio_mcp import Server\n\nserver = Server('orders')\n")
    command = [sys.executable, "-m", "trio_mcp.cli", "serve", str(file), "--port", "0"]
    with trio.fail_after(BOUND):
        async with AsyncExitStack() as stack:
            for each in (first, stranger, both):
                stack.push_async_callback(each.kill)
            await first.start()
            with pytest.raises(AssertionError, match="TRIO_MCP_KEYS"):
                await stranger.start()
            # One that is about to change the key has both.
            await both.start()
            ended = await trio.run_process(command, env=stranger.environment, capture_stderr=True, check=False)
    # For the command it is an error of the configuration.
    said = ended.stderr.decode()
    assert (ended.returncode, "TRIO_MCP_KEYS" in said, "a bug" in said) == (3, True, False), said
