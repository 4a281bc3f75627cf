"""Processes whose keys differ, on a real server: the second one does not start, and the error names the keys."""

from __future__ import annotations

import base64
import os
import secrets
import sys
from pathlib import Path

import pytest
import trio
from serving import HttpProcess

SCRIPT = Path(__file__).with_name("order_server.py")
BOUND = 60


def key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


async def test_a_process_with_other_keys_does_not_start_and_the_error_names_them(store: str, tmp_path: Path) -> None:
    imports, ours, theirs = os.pathsep.join(sys.path), key(), key()
    processes = [
        HttpProcess(SCRIPT, TRIO_MCP_STORE=store, TRIO_MCP_KEYS=keys, FOLDER=str(tmp_path), PYTHONPATH=imports)
        for keys in (ours, theirs, f"{theirs},{ours}")
    ]
    first, stranger, both = processes
    with trio.fail_after(BOUND):
        try:
            await first.start()
            with pytest.raises(AssertionError, match="TRIO_MCP_KEYS"):
                await stranger.start()
            # One that is about to change the key has both.
            await both.start()
        finally:
            for each in processes:
                await each.kill()


async def test_the_command_with_other_keys_ends_with_an_error_of_the_configuration(store: str, tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text("from trio_mcp import Server\n\nserver = Server('shop')\n")
    command = [sys.executable, "-m", "trio_mcp.cli", "serve", str(file), "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TRIO_MCP_STORE": store}
    first = HttpProcess(
        SCRIPT, TRIO_MCP_STORE=store, TRIO_MCP_KEYS=key(), FOLDER=str(tmp_path), PYTHONPATH=environment["PYTHONPATH"]
    )
    with trio.fail_after(BOUND):
        try:
            await first.start()
            stranger = await trio.run_process(
                command, env={**environment, "TRIO_MCP_KEYS": key()}, capture_stderr=True, check=False
            )
        finally:
            await first.kill()
    said = stranger.stderr.decode()
    assert (stranger.returncode, "TRIO_MCP_KEYS" in said, "a bug" in said) == (3, True, False), said
