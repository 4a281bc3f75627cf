"""What `python -m build` makes installs and runs without the checkout: `make packages`, which needs a package index."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.packages import licences

ROOT = Path(__file__).parents[2]
BUILD_SECONDS, INSTALL_SECONDS, RUN_SECONDS = 300, 600, 60

SERVER = '''\
from trio_mcp import Context, Server

server = Server("shop", version="1")


@server.tool
async def price(item: str, ctx: Context) -> str:
    """Return the price of an item."""
    await ctx.progress(1, 1)
    return f"{item}: 3 euros"


if __name__ == "__main__":
    server.run()
'''

IN_WHEEL = re.compile(r"trio_mcp/.*|trio_mcp_transports/.*|trio_mcp-[^/]*\.dist-info/.*")
CODE = re.compile(r".*\.py|.*/py\.typed")
FILES_IN_SDIST = "CHANGELOG.md CONTRIBUTING.md LICENSE Makefile PKG-INFO README.md SECURITY.md pyproject.toml"
IN_SDIST = {*FILES_IN_SDIST.split(), "docs", "examples", "tests", "transports", "trio_mcp"}
STRAY = re.compile(r"(^|/)(__pycache__|build|dist|\.venv|\.git|\.[a-z]+_cache|node_modules)(/|$)|\.pyc$|\.egg-info")


class Built(NamedTuple):
    """The files that were built."""

    wheel: Path
    sdist: Path


class Place(NamedTuple):
    """An environment with the package, and an empty folder to run it in."""

    binaries: Path
    folder: Path

    def run(self, program: str, *arguments: str, status: int = 0) -> str:
        """Run a program of the environment; return what it writes to stdout."""
        command = [str(self.binaries / program), *arguments]
        # Nothing of this environment, in which the checkout can be imported.
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={"PATH": str(self.binaries)},
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
        )
        assert done.returncode == status, done.stderr
        return done.stdout

    @contextmanager
    def started(self, program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A program of the environment that runs on; it ends with SIGTERM and the status 0."""
        command = [str(self.binaries / program), *arguments]
        process = subprocess.Popen(
            command, cwd=self.folder, env={"PATH": str(self.binaries)}, stderr=subprocess.PIPE, text=True
        )
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(RUN_SECONDS) == 0
        finally:
            process.kill()
            process.communicate()


def check_call(command: Sequence[str], seconds: float) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Both files, the wheel made from the sdist: so what the sdist lacks, the wheel lacks too."""
    folder = tmp_path_factory.mktemp("dist")
    check_call([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], BUILD_SECONDS)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, sdist)


@pytest.fixture(scope="session", params=Built._fields)
def place(request: pytest.FixtureRequest, built: Built, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A new environment in which one of the files is installed, with what it depends on."""
    return installed(str(getattr(built, request.param)), tmp_path_factory)


@pytest.fixture(scope="session")
def whole(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A new environment in which the wheel is installed with all extras for users."""
    return installed(f"{built.wheel}[{','.join(licences.extras())}]", tmp_path_factory)


def installed(what: str, tmp_path_factory: pytest.TempPathFactory) -> Place:
    environment, folder = tmp_path_factory.mktemp("env"), tmp_path_factory.mktemp("empty")
    check_call([sys.executable, "-m", "venv", str(environment)], INSTALL_SECONDS)
    python = str(environment / "bin" / "python")
    check_call([python, "-m", "pip", "install", "--quiet", what], INSTALL_SECONDS)
    return Place(environment / "bin", folder)


# what is in the files


def test_the_wheel_has_the_two_packages_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = wheel.namelist()
    assert [name for name in names if not IN_WHEEL.fullmatch(name)] == []
    assert [name for name in names if ".dist-info/" not in name and not CODE.fullmatch(name)] == []
    assert [name for name in names if STRAY.search(name)] == []
    sources = [ROOT / "trio_mcp", ROOT / "transports" / "trio_mcp_transports"]
    files = {str(file.relative_to(source.parent)) for source in sources for file in source.rglob("*.py")}
    assert files <= set(names)
    assert {"trio_mcp/py.typed", "trio_mcp_transports/py.typed"} <= set(names)
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_sdist_has_what_a_packager_needs_and_nothing_that_was_built(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        names = [name.partition("/")[2] for name in sdist.getnames()]
    assert {name.partition("/")[0] for name in names} - {".gitignore", ""} == IN_SDIST
    assert [name for name in names if STRAY.search(name)] == []


def test_an_index_can_show_the_metadata(built: Built) -> None:
    check_call([sys.executable, "-m", "twine", "check", "--strict", *map(str, built)], RUN_SECONDS)


def test_the_extras_and_the_versions_of_python_are_in_the_metadata(place: Place) -> None:
    shown = place.run(
        "python",
        "-c",
        "from importlib.metadata import metadata; found = metadata('trio-mcp'); "
        "print(*found.get_all('Provides-Extra')); print(found['Requires-Python'], found['License-Expression'])",
    )
    extras, terms = shown.splitlines()
    assert {"anthropic", "goose", "openai", "yaml"} <= set(extras.split())
    assert terms == ">=3.11 MIT"


# what is installed


def test_both_packages_are_imported_from_the_environment(place: Place) -> None:
    shown = place.run(
        "python", "-c", "import trio_mcp, trio_mcp_transports as t; print(trio_mcp.__file__, t.__file__, sep='\\n')"
    )
    environment = str(place.binaries.parent)
    assert all(line.startswith(environment) for line in shown.splitlines())


def test_its_dependencies_are_complete_and_agree(place: Place) -> None:
    assert "No broken requirements" in place.run("python", "-m", "pip", "check")


IMPORT_ALL = """
import importlib, pkgutil, trio_mcp, trio_mcp_transports
for package in (trio_mcp, trio_mcp_transports):
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not each.name.endswith("__main__"):
            try:
                importlib.import_module(each.name)
            except ModuleNotFoundError as error:
                print(each.name, error.name)
"""


def test_every_module_can_be_imported_but_those_of_extras_and_of_pytest(place: Place) -> None:
    lines = place.run("python", "-c", IMPORT_ALL).splitlines()
    of_extras = "anthropic keyring openai opentelemetry prometheus_client psycopg redis ruamel"
    assert {line.split()[1] for line in lines} == {"pytest", *of_extras.split()}
    assert len(lines) == 14


def test_the_command_has_its_help_and_its_demonstration(place: Place) -> None:
    assert "demo" in place.run("trio-mcp", "--help")
    shown = place.run("trio-mcp", "demo")
    assert "async def book_flight" in shown
    assert shown.count("'Booked TP3 to Lisbon, aisle seat.'") == 2


def test_a_file_is_called_over_stdio_and_over_http(place: Place) -> None:
    (place.folder / "shop.py").write_text(SERVER)
    assert "tea: 3 euros" in place.run("trio-mcp", "call", "shop.py", "price", "item=tea")
    with place.started("trio-mcp", "serve", "shop.py", "--port", "0") as server:
        assert server.stderr is not None
        url = next(line for line in server.stderr if "serves MCP at" in line).split()[-1]
        for target in (url, url.replace("http:", "ws:")):
            assert "tea: 3 euros" in place.run("trio-mcp", "call", target, "price", "item=tea")


def test_the_first_commands_of_the_readme_work(place: Place) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (server,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (place.folder / "travel.py").write_text(server)
    call = ("call", "travel.py", "book_flight", "destination=Lisbon")
    install = ("install", "claude-code", "travel.py")
    assert all(f"trio-mcp {' '.join(words)}\n" in readme for words in (call, install))
    # A test has no terminal.
    assert "the window to Lisbon" in place.run("trio-mcp", *call, "--answer", "value=window")
    place.run("trio-mcp", *install, "--file", "claude.json", "--yes")
    assert "travel.py" in (place.folder / "claude.json").read_text()
    with place.started("trio-mcp", "serve", "travel.py", "--port", "0") as process:
        assert process.stderr is not None
        assert any("serves MCP at" in line for line in process.stderr)


# with the extras


def test_every_module_can_be_imported_with_the_extras_but_those_of_pytest(whole: Place) -> None:
    lines = whole.run("python", "-c", IMPORT_ALL).splitlines()
    assert {line.split()[1] for line in lines} == {"pytest"}
    assert "No broken requirements" in whole.run("python", "-m", "pip", "check")


def test_every_package_that_users_install_has_a_licence_that_is_allowed(whole: Place) -> None:
    packages = licences.packages_of(str(whole.binaries / "python"))
    assert len(packages) >= len(licences.extras())
    assert [package for package in packages if not package.is_allowed] == []


# types


def test_types_are_found_by_a_type_checker(place: Place) -> None:
    (place.folder / "typed.py").write_text("from trio_mcp import Server\n\nreveal_type(Server('shop').identity.name)\n")
    python = str(place.binaries / "python")
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "typed.py"]
    done = subprocess.run(command, cwd=place.folder, capture_output=True, text=True, timeout=BUILD_SECONDS)
    assert 'Revealed type is "str"' in done.stdout.replace("builtins.", ""), done.stdout
