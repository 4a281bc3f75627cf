"""Reloading the code of a server that runs: what is imported again, and what stays when that fails."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Client
from trio_mcp.cli.dev.file_watch import Restarts
from trio_mcp.cli.dev.project_modules import ProjectModules
from trio_mcp.cli.dev.reloading import Reloader
from trio_mcp.cli.targets.loading import load_python, project_roots
from trio_mcp.cli.targets.target import PythonTarget
from trio_mcp.server.replaceable import ReplaceableServer

BOUND = 20.0

APP = """\
from trio_mcp import Server
import reloaded_helper
server = Server("app", version="1")

@server.tool
async def show() -> str:
    return f"{VERSION} {reloaded_helper.TEXT}"

@server.tool
async def late() -> str:
    import reloaded_helper
    from reloaded_package.part import PART
    return f"{VERSION} {reloaded_helper.TEXT} {PART}"

VERSION = "one"
"""


class Project:
    """A project on disk that is served, and reloaded when the test says that its files have changed."""

    def __init__(self, folder: Path, name: str | None = None) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.app = folder / "reloaded_app.py"
        target = PythonTarget(self.app, name)
        self.modules = ProjectModules(project_roots(self.app))
        self.modules.install()
        self.load = partial(load_python, target, loader=self.modules.loader)
        self._on_change: Callable[[Collection[Path]], None] = lambda _paths: None

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def edit(self, old: str, new: str) -> Path:
        assert old in self.app.read_text()
        return self.write(self.app.name, self.app.read_text().replace(old, new))

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Client]:
        """Serve it, and yield a client."""
        self.server = ReplaceableServer(self.load())
        restarts = Restarts(self.modules.extensions)
        reloader = Reloader("app.py", self.server, self.modules, restarts, self.load, self._tell, watch=self._watch)
        with trio.fail_after(BOUND):
            async with Client.connect(self.server) as client, trio.open_nursery() as nursery:
                nursery.start_soon(reloader.run)
                await wait_all_tasks_blocked()
                yield client
                nursery.cancel_scope.cancel()

    async def saved(self, *paths: Path) -> str:
        """Notify of changed files; return what is said then."""
        self.said.clear()
        self._on_change(set(paths))
        await wait_all_tasks_blocked()
        return "\n".join(self.said)

    def _tell(self, text: str, colour: str) -> None:
        self.said.append(text)

    async def _watch(
        self, folders: Callable[[], Collection[Path]], on_change: Callable[[Collection[Path]], None]
    ) -> None:
        self._on_change = on_change
        await trio.sleep_forever()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    project = Project(tmp_path)
    project.write("reloaded_app.py", APP)
    project.write("reloaded_helper.py", "TEXT = 'a'\n")
    project.write("reloaded_package/part.py", "PART = 'x'\n")
    yield project
    project.modules.uninstall()
    for name in [name for name in sys.modules if name.startswith("reloaded_")]:
        del sys.modules[name]


async def show(client: Client, tool: str = "show") -> str:
    return (await client.call_tool(tool)).text


async def test_the_file_and_what_it_imports_are_imported_again(project: Project) -> None:
    async with project.served() as client:
        assert await show(client) == "one a"
        assert "reloaded reloaded_app.py" in await project.saved(project.edit('"one"', '"two"'))
        assert await show(client) == "two a"
        assert "reloaded reloaded_helper.py" in await project.saved(project.write("reloaded_helper.py", "TEXT = 'b'"))
        assert await show(client) == "two b"


async def test_a_module_that_a_function_imports_late_counts_from_then_on(project: Project) -> None:
    async with project.served() as client:
        part = project.write("reloaded_package/part.py", "PART = 'y'\n")
        assert await project.saved(part) == ""
        assert await show(client, "late") == "one a y"
        assert "reloaded part.py" in await project.saved(project.write("reloaded_package/part.py", "PART = 'zz'\n"))
        assert await show(client, "late") == "one a zz"


async def test_modules_of_others_are_not_imported_again(project: Project) -> None:
    async with project.served():
        before = {name: sys.modules[name] for name in ("json", "trio_mcp", "trio", "pydantic", "trio_mcp.server")}
        await project.saved(project.edit('"one"', '"two"'))
        assert all(sys.modules[name] is module for name, module in before.items())


FAILURES = {
    "syntax": ("VERSION = 'two\n", ["line 16", "SyntaxError"]),
    "error": ("1 / 0\n", ["line 16: 1 / 0", "ZeroDivisionError"]),
    "exit": ("raise SystemExit(3)\n", ["SystemExit"]),
    "base": ("class Odd(BaseException): pass\nraise Odd('odd')\n", ["line 17", "Odd: odd"]),
    "nothing": ("del server\n", ["no Server"]),
    "null": ("\0", ["null bytes"]),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_code_that_cannot_be_imported_leaves_the_old_code_and_is_shown(project: Project, failure: str) -> None:
    text, named = FAILURES[failure]
    async with project.served() as client:
        helper = sys.modules["reloaded_helper"]
        project.write("reloaded_helper.py", "TEXT = 'b'\n")
        said = await project.saved(project.write("reloaded_app.py", APP + text))
        assert "the old code stays" in said
        assert [each for each in named if each not in said] == []
        assert await show(client) == "one a"
        assert await show(client, "late") == "one a x"
        assert sys.modules["reloaded_helper"] is helper
        assert "reloaded " in await project.saved(project.write("reloaded_app.py", APP))
        assert await show(client) == "one b"


async def test_an_error_in_a_neighbour_names_its_line(project: Project) -> None:
    async with project.served() as client:
        said = await project.saved(project.write("reloaded_helper.py", "TEXT = 'b'\nint('x')\n"))
        assert said.startswith("reloaded_helper.py was not reloaded")
        assert f"{project.folder / 'reloaded_helper.py'}, line 2: int('x')" in said
        assert await show(client) == "one a"


async def test_a_module_that_was_missing_is_found_when_it_is_there(project: Project) -> None:
    async with project.served() as client:
        app = project.edit("import reloaded_helper\n", "import reloaded_helper, reloaded_new\n")
        assert "ModuleNotFoundError" in await project.saved(app)
        assert "reloaded" in await project.saved(project.write("reloaded_new.py", ""))
        assert await show(client) == "one a"
        assert await project.saved(project.write("reloaded_other.py", "")) == ""


async def test_a_signal_to_end_breaks_off_an_import_that_hangs(project: Project) -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: received.append(number))
    try:
        async with project.served() as client:
            app = project.edit(
                'VERSION = "one"',
                'VERSION = "two"\nimport signal, time\nsignal.raise_signal(signal.SIGTERM)\ntime.sleep(3)',
            )
            assert "SIGTERM" in await project.saved(app)
            assert received == [signal.SIGTERM]
            signal.raise_signal(signal.SIGTERM)
            assert received == [signal.SIGTERM] * 2
            assert await show(client) == "one a"
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("name", ["reloaded_app.py", "reloaded_helper.py"])
async def test_a_link_that_leads_to_another_file_is_a_change(project: Project, name: str) -> None:
    link = project.folder / name
    first = link.rename(project.folder / "first.txt")
    second = project.write("second.txt", first.read_text().replace('"one"', '"two"').replace("'a'", "'b'"))
    link.symlink_to(first)
    async with project.served() as client:
        link.unlink()
        link.symlink_to(second)
        assert "reloaded" in await project.saved(link)
        assert await show(client) == ("two a" if name == "reloaded_app.py" else "one b")
        first.unlink()
        second.write_text(second.read_text().replace('"two"', '"three"').replace("'b'", "'c'"))
        assert "reloaded" in await project.saved(second)
        assert await show(client) == ("three a" if name == "reloaded_app.py" else "one c")


async def test_two_versions_with_the_same_file_times_are_distinguished(project: Project) -> None:
    async with project.served() as client:
        status = project.app.stat()
        app = project.edit('"one"', '"two"')
        os.utime(app, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert "reloaded" in await project.saved(app)
        assert await show(client) == "two a"


async def test_a_file_that_is_saved_while_it_is_imported_is_imported_once_more(project: Project) -> None:
    async with project.served() as client:
        # When it is imported, it saves the next version of itself.
        again = "import pathlib; pathlib.Path(__file__).write_text('TEXT = 3')"
        project.write("reloaded_helper.py", f"TEXT = 2\n{again}\n")
        said = await project.saved(project.folder / "reloaded_helper.py")
        assert said.count("reloaded reloaded_helper.py") == 1
        # The next look at the files, of which the system has said nothing.
        assert "reloaded reloaded_helper.py" in await project.saved()
        assert await project.saved() == ""
        assert await show(client) == "one 3"


async def test_a_module_that_writes_a_file_at_each_import_is_not_reloaded_endlessly(project: Project) -> None:
    async with project.served():
        same = "import pathlib; pathlib.Path(__file__).write_bytes(pathlib.Path(__file__).read_bytes())\n"
        said = await project.saved(project.write("reloaded_helper.py", f"TEXT = 'b'\n{same}"))
        assert said.count("reloaded reloaded_helper.py") == 1
        assert await project.saved() == ""
        other = "import pathlib; pathlib.Path(__file__).with_name('reloaded_made.py').write_text('')\n1 / 0\n"
        assert "ZeroDivisionError" in await project.saved(project.write("reloaded_helper.py", other))
        assert await project.saved(project.folder / "reloaded_made.py") == ""


async def test_a_save_without_a_change_of_the_text_reloads(project: Project) -> None:
    async with project.served():
        os.utime(project.app, ns=(1, 1))
        assert "no list changed" in await project.saved(project.app)


async def test_no_bytecode_of_the_project_is_written_or_read(project: Project) -> None:
    async with project.served():
        await project.saved(project.edit('"one"', '"two"'))
    assert [*project.folder.rglob("*.pyc")] == []


LIFESPAN = """
from contextlib import asynccontextmanager
import trio
@asynccontextmanager
async def lifespan(server):
    {body}
    yield
"""


async def test_a_lifespan_that_fails_leaves_the_old_code_and_its_modules(project: Project) -> None:
    async with project.served() as client:
        helper = sys.modules["reloaded_helper"]
        text = LIFESPAN.format(body="raise OSError('no database')") + APP.replace('version="1"', "lifespan=lifespan")
        said = await project.saved(project.write("reloaded_app.py", text))
        assert [each for each in ("its lifespan failed", "OSError: no database", "line 6") if each not in said] == []
        assert await show(client) == "one a"
        assert sys.modules["reloaded_helper"] is helper


async def test_a_lifespan_that_does_not_start_is_given_up_when_the_files_change_again(project: Project) -> None:
    async with project.served() as client:
        text = LIFESPAN.format(body="await trio.sleep_forever()") + APP.replace('version="1"', "lifespan=lifespan")
        assert await project.saved(project.write("reloaded_app.py", text)) == ""
        assert await show(client) == "one a"
        assert "reloaded" in await project.saved(project.write("reloaded_app.py", APP.replace('"one"', '"two"')))
        assert await show(client) == "two a"


async def test_a_factory_is_called_again(project: Project, tmp_path: Path) -> None:
    project.write("reloaded_app.py", f"{APP}\ndef make(): return server\n")
    project.modules.uninstall()
    made = Project(tmp_path, "make")
    async with made.served() as client:
        assert "tools changed" in await made.saved(made.edit("async def show", "async def shown"))
        assert await show(client, "shown") == "one a"
    project.modules.install()
    made.modules.uninstall()


async def test_a_file_that_has_a_proxy_now_leaves_the_old_code(project: Project) -> None:
    async with project.served() as client:
        text = "from trio_mcp import proxy\nserver = proxy('http://a.example/mcp')\n"
        assert "Proxy" in await project.saved(project.write("reloaded_app.py", text))
        assert await show(client) == "one a"


async def test_a_setting_that_needs_a_restart_is_named_until_it_is_as_it_was(project: Project) -> None:
    async with project.served():
        assert "restart to apply: version" in await project.saved(project.edit('version="1"', 'version="2"'))
        assert "restart to apply: version" in await project.saved(project.edit('"one"', '"two"'))
        assert "restart" not in await project.saved(project.edit('version="2"', 'version="1"'))


async def test_old_code_is_released(project: Project) -> None:
    import gc
    import weakref

    async with project.served() as client:
        # The settings of the first version are in use, and it is kept with them.
        await project.saved(project.edit('"one"', '"two"'))
        old = weakref.ref(sys.modules["reloaded_app"].show)
        assert await show(client) == "two a"
        for number in range(3):
            await project.saved(project.write("reloaded_app.py", APP.replace('"one"', f'"{number}"')))
        gc.collect()
        assert old() is None
