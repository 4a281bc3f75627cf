"""Every block of Python on every page runs, and every command line is one that `trio-mcp` has.

What the code of a page does is the matter of the page's own test. This one finds a page, or a block, that
nothing runs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click
import pytest
from pages import Page

from trio_mcp.cli.program import MODULES, program

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md"))

NOT_ONE_PROGRAM = re.compile(r"tutorial/.*")
"""The tutorial changes one file step by step: tests/test_docs_tutorial.py puts it together, and tests/wires/docs runs it."""

FENCE = re.compile(r"^( *)```+ *([^\n`]*)$", re.MULTILINE)
LANGUAGES = {"console", "dockerfile", "ini", "js", "json", "nginx", "python", "sh", "text", "toml", "yaml"}
FRAGMENTS = {
    "agents": {"py": "of other frameworks, which tests/wires/interop/test_frameworks.py runs"},
    "asyncio": {"py": "of other frameworks, which tests/wires/interop/test_frameworks.py and test_django.py run"},
    "fastmcp": {"py": "a server of FastMCP, beside what each line becomes"},
}
"""Blocks that no test runs, and why."""

SHELL = re.compile(r"^```(sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:\w+=\S+ +)*(?:\S+/)?trio-mcp +")


def with_python() -> list[str]:
    return [name for name in PAGES if Page(name).blocks and not NOT_ONE_PROGRAM.fullmatch(name)]


@pytest.mark.parametrize("name", PAGES)
def test_every_block_names_a_language_that_a_test_looks_for(name: str) -> None:
    opening = FENCE.findall(Page(name).text)[::2]
    known = LANGUAGES | set(FRAGMENTS.get(name, ()))
    assert [f"{indent}{language}" for indent, language in opening if indent or language not in known] == []


@pytest.mark.parametrize("name", with_python())
def test_the_blocks_of_a_page_are_one_program(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # The clients of models ask for a key before they connect, which no page does.
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    monkeypatch.chdir(tmp_path)
    page = Page(name)
    page.run()
    assert len(page.blocks) == page.text.count("```python\n")


# command lines


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each `trio-mcp` in the blocks for shells."""
    for language, block in SHELL.findall(text):
        typed = block.replace("\\\n", " ").splitlines()
        if language == "console":  # the other lines are printed
            typed = [line.removeprefix("$ ") for line in typed if line.startswith("$ ")]
        for line in typed:
            if call := COMMAND.match(line):
                yield shlex.split(line[call.end() :], comments=True)


def parse(arguments: list[str]) -> None:
    """Parse a command line as `trio-mcp` does, without running the command."""
    for end in (">", "|", "&&", "&"):
        arguments = arguments[: arguments.index(end)] if end in arguments else arguments
    context = click.Context(program)
    command: click.Command = program
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name, found, arguments = command.resolve_command(context, arguments)
        command = cast("click.Command", found)
        context = click.Context(command, parent=context, info_name=name)
    command.make_parser(context).parse_args(arguments)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *(DOCS / f"{name}.md" for name in PAGES)], ids=lambda page: page.stem
)
def test_every_command_line_has_a_command_and_options_that_exist(page: Path) -> None:
    for arguments in command_lines(page.read_text("utf-8")):
        try:
            parse(arguments)
        except click.UsageError as error:
            pytest.fail(f"trio-mcp {shlex.join(arguments)}: {error.format_message()}")


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *(DOCS / f"{name}.md" for name in PAGES)], ids=lambda page: page.stem
)
def test_every_command_that_a_sentence_names_exists(page: Path) -> None:
    named = re.findall(r"`trio-mcp ([a-z][\w-]*)", page.read_text("utf-8"))
    assert sorted(set(named) - set(MODULES)) == []
