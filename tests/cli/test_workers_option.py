"""The number of workers that a command is given."""

from __future__ import annotations

import sys

import pytest

from trio_mcp.cli.command import CommandError
from trio_mcp.cli.workers import check_many


def test_on_windows_workers_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(CommandError, match="--workers is for Unix"):
        check_many(2)
