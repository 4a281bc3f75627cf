"""The files that a reader of docs/tutorial writes belong together, and its commands print what the pages show."""

from __future__ import annotations

import ast
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import main
from serving import IMPORTS, ROOT, SOON, START
from walkthrough import PAGES, Command, Edit, page, steps_of

BIN = Path(sys.executable).parent
HOME = "/home/you"
PORT = "8000"
VARYING = (
    (re.compile(r"in \d+\.\d+s"), "in 0.00s"),
    (re.compile(r"\.\d{8}-\d{6}\.bak"), ".bak"),
    (re.compile(r"\d+ bytes"), "1 bytes"),
    (re.compile(r"about \d+ tokens"), "about 1 tokens"),
)
"""What differs between two runs, or two versions of a library."""


class Reader:
    """The folder of the reader, and two terminals: in one of them a server may run."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "expenses"
        self.folder.mkdir(parents=True)
        self.port = PORT
        self.server: subprocess.Popen[str] | None = None
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "TRIO_MCP", "CLAUDE_"))
        }
        self.env = {**kept, **IMPORTS, "HOME": str(home), "PATH": path, "PYTHONUNBUFFERED": "1"}

    def type(self, line: str) -> list[str]:
        """Return the lines that a command prints, as the page would show them."""
        return self.shown(self._typed(line.replace(f":{PORT}/", f":{self.port}/")))

    def _typed(self, line: str) -> str:
        words = shlex.split(line)
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self.env[name] = value
            return ""
        if words[0] == "curl":
            with urllib.request.urlopen(words[1], timeout=SOON) as response:
                return str(response.read().decode())
        if words[:2] == ["trio-mcp", "serve"]:
            return self.serve(words)
        done = subprocess.run(
            ["/bin/sh", "-c", f"{line} 2>&1"],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START,
            check=False,
        )
        return done.stdout

    def serve(self, words: list[str]) -> str:
        """Start a server in the first terminal, in place of the one that runs there, and return its first line."""
        self.interrupt()
        # A free port: another one may be taken between the moment that it was chosen and this one.
        command = ["0" if word == PORT else word for word in words]
        self.server = subprocess.Popen(command, cwd=self.folder, env=self.env, stderr=subprocess.PIPE, text=True)
        assert self.server.stderr is not None
        ready, _, _ = select.select([self.server.stderr], [], [], START)
        assert ready, "the server did not say where it serves"
        line = self.server.stderr.readline()
        (self.port,) = re.findall(r":(\d+)/", line)
        return line

    def interrupt(self) -> None:
        """Press Ctrl-C in the first terminal."""
        if self.server is not None:
            self.server.send_signal(signal.SIGINT)
            try:
                _, errors = self.server.communicate(timeout=START)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.communicate()
                raise
            assert self.server.returncode == 0, errors
            self.server = None

    def shown(self, text: str) -> list[str]:
        replaced = text.replace(sys.executable, f"{HOME}/expenses/.venv/bin/python3").replace(str(self.home), HOME)
        return alike(replaced.replace(f":{self.port}/", f":{PORT}/"))


def alike(text: str) -> list[str]:
    for varying, fixed in VARYING:
        text = varying.sub(fixed, text)
    return text.splitlines()


def fits(expected: list[str], printed: list[str]) -> bool:
    """Return whether these are the lines of a page: `...` stands for any number of lines; stdout and stderr may be mixed."""
    if "..." in expected:
        at = expected.index("...")
        before, after = expected[:at], expected[at + 1 :]
        return printed[:at] == before and printed[len(printed) - len(after) :] == after
    return sorted(expected) == sorted(printed)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    made = Reader(tmp_path_factory.mktemp("you"))
    yield made
    made.interrupt()


@pytest.mark.wires
@pytest.mark.skipif(sys.platform != "linux", reason="the pages show the files of Linux")
def test_every_command_prints_what_the_page_shows(reader: Reader) -> None:
    wrong, typed = [], 0
    for name in PAGES:
        for step in steps_of(page(name)):
            match step:
                case Edit():
                    step.apply(reader.folder)
                case Command(line, printed):
                    typed += 1
                    seen, expected = reader.type(line), alike("\n".join(printed))
                    if not fits(expected, seen):
                        wrong.append((line, expected, seen))
    assert wrong == []
    assert typed > 20


@pytest.mark.wires
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit_of_the_reader(tmp_path: Path) -> None:
    (unit,) = [step for step in steps_of(page("deploy")) if isinstance(step, Edit) and step.file == "expenses.service"]
    (tmp_path / unit.file).write_text(re.sub(r"/srv/expenses/\S*/trio-mcp", "/bin/true", unit.text))
    command = ["systemd-analyze", "verify", str(tmp_path / unit.file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# the files


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
