"""A minute of what `tests/long/test_chaos.py` does for an hour."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.runs import runs

SECONDS = 60.0


def test_no_effect_happens_twice_and_none_is_lost_unreported(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    runs(tmp_path, request.config, SECONDS)
