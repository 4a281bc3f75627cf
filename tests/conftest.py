"""What several test folders share."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_schemas import MISSING, SPEC_DIR


@pytest.fixture(scope="session")
def spec_dir() -> Path:
    """The folder with the specification's schema files and examples, one folder for each revision."""
    if not SPEC_DIR.is_dir():
        pytest.skip(MISSING)
    return SPEC_DIR
