"""What several tests of transports are given."""

from __future__ import annotations

from pathlib import Path

import pytest
from certificates import make_certificate


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate and its key in one PEM file."""
    return make_certificate(tmp_path / "both.pem")
