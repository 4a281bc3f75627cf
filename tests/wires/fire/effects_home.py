"""The folder of `effects_server.py`: how it is served, and the effects that were had."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from wire_terms import MODERN, NEWEST_LEGACY

SERVER = Path(__file__).with_name("effects_server.py")
BOUND = 60.0
ERAS = (NEWEST_LEGACY, MODERN)

eras = pytest.mark.parametrize("mode", ERAS)


def command(home: Path) -> list[str]:
    home.mkdir(exist_ok=True)
    return [sys.executable, str(SERVER), str(home)]


def effects(home: Path) -> list[str]:
    path = home / "effects"
    return path.read_text().splitlines() if path.exists() else []
