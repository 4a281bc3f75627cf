"""What the tests of the command line share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def loads_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test loads files below `tmp_path`, which are no modules afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name, module in [*sys.modules.items()]:
        file = str(getattr(module, "__file__", None) or sys.executable)
        # A file that was named by its path from the folder of the test is known by that.
        if file.startswith(str(tmp_path)) or not Path(file).is_absolute():
            del sys.modules[name]
