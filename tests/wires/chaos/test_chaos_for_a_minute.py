"""A minute on each store of what `tests/long/test_chaos.py` does for an hour, in runs that may go on side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.runs import RUN_SECONDS, runs
from chaos.stores import STORES

MINUTE = 60.0


# httpx2 leaves generators to the collector when a stream breaks off: its own, and those of httpcore2.
@pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning")
@pytest.mark.parametrize("run", range(1, 1 + int(MINUTE / RUN_SECONDS)))
@pytest.mark.parametrize("store", STORES)
def test_no_effect_happens_twice_and_none_is_lost_unreported(
    store: str, run: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    runs(tmp_path, request.config, store, RUN_SECONDS)
