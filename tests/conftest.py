"""What several test folders share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from spec_schemas import MISSING, SPEC_DIR

# How long an example takes says something about the machine, and nothing about the rule.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")


@pytest.fixture(scope="session")
def spec_dir() -> Path:
    """The folder with the specification's schema files and examples, one folder for each revision."""
    if not SPEC_DIR.is_dir():
        pytest.skip(MISSING)
    return SPEC_DIR
