"""An hour of chaos on each store: several processes, and everything goes wrong. No effect happens twice, none is lost unreported.

`--chaos-seconds` says for how long, and `--chaos-seed` which run to begin with.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.runs import runs
from chaos.stores import STORES

SECONDS = 3600.0


# httpx2 leaves generators to the collector when a stream breaks off: its own, and those of httpcore2.
@pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning")
@pytest.mark.parametrize("store", STORES)
def test_no_effect_happens_twice_and_none_is_lost_unreported(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    runs(tmp_path, request.config, store, SECONDS)
