"""`tests/bench/plot.py`: the picture, where matplotlib is installed, as `make bench` does."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install -e '.[bench]'")

from bench.plot import INK, multiples, svg

RATIOS = {
    "stdio-1": {"floor": 2.0, "mcp": 0.25, "ts": 0.5},
    "http-legacy-16": {"floor": 1.2, "hypercorn": 0.4, "mcp": 0.1},
    "big-modern": {"mcp": 0.5},
}


def test_each_column_is_a_multiple_of_the_floor() -> None:
    assert multiples(RATIOS) == {
        "stdio-1": pytest.approx({"trio_mcp": 2.0, "mcp": 8.0, "ts": 4.0}),
        "http-legacy-16": pytest.approx({"trio_mcp": 1.2, "hypercorn": 3.0, "mcp": 12.0}),
    }


def test_the_same_figures_give_the_same_picture() -> None:
    assert svg(RATIOS) == svg(RATIOS)


def test_other_figures_give_another_picture() -> None:
    assert svg(RATIOS) != svg({**RATIOS, "stdio-1": {"floor": 3.0}})


def test_the_picture_names_workloads_and_columns_as_text() -> None:
    texts = {element.text for element in ET.fromstring(svg(RATIOS)).iter("{http://www.w3.org/2000/svg}text")}
    assert {"stdio-1", "http-legacy-16", "trio_mcp", "floor", "mcp"} <= texts


def test_the_picture_has_no_date_no_background_and_the_colours_of_its_reader() -> None:
    picture = svg(RATIOS)
    assert "dc:date" not in picture
    assert "#ffffff" not in picture
    assert INK not in picture
    assert "prefers-color-scheme: dark" in picture
