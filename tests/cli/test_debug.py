"""What --debug changes in a server that the command line starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_mcp.cli.connecting import started
from trio_mcp.cli.targets.loading import load_server
from trio_mcp.cli.targets.target import PythonTarget

FILE = """
from trio_mcp import Server, ServiceOptions

server = Server("shown", options=ServiceOptions(tell_errors={}))
"""


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Loading a file puts its folder on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize(
    ("option", "debug", "shown"), [(None, True, True), (None, False, None), (False, True, False), (True, False, True)]
)
def test_errors_are_shown_with_debug_unless_the_server_forbids_it(
    tmp_path: Path, option: bool | None, debug: bool, shown: bool | None
) -> None:
    file = tmp_path / "shown.py"
    file.write_text(FILE.format(option))
    assert load_server(str(file), tell_errors=debug).options.tell_errors is shown


@pytest.mark.parametrize("debug", [True, False])
def test_a_file_that_is_called_is_served_with_debug_too(tmp_path: Path, debug: bool) -> None:
    file = tmp_path / "shown.py"
    file.write_text(FILE.format(None))
    assert ("--debug" in started(PythonTarget(file), debug=debug).words) is debug
