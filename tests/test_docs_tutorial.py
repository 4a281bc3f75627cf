"""The files that a reader of docs/tutorial writes belong together. What its commands print is in tests/wires/docs."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from serving import IMPORTS, ROOT, START
from walkthrough import PAGES, Edit, page, steps_of

from trio_mcp.cli.program import main


def files_of(*names: str) -> dict[str, str]:
    """Return the files that a reader of these pages has written."""
    texts: dict[str, str] = {}
    for name in names:
        for step in steps_of(page(name)):
            if isinstance(step, Edit):
                texts[step.file] = step.edit(texts.get(step.file, ""))
    return texts


FILES = files_of(*PAGES)


def parts(source: str) -> tuple[set[str], list[str]]:
    """Return the imports of a program, in no order, and its other statements."""
    body = ast.parse(source).body
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {f"{getattr(node, 'module', '')} {alias.name} {alias.asname}" for node in imports for alias in node.names}
    return names, [ast.unparse(node) for node in body if node not in imports]


def test_the_whole_file_is_the_sum_of_the_steps() -> None:
    (whole,) = re.findall(r"<details>.*?```python\n(.*?)```.*?</details>", page("first-server"), re.DOTALL)
    assert parts(whole) == parts(files_of("first-server")["app.py"])


def test_the_tests_of_the_reader_pass_for_the_server_of_the_last_page(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    env = {**os.environ, **IMPORTS}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=START, check=False)
    assert done.returncode == 0, done.stdout
    assert "9 passed" in done.stdout


def test_the_container_and_the_service_use_options_that_the_command_has() -> None:
    (words,) = re.findall(r"^CMD (\[.*\])$", FILES["Dockerfile"], re.MULTILINE)
    (line,) = re.findall(r"^ExecStart=\S+/trio-mcp (.*)$", FILES["expenses.service"], re.MULTILINE)
    for arguments in (json.loads(words)[1:], line.split()):
        assert arguments[0] == "serve"
        assert main([*arguments, "--help"]) == 0


def test_every_page_ends_with_the_link_to_the_next() -> None:
    for name, after in zip(("index", *PAGES), PAGES, strict=False):
        assert f"]({after}.md)" in page(name).splitlines()[-1], name


def test_the_index_names_every_page_in_its_order() -> None:
    assert re.findall(r"^\| \[.*\]\((\w[\w-]*)\.md\)", page("index"), re.MULTILINE) == list(PAGES)
    assert {path.stem for path in (ROOT / "docs" / "tutorial").glob("*.md")} == {"index", *PAGES}
