"""How `make lint` finds what has grown: `tests/bench/house.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent / "bench"
sys.path.append(str(BENCH))

import house  # noqa: E402


def test_what_grows_and_what_is_new_is_named() -> None:
    allowed = {"code": {"a": 10, "b": 10}}
    assert house.grown({"code": {"a": 10, "b": 9}}, allowed) == []
    assert house.grown({"code": {"a": 11, "c": 1}}, allowed) == ["code: a: 11 instead of 10", "code: c: 1 instead of 0"]


@pytest.mark.parametrize(
    "raised",
    ['what = "code: a"\nby = 5', 'what = "code: a"\nby = 5\nwhy = " "', 'what = "cod: a"\nby = 5\nwhy = "it is read"'],
)
def test_a_limit_is_raised_with_a_reason_and_by_its_name(
    raised: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "house.toml"
    file.write_text(f'[code]\n"a" = 10\n\n[[raised]]\n{raised}\n')
    monkeypatch.setattr(house, "FILE", file)
    with pytest.raises(ValueError, match=file.name):
        house.limits()
    file.write_text('[code]\n"a" = 10\n\n[[raised]]\nwhat = "code: a"\nby = 5\nwhy = "it is read"\n')
    assert house.limits() == {"code": {"a": 15}}


@pytest.mark.parametrize(
    ("folder", "line", "counted"),
    [
        ("session", "from trio_mcp.session.pump import Pump", []),
        ("wires/session", "import trio_mcp.session.pump", []),
        ("contract", "from trio_mcp.testing import mock", []),
        ("wires/transports", "import trio_mcp_transports.memory", []),
        ("transports", "from trio_mcp import Server, types", []),
        ("", "from trio_mcp.errors import ToolError", []),
        ("", "from trio_mcp.session import pump, received", ["trio_mcp.session.pump"]),
        ("server", "from trio_mcp.session.pump import Pump, closing", ["trio_mcp.session.pump"]),
        ("session", "def f():\n    import trio_mcp_transports.memory", ["trio_mcp_transports.memory"]),
    ],
)
def test_a_test_may_import_public_packages_and_its_own_room(
    folder: str, line: str, counted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tests" / folder / "test_it.py"
    file.parent.mkdir(parents=True)
    file.write_text(line)
    monkeypatch.setattr(house, "TESTS", tmp_path / "tests")
    assert house.foreign(file, house.packages()) == counted
