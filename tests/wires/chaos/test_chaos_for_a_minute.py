"""A minute of what `tests/long/test_chaos.py` does for an hour, in runs that may go on side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.runs import RUN_SECONDS, runs

MINUTE = 60.0


# httpx2 leaves generators to the collector when a stream breaks off: its own, and those of httpcore2.
@pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning")
@pytest.mark.parametrize("run", range(1, 1 + int(MINUTE / RUN_SECONDS)))
def test_no_effect_happens_twice_and_none_is_lost_unreported(
    run: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    runs(tmp_path, request.config, RUN_SECONDS)
