"""Which versions of the files of a project were read, which have changed since, and what two versions of a server differ in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trio_mcp import Server
from trio_mcp.cli.dev.child import loaded
from trio_mcp.cli.dev.control import (
    Begin,
    Ending,
    Failed,
    Loaded,
    Message,
    Read,
    Replaced,
    Serving,
    changed_lists,
    decoded,
    encoded,
    new_declarations,
)
from trio_mcp.cli.dev.parent import shown
from trio_mcp.cli.dev.sources import SourceFiles, source_of
from trio_mcp.cli.targets.loading import OwnFiles, project_roots


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "app.py"
    file.write_text("one")
    return file


def noted(file: Path) -> SourceFiles:
    files = SourceFiles()
    files.begin()
    files.note(file, source_of(file))
    return files


def test_a_file_that_was_saved_again_has_changed(file: Path) -> None:
    files = noted(file)
    assert files.changed() == []
    file.write_text("three")
    assert files.changed() == [file]


def test_two_versions_with_the_same_stamp_are_distinguished_if_the_system_names_the_file(file: Path) -> None:
    files, status = noted(file), file.stat()
    file.write_text("two")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert files.changed() == []
    assert files.changed([file]) == [file]


def test_the_same_text_that_is_written_while_it_is_imported_is_no_change(file: Path) -> None:
    files = noted(file)
    os.utime(file, ns=(1, 1))
    files.settle()
    assert files.changed() == []


def test_a_file_that_an_attempt_does_not_read_counts_as_it_was_at_its_beginning_and_is_forgotten_after_success(
    file: Path, tmp_path: Path
) -> None:
    files, other = noted(file), tmp_path / "other.py"
    other.write_text("")
    file.write_text("broken")
    files.begin()
    assert files.changed() == []
    files.note(other, source_of(other))
    files.forget_unread()
    assert [*files.files] == [other]


def test_a_file_that_has_gone_has_changed(file: Path) -> None:
    files = noted(file)
    file.unlink()
    assert files.changed() == [file]


NOTING = """
import sys
from pathlib import Path
from trio_mcp.cli.dev.sources import note_sources
folder = Path(sys.argv[1])
sys.path.insert(0, sys.argv[1])
note_sources(lambda path: path.parent == folder, lambda path, source: print(path.name, source.digest[:4]))
import noted_link
import json.tool
"""


def test_each_source_of_the_project_is_noted_when_it_is_read_with_the_file_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "first.txt").write_text("VALUE = 1\n")
    (tmp_path / "noted_link.py").symlink_to(tmp_path / "first.txt")
    done = subprocess.run(
        [sys.executable, "-c", NOTING, str(tmp_path)], capture_output=True, text=True, timeout=30, check=True
    )
    digest = (source_of(tmp_path / "first.txt").digest or "")[:4]
    assert done.stdout.splitlines() == [f"first.txt {digest}", f"noted_link.py {digest}"]
    assert not (tmp_path / "__pycache__").exists()


MESSAGES: list[Message] = [
    Begin(announces=True, must_authenticate=False, path=None),
    Replaced(["tools"]),
    Read("/a.py", 1, 2, 3, "d"),
    Read("/a.py", None, 0, 0, None),
    Loaded({"tools": "d"}, ["tools"], {"name": "d"}, authenticates=True),
    Serving(["http://127.0.0.1:1/mcp"], is_sse=False),
    Failed("no", ["line"], is_final=True),
    Ending(3),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_read_as_it_was_written(message: Message) -> None:
    assert decoded(encoded(message)) == message


def offering(*tools: str, text: str = "", instructions: str | None = None) -> Loaded:
    server = Server("app", version="1", instructions=instructions)
    for name in tools:

        def tool() -> str:
            return ""

        server.add_tool(tool, name=name, description=text or None)
    return loaded(server)


def test_a_list_differs_by_what_its_clients_see_of_it() -> None:
    assert changed_lists(offering("a"), offering("a")) == []
    assert changed_lists(offering("a"), offering("b")) == ["tools"]
    assert changed_lists(offering("a"), offering("a", text="new")) == ["tools"]


def test_a_list_with_a_tool_that_some_callers_do_not_see_always_differs() -> None:
    def hidden() -> Loaded:
        server = Server("app", version="1")
        server.add_tool(lambda: "", name="secret", visible=lambda _caller: False)
        return loaded(server)

    assert changed_lists(hidden(), hidden()) == ["tools"]


def test_what_legacy_clients_read_once_is_named_when_it_differs() -> None:
    assert new_declarations(offering("a").declared, offering("a").declared) == []
    assert new_declarations(offering("a").declared, offering("a", instructions="Read.").declared) == ["instructions"]
    with_prompt = Server("app", version="2")
    with_prompt.add_prompt(lambda: "", name="greet")
    assert new_declarations(offering("a").declared, loaded(with_prompt).declared) == ["version", "capabilities.prompts"]


def test_three_files_are_named_and_the_others_counted() -> None:
    assert shown([Path(f"/{number}.py") for number in range(5)]) == "0.py, 1.py, 2.py, 2 more"


def test_the_project_of_a_file_is_the_folder_with_its_pyproject(tmp_path: Path) -> None:
    package = tmp_path / "src" / "shop"
    package.mkdir(parents=True)
    file = package / "server.py"
    for each in (file, package / "__init__.py"):
        each.write_text("")
    assert project_roots(file) == [tmp_path / "src"]
    (tmp_path / "pyproject.toml").write_text("")
    assert project_roots(file) == [tmp_path]


def test_what_is_installed_in_the_folder_of_a_project_is_not_of_it(tmp_path: Path) -> None:
    own = OwnFiles([tmp_path])
    assert own.owns(tmp_path / "app.py")
    assert own.owns(tmp_path / "package" / "module.py")
    assert not own.owns(tmp_path / ".venv" / "lib" / "python3" / "site-packages" / "trio" / "__init__.py")
    assert not own.owns(tmp_path.parent / "app.py")
