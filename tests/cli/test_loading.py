"""Which server `FILE:name` selects: a server by its name, or what a function returns."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from naming import unnamed

from trio_mcp.cli.command import CommandError, Status
from trio_mcp.cli.targets.loading import lifespan_errors, load_server

HEAD = "from trio_mcp import Server\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    # Other tests load files of this name.
    monkeypatch.setattr(sys, "modules", {name: each for name, each in sys.modules.items() if name != "app"})
    return tmp_path / "app.py"


def loaded(file: Path, text: str, name: str = "make") -> str:
    """Return the name of the server that is loaded."""
    file.write_text(HEAD + text)
    return load_server(f"{file}:{name}").identity.name


def refused(file: Path, text: str, name: str = "make") -> str:
    """Return why nothing is loaded, without the name of the file."""
    file.write_text(HEAD + text)
    with pytest.raises(CommandError) as caught:
        load_server(f"{file}:{name}" if name else str(file))
    assert caught.value.status is Status.UNREACHABLE
    return str(caught.value).replace(str(file), "app.py")


def test_a_function_that_returns_a_server_is_called(file: Path) -> None:
    assert loaded(file, "def make(name='made', *more): return Server(name)") == "made"
    assert loaded(file, "class Shop(Server):\n    def __init__(self): super().__init__('shop')", "Shop") == "shop"


def test_a_proxy_is_served_like_a_server(file: Path) -> None:
    assert loaded(file, "from trio_mcp import proxy\nmake = proxy('http://a.example/mcp')\n") == "a.example"
    text = "from trio_mcp import proxy\nfrom trio_mcp.relay import Proxy\ndef make() -> Proxy: return proxy(['x', 'made'])\n"
    assert loaded(file, text) == "made"


def test_a_server_has_precedence_over_a_function_of_another_name(file: Path) -> None:
    assert loaded(file, "server = Server('one')\ndef make(): return Server('two')", "server") == "one"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def make(name, *, size): ...", ["app.py:make", "name, size"]),
        ("async def make(): ...", ["app.py:make", "async", "lifespan"]),
        ("def make(): return 3", ["app.py:make", "returned int"]),
        ("def make():\n    raise OSError('no disk')", ["app.py, line 3", "OSError: no disk"]),
        ("make = 3", ["app.py:make", "but int"]),
    ],
)
def test_a_function_that_makes_no_server_is_refused_with_the_reason(file: Path, text: str, said: list[str]) -> None:
    message = refused(file, text)
    assert [each for each in said if each not in message] == []


def test_a_wrong_name_is_refused_with_what_the_file_has(file: Path) -> None:
    text = """
from dataclasses import replace
server = Server('one')
def make() -> Server: return server
def other() -> int: return 3
def needs(name) -> Server: return server
async def slow() -> Server: return server
def _private() -> Server: return server
"""
    assert refused(file, text, "mkae").endswith("choose one of: app.py:server, app.py:make")


def test_a_file_without_a_server_is_refused_with_the_functions_that_may_make_one(file: Path) -> None:
    assert refused(file, "def make(): return Server('made')", "").endswith("choose one of: app.py:make")
    assert refused(file, "x = 3", "").endswith("has no Server in it")


@pytest.mark.parametrize("name", ["app", "make"])
def test_an_error_in_an_imported_file_is_reported_at_the_line_of_that_file(file: Path, name: str) -> None:
    helper = file.with_name(f"imported_by_{name}.py")
    helper.write_text("\n\ndef fail():\n    import nowhere_to_be_found\n")
    call = f"from {helper.stem} import fail\nserver = Server('x')\n"
    text = f"{call}fail()\n" if name == "app" else f"{call}def make(): return fail()\n"
    assert unnamed(refused(file, text, "" if name == "app" else name), f"{helper}, line 4: ModuleNotFoundError") == []


def test_an_error_that_a_library_raises_is_reported_at_the_line_that_calls_it(file: Path) -> None:
    library = file.parent / ".venv" / "lib" / "site-packages"
    library.mkdir(parents=True)
    (library / "library_of_app.py").write_text("def fail(): raise OSError('no disk')\n")
    sys.path.append(str(library))
    assert (
        unnamed(refused(file, "import library_of_app\n\nlibrary_of_app.fail()\n", ""), "app.py, line 4: OSError") == []
    )
    assert unnamed(refused(file, "Server('x').add_tool(3)", ""), "app.py, line 2: TypeError") == []


LIFESPAN = """
from contextlib import asynccontextmanager
import trio
from database_of_app import connect

@asynccontextmanager
async def lifespan(server):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connect)
        yield

server = Server('x', lifespan=lifespan)
"""


async def test_the_last_line_of_the_project_is_named_for_a_lifespan_that_fails(file: Path) -> None:
    database = file.with_name("database_of_app.py")
    database.write_text("async def connect():\n    raise OSError('no database')\n")
    file.write_text(HEAD + LIFESPAN)  # noqa: ASYNC240  a small file of the test
    server = load_server(str(file))
    with pytest.raises(CommandError) as caught, lifespan_errors(file):
        async with server.open_service():
            await trio.sleep(1)
    assert unnamed(str(caught.value), f"{database}, line 2: the lifespan failed: OSError") == []


def test_the_server_of_another_library_is_named_with_the_command_that_starts_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FastMCP:
        __module__ = "fastmcp.server"

        def run(self) -> None: ...

    monkeypatch.setitem(sys.modules, "other_library", SimpleNamespace(server=FastMCP()))  # type: ignore[arg-type]
    said = refused(file, "from other_library import server as mcp", "")
    assert unnamed(said, "mcp", "FastMCP", "fastmcp", "'python app.py'") == []


def missing(target: str) -> str:
    with pytest.raises(CommandError) as caught:
        load_server(target)
    assert caught.value.status is Status.UNREACHABLE
    return str(caught.value)


def test_a_missing_file_is_refused_with_what_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    for file in ("notes.py", "shop/server.py"):
        (tmp_path / file).write_text(HEAD)
    assert unnamed(missing("books"), "books", tmp_path, "FILE.py", "module") == []
    assert unnamed(missing("books.py"), "books.py", tmp_path) == []
    assert unnamed(missing("shop/notes"), "shop/notes", tmp_path) == []
    assert unnamed(missing("shop/server"), "do you mean shop/server.py?") == []
    assert unnamed(missing("shop/"), "shop", "folder") == []


MODEL = """
from pydantic import BaseModel
class Seat(BaseModel):
    row: int
server = Server(Seat.__module__)
"""


def test_the_module_is_called_like_its_file(file: Path) -> None:
    assert loaded(file, MODEL, "server") == "app"


def test_a_file_does_not_replace_another_module(file: Path) -> None:
    file = file.with_name("json.py")
    assert loaded(file, MODEL, "server") == "served_json"


def test_a_file_knows_where_it_is(file: Path) -> None:
    assert loaded(file, "def make(): return Server(__file__)\n") == str(file)


RUNS = "made = Server('made')\n{call}\nmade = None\n"


NURSERY = """async def main():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.serve, "http")
"""


@pytest.mark.parametrize(
    "call",
    [
        "made.run('http', port=0)",
        "made.run(\n    transport='http')",
        "__import__('trio').run(made.serve, 'http')",
        "__import__('asyncio').run(made.serve('http', port=0))",
        f"import trio\n{NURSERY}trio.run(main)",
    ],
)
def test_a_file_that_serves_over_http_when_it_is_imported_is_refused_with_the_line(file: Path, call: str) -> None:
    for name in ("", "made"):
        assert unnamed(refused(file, RUNS.format(call=call), name), "app.py, line", "'http'", "__main__") == []


def test_a_server_that_a_file_runs_on_stdio_when_it_is_imported_is_served(file: Path) -> None:
    assert loaded(file, RUNS.format(call="__import__('trio').run(made.serve)"), "made") == "made"
    assert loaded(file, RUNS.format(call="made.run()"), "made") == "made"
    assert loaded(file, "from trio_mcp import proxy\nproxy('http://a.example/mcp').run()\n", "made") == "a.example"
