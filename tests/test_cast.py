"""The picture of the demonstration: what a page needs that shows it as an image."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "demo.svg"
TEXT = PICTURE.read_text(encoding="utf-8")
SVG = "{http://www.w3.org/2000/svg}"


def shown() -> str:
    """The lines of the terminal, one below the other."""
    lines: dict[str, list[str]] = {}
    for text in ET.fromstring(TEXT).iter(f"{SVG}text"):
        lines.setdefault(str(text.get("y")), []).append(text.text or "")
    return "\n".join(" ".join(parts) for parts in lines.values())


def test_it_loads_nothing_and_runs_nothing() -> None:
    root = ET.fromstring(TEXT)
    assert {element.tag.removeprefix(SVG) for element in root.iter()}.isdisjoint(
        {"script", "image", "use", "a", "foreignObject"}
    )
    assert re.findall(r"@import|@font-face|https?://(?!www\.w3\.org/2000/svg)", TEXT) == []
    assert set(re.findall(r"url\((.)", TEXT)) == {"#"}


def test_it_is_small_and_holds_still_for_who_asks_for_that() -> None:
    assert PICTURE.stat().st_size < 300_000
    assert "prefers-reduced-motion" in TEXT


def test_it_begins_with_a_full_frame_and_lasts_fifteen_seconds() -> None:
    assert set(re.findall(r"animation: \w+ ([\d.]+)s", TEXT)) == {"15.0"}
    assert 'class="cover"' not in TEXT, "nothing hides the first lines"
    first = re.search(r"@keyframes scroll \{ 0%\{transform:none\}([\d.]+)%", TEXT)
    assert first is not None
    assert float(first[1]) > 5, "they can be seen before they move"


def test_it_shows_what_the_demonstration_shows() -> None:
    lines = shown()
    for part in (
        "$ trio-mcp demo",
        "It is called by a legacy client (2025-11-25)",
        "The same tool, called by a modern client (2026-07-28)",
        "'Booked TP3 to Lisbon, aisle seat.'",
        "branch 1 advertise: waits for the model (sample)",
        "$ python examples/report.py demo",
        "What was done, each once:",
    ):
        assert part in lines
