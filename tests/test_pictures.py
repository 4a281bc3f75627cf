"""The pictures of the documentation are those that their sources make."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
SOURCES = sorted(PICTURES.glob("*.d2"))
RECORDED = [PICTURES / "demo.svg", PICTURES / "dashboard.svg"]  # by cast.py and dashboard.py


def test_every_picture_has_a_source() -> None:
    assert SOURCES
    assert sorted(PICTURES.glob("*.svg")) == sorted([*RECORDED, *(source.with_suffix(".svg") for source in SOURCES)])


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_picture_was_rendered_from_the_source_that_is_there(source: Path) -> None:
    digest = sha256(source.read_bytes()).hexdigest()
    assert digest in source.with_suffix(".svg").read_text("utf-8").split("\n", 1)[0]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_picture_follows_light_and_dark_and_loads_nothing(source: Path) -> None:
    text = source.with_suffix(".svg").read_text("utf-8")
    assert "prefers-color-scheme:dark" in text.replace(" ", "")
    assert "url(http" not in text
    assert 'href="http' not in text
