"""Every page is run and compared with the code; a page that is added is found, and a block that nothing runs as well.

- All blocks of Python on a page are one program, which runs.
- Its `main()` prints lines that are on the page, or those of `PRINTED`; its functions `test_...` and `check_...` pass.
- Its command lines have commands and options that exist, the tests and files that it names exist, its links lead somewhere.

What else a page says is a row in `test_page_calls.py` or `test_page_facts.py`; what fits no row has a test beside them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import click
import pytest
from pages import ALL, MODULES, Page, program, taken
from serving import ROOT

from trio_mcp import Client
from trio_mcp.testing import TestIssuer
from trio_mcp.testing.contract.rules import _RULES

NOT_ONE_PROGRAM = re.compile(r"tutorial/.*")
"""The tutorial changes one file step by step: test_tutorial.py beside this file puts it together and types its commands."""

FENCE = re.compile(r"^( *)```+ *([^\n`]*)$", re.MULTILINE)
LANGUAGES = {"console", "dockerfile", "ini", "js", "json", "nginx", "python", "sh", "text", "toml", "yaml"}
FRAGMENTS = {
    "agents": {"py": "of other frameworks, which tests/wires/interop/test_frameworks.py runs"},
    "asyncio": {"py": "of other frameworks, which tests/wires/interop/test_frameworks.py and test_django.py run"},
    "fastmcp": {"py": "a server of FastMCP, beside what each line becomes"},
}
"""Blocks that no test runs, and why."""

ELSEWHERE = {
    ("groups", "main"): "needs a file: test_pages_for_clients.py",
    ("scale", "main"): "needs a server: test_scale_page.py",
    ("internals/contract", "test_contract"): "runs every rule: tests/contract/test_contract_page.py",
}
"""Functions that are not called here, and why."""
ON_SOCKETS = {("testing", "test_a_tool_over_http")}

PRINTED: dict[str, list[str]] = {
    "cancellation": [
        ".*bake.*0.2 seconds.*",
        "1 run, 0 wait .*",
        "0 questions are open; 0 answers came late",
        "busy",
        "oven off: client",
    ],
    "composition": [r"\['local_write', 'far_write'\]", "There are 2 notes.", "notes://local/later"],
    "openapi": [
        r"\['list_pets', 'add_pet', 'get_pet'\]",
        "{'name': 'Rex'}",
        "4",
        "The API answered 404 Not Found.",
        '{"detail":"there is no pet 9"}',
    ],
    "results": ["2 2 {'result': 2} False", "wine", r"True \d{6}"],
    "servers": ["updated library://catalogue", "tools None", "user Recommend a funny book for my aunt."],
    "tool-search": [
        r"\['search_tools', 'call_tool', 'today'\]",
        r'{"tools":\[{"name":"book_room","description":[^{}]*,"inputSchema":{.*}}\],"total":1}',
        "Booked 2 nights in Lisbon.",
    ],
}
"""Patterns of the lines that the `main()` of a page prints, where they are not on the page."""


@pytest.fixture
def in_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # The clients of models ask for a key before they connect, which no page does.
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    monkeypatch.chdir(tmp_path)
    # The page on the contract adds a rule.
    monkeypatch.setattr("trio_mcp.testing.contract.rules._RULES", dict(_RULES))


# programs


@pytest.mark.parametrize("name", [name for name in ALL if Page(name).blocks and not NOT_ONE_PROGRAM.fullmatch(name)])
def test_the_blocks_of_a_page_are_one_program(name: str, in_folder: None) -> None:
    page = Page(name)
    page.run()
    assert len(page.blocks) == page.text.count("```python\n")


def functions() -> Iterator[Any]:
    """Every `main()`, test and check of a page; those that take an era are there for both."""
    for name in ALL:
        code = "" if NOT_ONE_PROGRAM.fullmatch(name) else "\n".join(Page(name).blocks)
        for function, parameters in re.findall(
            r"^(?:async )?def (main|(?:test|check)_\w+)\((.*?)\)", code, re.MULTILINE
        ):
            if (name, function) in ELSEWHERE or "ctx" in parameters:
                continue
            marks = [pytest.mark.wires] if (name, function) in ON_SOCKETS else []
            for era in ("legacy", "modern") if "mcp_" in parameters else ("modern",):
                yield pytest.param(name, function, era, id=f"{name}-{function}-{era}", marks=marks)


@pytest.mark.parametrize(("name", "function", "era"), [*functions()])
def test_what_a_page_lets_its_reader_run_does_what_it_says(
    name: str, function: str, era: str, in_folder: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Page(name)
    names = page.run()
    given = {"mcp_era": era, "autojump_clock": None, "issuer": TestIssuer(), "tmp_path": tmp_path}
    for mark in getattr(names[function], "pytestmark", ()):
        given |= {mark.args[0]: mark.args[1][0]}
    call = partial(names[function], **taken(names[function], given))
    if "mcp_client" in taken(names[function], {"mcp_client": None}):
        call = partial(with_client, names[function], names["server"], era)
    page.play(call)
    lines, expected = capsys.readouterr().out.splitlines(), PRINTED.get(name)
    if function == "main" and expected is None:
        assert [line for line in lines if line not in page.text] == []
    elif function == "main":
        assert len(lines) == len(expected or ())
        both = zip(lines, expected or (), strict=True)
        assert [(line, pattern) for line, pattern in both if not re.fullmatch(pattern, line)] == []


async def with_client(test: Callable[..., Any], server: object, era: str) -> None:
    async with Client.connect(server, mode=era) as client:
        await test(client)


# what a page names

SHELL = re.compile(r"^```(sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:\w+=\S+ +)*(?:\S+/)?trio-mcp +")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
ANCHOR = re.compile(r'<a id="([^"]+)">')
NAMED_TEST = re.compile(r"`(?:(?:tests/)?([\w/]+\.py)::)?(test_\w+)`")
NAMED_FILE = re.compile(r"`tests/([\w/]+\.py)(?:::\w+)?`")
WITH_TESTS = {"authorization": 10, "logins": 10, "oauth-proxy": 15, "contract": 1, "reliability": 50}
"""Pages that say which tests hold what they promise, and how many at least."""


@pytest.mark.parametrize(
    "path", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]), ids=lambda path: str(path.relative_to(ROOT))
)
def test_what_a_page_names_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    prose = FENCED.sub("", text)
    assert [*unknown_languages(path.stem, text)] == []
    assert [*wrong_command_lines(text)] == []
    assert sorted(set(re.findall(r"`trio-mcp ([a-z][\w-]*)", text)) - set(MODULES)) == []
    assert [*missing_tests(prose)] == []
    assert [*broken_links(path, prose)] == []
    assert len(NAMED_TEST.findall(prose)) >= WITH_TESTS.get(path.stem, 0)


def unknown_languages(name: str, text: str) -> Iterator[str]:
    """Yield the language of each block that no test looks for."""
    known = LANGUAGES | set(FRAGMENTS.get(name, ()))
    for indent, language in FENCE.findall(text)[::2]:
        if indent or language not in known:
            yield f"{indent}{language}"


def wrong_command_lines(text: str) -> Iterator[str]:
    """Yield each command line whose command or option does not exist."""
    for language, block in SHELL.findall(text):
        typed = block.replace("\\\n", " ").splitlines()
        if language == "console":  # the other lines are printed
            typed = [line.removeprefix("$ ") for line in typed if line.startswith("$ ")]
        for line in typed:
            if call := COMMAND.match(line):
                try:
                    parse(shlex.split(line[call.end() :], comments=True))
                except click.UsageError as error:
                    yield f"{line}: {error.format_message()}"


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


@cache
def defined() -> dict[str, frozenset[str]]:
    """The functions in each file of tests."""
    function = re.compile(r"^ *(?:async )?def (\w+)", re.MULTILINE)
    files = {path.relative_to(ROOT / "tests").as_posix(): path for path in (ROOT / "tests").rglob("*.py")}
    return {name: frozenset(function.findall(path.read_text("utf-8"))) for name, path in files.items()}


def missing_tests(prose: str) -> Iterator[str]:
    """Yield each test, and each file of tests, that is not there."""
    yield from (file for file in NAMED_FILE.findall(prose) if file not in defined())
    for file, test in NAMED_TEST.findall(prose):
        files = [path for path in defined() if f"/{path}".endswith(f"/{file}" if file else "")]
        if not any(test in defined()[path] for path in files):
            yield f"{file}::{test}"


def broken_links(page: Path, prose: str) -> Iterator[str]:
    """Yield each relative link that leads to no file, or to no heading or anchor in it."""
    for path, anchor in LINK.findall(prose):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield f"{path}#{anchor}"


@cache
def anchors(page: Path) -> set[str]:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return {slug(title) for title in HEADING.findall(text)} | set(ANCHOR.findall(text))


def slug(title: str) -> str:
    """Return the anchor that a forge gives to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_the_page_of_examples_lists_every_example() -> None:
    examples = [path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("**/*.py")]
    assert examples
    assert [path for path in examples if f"(../{path})" not in Page("examples").text] == []


def test_every_word_of_the_glossary_is_defined_once_and_both_lists_are_in_alphabetical_order() -> None:
    guides, code = Page("glossary").text.split("\n## ")[1:]
    lists = [re.findall(r"^### (.*)$", part, re.MULTILINE) for part in (guides, code)]
    assert all(lists)
    assert lists == [sorted(words, key=str.lower) for words in lists]
    words = [word for each in lists for word in each]
    assert len(words) == len(set(words))


def test_the_table_of_recipes_leads_to_each_and_each_is_short() -> None:
    page = Page("howto")
    linked = set(re.findall(r"\]\(#([\w-]+)\)", page.text.split("\n## ")[0]))
    assert {slug(title) for title in re.findall(r"^### (.*)$", page.text, re.MULTILINE)} - linked == set()
    apart = ("from ", "import ", "#", '    """')
    lengths = [
        len([line for line in block.splitlines() if line and not line.startswith(apart)]) for block in page.blocks
    ]
    assert max(lengths) <= 30
