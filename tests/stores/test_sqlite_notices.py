"""Notices between the processes that use one SQLite file: where their sockets are. The contract tests the rest."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio

from trio_mcp.stores import Notice, sqlite_notices
from trio_mcp.stores.sqlite_notices import Notices, send


async def receive_one(folder: Path) -> Notice:
    with Notices(folder) as notices:
        send(folder, b"topic\0content")
        with trio.fail_after(5):
            found = await anext(notices)
    assert isinstance(found, Notice)
    return found


async def test_a_folder_with_a_short_path_needs_nothing_that_only_linux_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_notices, "DESCRIPTORS", "/nowhere")
    with TemporaryDirectory(dir="/tmp") as folder:
        assert await receive_one(Path(folder) / "nodes") == Notice("topic", b"content")


async def test_a_folder_may_have_a_path_that_is_too_long_for_the_address_of_a_socket(tmp_path: Path) -> None:
    assert await receive_one(tmp_path / ("long" * 40)) == Notice("topic", b"content")
