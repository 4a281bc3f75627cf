"""Whatever a peer sends, in either role: valid answers, others are served, every call ends, and nothing is left behind.

`make test` tries one batch of cases in each role, always the same one. `make fuzz` tries new ones for `FUZZ_SECONDS`.
"""

from __future__ import annotations

from random import SystemRandom

import pytest
from fuzzing import ROLES, Case, fuzz, run
from regressions import REGRESSIONS


@pytest.mark.parametrize("case", REGRESSIONS.values(), ids=REGRESSIONS)
def test_what_broke_a_rule_once_breaks_none(case: Case) -> None:
    run(case)


@pytest.mark.parametrize("role", ROLES)
def test_a_hostile_peer_breaks_no_rule(role: str, request: pytest.FixtureRequest, tried: list[str]) -> None:
    seconds = request.config.getoption("--fuzz-seconds") / len(ROLES)
    first_seed = SystemRandom().randrange(2**32) if seconds else 0
    tally = fuzz(role, first_seed, seconds)
    tried.append(f"fuzzed {role}, seed {first_seed}: {tally}")
