"""README.md is one screen that reads well on PyPI, where it has no files beside it."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from types import ModuleType

import pytest
from pages import main
from readme_renderer import markdown
from serving import ROOT

from trio_mcp import Server, decline
from trio_mcp.testing import MockClient

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
TARGETS = re.findall(r"\]\(([^)]*)\)", TEXT) + re.findall(r'(?:src|href|srcset)="([^"]*)"', TEXT)
OF_FILES = (f"{REPOSITORY}/blob/main/", REPOSITORY.replace("github.com", "raw.githubusercontent.com") + "/main/")


def test_it_is_one_screen() -> None:
    assert len(TEXT.splitlines()) <= 85


def test_no_link_is_relative() -> None:
    assert TARGETS
    assert [target for target in TARGETS if not target.startswith("https://")] == []


def test_every_link_into_the_repository_is_of_a_file_that_is_there() -> None:
    paths = [target.removeprefix(start) for target in TARGETS for start in OF_FILES if target.startswith(start)]
    assert len(paths) >= 5
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    of_repository = [target for target in TARGETS if REPOSITORY.partition("://")[2].partition("/")[2] in target]
    assert len(of_repository) == len(paths)


def test_pypi_renders_it() -> None:
    page = markdown.render(TEXT)
    assert page is not None
    assert "<h1" in page
    assert "<pre" in page


@pytest.fixture
def server() -> Server:
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    # A module that can be imported by its name, because annotations are evaluated in it later.
    module = sys.modules["readme"] = ModuleType("readme")
    exec(compile(block, "README.md", "exec", dont_inherit=True), vars(module))
    found = vars(module)["server"]
    assert isinstance(found, Server)
    return found


async def test_its_server_asks_in_both_eras(server: Server, mcp_era: str) -> None:
    asked = MockClient(elicits=["window"], era=mcp_era)
    assert (
        await asked.call((server, "book_flight"), destination="Lisbon")
    ).text == "Booked a seat at the window to Lisbon."
    declined = MockClient(elicits=[decline()], era=mcp_era)
    assert (await declined.call((server, "book_flight"), destination="Lisbon")).text == "Nothing was booked."


def test_its_commands_are_ones_that_there_are() -> None:
    commands = re.findall(r"^trio-mcp (.*)$", TEXT, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        assert main([*shlex.split(command), "--help"]) == 0


def test_its_targets_of_make_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    names = re.findall(r"`make ([\w-]+)`", TEXT)
    assert names == ["demo", "test"]
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in names)
