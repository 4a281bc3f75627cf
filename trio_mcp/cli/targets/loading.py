"""Loading the server of a Python file or module."""

from __future__ import annotations

import inspect
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from importlib import import_module
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final, cast

from ...base.checks import signature_of, written_annotations
from ...base.groups import first_leaf
from ...server import Server
from ...server.composing import is_mountable
from ...server.lifespan import LIFESPAN_NOTE
from ...server.running import LOADS_ONLY, RunCalled
from ...session.event_loop import asyncio_hint
from ...session.transport import authenticates
from ..command import CommandError, Status
from .target import PythonTarget, check_file, read_target, split_name

# Which files are of the project of a server, and so may have the mistake that an error is about.

INSTALLED: Final = ("site-packages", "dist-packages")


class OwnFiles:
    """The files in some folders, without those of Python, of an environment and of installed packages.

    Args:
        roots: the folders.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(root.resolve() for root in roots)
        prefixes = {Path(sys.prefix).resolve(), Path(os.__file__).resolve().parent}
        # Not a prefix that has the project in it, as /usr has /usr/src.
        self._foreign = [each for each in prefixes if not any(root.is_relative_to(each) for root in self._roots)]

    def owns(self, path: Path) -> bool:
        """Return whether this is one of the files."""
        path = path.resolve()
        for root in self._roots:
            if path.is_relative_to(root) and not set(INSTALLED) & set(path.relative_to(root).parts):
                return not any(path.is_relative_to(each) for each in self._foreign)
        return False

    def last_frame(self, error: BaseException) -> traceback.FrameSummary | None:
        """Return the last frame in one of the files of where an error was raised; None if it was raised elsewhere."""
        frames = traceback.extract_tb(error.__traceback__)
        found = [
            frame
            for frame in frames
            if not frame.filename.startswith("<") and not is_ours(frame.filename) and self.owns(Path(frame.filename))
        ]
        return found[-1] if found else None


def is_ours(filename: str) -> bool:
    """Return whether a file is one of this package, which is in the folder of its examples in a checkout."""
    return filename.startswith(OUR_FOLDER)


OUR_FOLDER: Final = f"{Path(__file__).parents[2]}{os.sep}"


def project_roots(source: Path | str) -> list[Path]:
    """Return the folders whose modules belong to the project of a file or module.

    That is the folder with its `pyproject.toml`. Without one it is the folder of the file, or the one round its package.
    """
    folder = source.resolve().parent if isinstance(source, Path) else folder_of(source)
    if set(INSTALLED) & set(folder.parts):
        # A module that is installed: its package alone, which its user edits in place.
        return [folder]
    marked = next((each for each in (folder, *folder.parents) if (each / "pyproject.toml").is_file()), None)
    if marked is not None:
        return [marked]
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return [folder]


def folder_of(module: str) -> Path:
    """Return the folder of the package that a module is in, or of the module itself."""
    top = module.partition(".")[0]
    spec = PathFinder.find_spec(top, [str(Path.cwd()), *sys.path])
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(spec.origin).resolve().parent if spec is not None and spec.origin else Path.cwd()


class WrongChoice(CommandError):
    """A file has servers, or functions that return one, and the command line does not name one of them."""


def load_server(target: str, *, tell_errors: bool = False) -> Server:
    """Return the server of `FILE[:name]` or `MODULE[:name]`; without a name the only one, or the one called `server`.

    The name may be that of a plain function without required parameters, which is called and returns the server. The file is
    imported, so code under `if __name__ == "__main__":` does not run. Its folder comes first on the path, as it does for
    `python FILE`; for a module that is the current folder.

    Args:
        tell_errors: send unexpected exceptions to the callers, unless the server's own options say whether to.

    Raises:
        CommandError: there is no such file or server, or the file or the function raised an error.
    """
    python = read_target(target)
    if not isinstance(python, PythonTarget):
        check_file(Path(split_name(target)[0]))
        raise CommandError(f"{target!r} is not a Python file or module", Status.UNREACHABLE)
    return load_python(python, tell_errors=tell_errors)


def load_python(target: PythonTarget, *, tell_errors: bool = False, served_open: bool = False) -> Server:
    """Return the server of a file or module; see `load_server`.

    Args:
        served_open: it is served over HTTP, to any caller if the server itself authenticates none.

    Raises:
        CommandError: as `load_server`; or an application of the file authenticates the callers of a server that is served open.
    """
    before = LOADS_ONLY.set(True)
    try:
        # stdout may be the connection to the client, which a `print` would break.
        with redirect_stdout(sys.stderr):
            module = load(target.source)
            server = choose(module, target.source, target.name)
        if served_open and not authenticates(server):
            check_applications(module, server, target.source)
    except (RunCalled, BaseExceptionGroup) as error:
        # A group is of a file that calls `serve` in a nursery or a task group.
        if not isinstance(call := first_leaf(error), RunCalled):
            raise
        server = server_of_call(call, error_location(error, target.source))
    finally:
        LOADS_ONLY.reset(before)
    if tell_errors and server.options.tell_errors is None:
        return server.copy(options=replace(server.options, tell_errors=True))
    return server


def check_applications(module: ModuleType, server: Server, source: Path | str) -> None:
    """Raise `CommandError` if an application of a file authenticates the callers of a server, which its author expects."""
    for name, value in vars(module).items():
        # Not by its class: that would load the transport.
        protects = getattr(type(value), "protects", None)
        if (
            type(value).__module__.startswith("trio_mcp_transports.")
            and protects is not None
            and protects(value, server)
        ):
            raise CommandError(
                f"{source}: {name} authenticates its callers, and the server alone does not: it is not served open; pass "
                "`authenticate` in Server(http=HttpOptions(...)), or serve the application, such as with "
                f"'hypercorn -k trio {source.stem if isinstance(source, Path) else source}:{name}'",
                Status.UNREACHABLE,
            )


def server_of_call(call: RunCalled, location: str) -> Server:
    """Return the server that a file runs on stdio at its top level, which takes nothing from the command.

    Args:
        location: the file and the line of the call.

    Raises:
        CommandError: it runs over another transport, and would serve there in place of the command.
    """
    if call.transport != "stdio":
        raise CommandError(
            f"{location}: the file calls {call.method}({call.transport!r}) when it is imported, and would serve there; "
            'write the call under `if __name__ == "__main__":`',
            Status.UNREACHABLE,
        )
    return cast("Server", call.server)


def module_name(path: Path) -> str:
    """Return the name of the module that a file becomes: that of the file, unless another module has it.

    Errors show it with the classes of the file.
    """
    name = path.stem.replace(".", "_")
    return f"served_{name}" if name in sys.modules else name


def load(source: Path | str) -> ModuleType:
    """Run a file or module and return it. Raises `CommandError` with the line that failed."""
    return load_file(source) if isinstance(source, Path) else load_module(source)


def put_first(folder: Path) -> None:
    """Have imports look in a folder before all others; it is there already if a file is loaded again."""
    if sys.path[:1] != [str(folder)]:
        sys.path.insert(0, str(folder))


def load_module(name: str) -> ModuleType:
    put_first(Path.cwd())
    with file_errors(name):
        return import_module(name)


def load_file(path: Path) -> ModuleType:
    put_first(path.resolve().parent)
    name = module_name(path)
    spec = spec_from_file_location(name, path, loader=SourceFileLoader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    # In `sys.modules` before it runs: dataclasses and `get_type_hints` look the module up by its name.
    module = sys.modules[name] = module_from_spec(spec)
    with file_errors(path):
        spec.loader.exec_module(module)
    return module


@contextmanager
def file_errors(source: Path | str) -> Generator[None]:
    """Raise what the code of a file raises as a `CommandError` that names the line."""
    try:
        yield
    # A file that calls `sys.exit` at its top level cannot be served either.
    except (Exception, SystemExit) as error:
        raise CommandError(f"{error_location(error, source)}: {error_text(error)}", Status.UNREACHABLE) from error


@contextmanager
def lifespan_errors(*sources: Path | str) -> Generator[None]:
    """Raise what the lifespan of the server of a file or module raises as a `CommandError` that names the line."""
    try:
        yield
    except Exception as error:
        if LIFESPAN_NOTE not in getattr(error, "__notes__", ()):
            raise
        where, leaf = error_location(error, *sources), first_leaf(error)
        text = f"{where}: the lifespan failed: {error_text(leaf)}{asyncio_hint(leaf, 'lifespan')}"
        raise CommandError(text, Status.UNREACHABLE) from error


def error_location(error: BaseException, *sources: Path | str) -> str:
    """Return the file and the line of an error: the last line of the project of one of several files or modules that ran.

    If none of their own lines ran, it is the first of the files, without a line.
    """
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        return f"{error.filename}, line {error.lineno}"
    own_files = OwnFiles([root for source in sources for root in project_roots(source)])
    for each in (first_leaf(error), error):
        if (frame := own_files.last_frame(each)) is not None:
            return f"{frame.filename}, line {frame.lineno}"
    return str(sources[0])


def error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"


def choose(module: ModuleType, source: Path | str, name: str | None) -> Server:
    """Return the server of that name, which may be a function that returns it; without a name see `load_server`."""
    servers = {key: cast("Server", value) for key, value in vars(module).items() if is_server(value)}
    # By identity: a module may bind one server to two names.
    if name is None and len(set(map(id, servers.values()))) == 1:
        return next(iter(servers.values()))
    found = servers.get(name or "server")
    if found is not None:
        return found
    if name is not None and hasattr(module, name):
        return make_server(getattr(module, name), source, name)
    if not servers and (other := server_of_other_library(module)) is not None:
        raise CommandError(f"{source} has no Server in it, but {other}{as_command(source)}", Status.UNREACHABLE)
    choices = [f"{source}:{key}" for key in (*servers, *factories_in(module))]
    if name is not None:
        missing = f"{source} has no server called {name!r}"
    else:
        missing = f"{source} has several servers" if servers else f"{source} has no Server in it"
    advice = f"; choose one of: {', '.join(choices)}" if choices else ""
    raise (WrongChoice if choices else CommandError)(f"{missing}{advice}", Status.UNREACHABLE)


def server_of_other_library(module: ModuleType) -> str | None:
    """Return the variable and type of a server that another library has made in this module; None without any."""
    for name, value in vars(module).items():
        library = type(value).__module__.partition(".")[0]
        if library in ("mcp", "fastmcp") and callable(getattr(value, "run", None)):
            return f"{name} is the {type(value).__name__} of another library, {library}"
    return None


def as_command(source: Path | str) -> str:
    """Return how to name the server of a file as a command, to be put behind an error."""
    words = ["python", str(source)] if isinstance(source, Path) else ["python", "-m", source]
    return f": start it as a command, with '{shlex.join(words)}' in place of {source}"


def is_server(value: object) -> bool:
    """Return whether this is a `Server`, or a proxy of one, which is served in the same way."""
    # Not by its class: its module would load the client, which a server does without.
    return is_mountable(value)


def factories_in(module: ModuleType) -> list[str]:
    """Return the names of the functions of the file itself that can be called without arguments and are not async."""
    return [
        key
        for key, value in vars(module).items()
        if isinstance(value, FunctionType)
        and value.__module__ == module.__name__
        and not key.startswith("_")
        and not inspect.iscoroutinefunction(value)
        and returns_server(value)
        and not required_parameters(value)
    ]


def returns_server(function: FunctionType) -> bool:
    """Return whether a function is annotated to return a server, or not annotated."""
    returns = written_annotations(function).get("return")
    # A `ForwardRef` has the name that it refers to.
    named = (
        returns if isinstance(returns, str) else getattr(returns, "__forward_arg__", getattr(returns, "__name__", ""))
    )
    return returns is None or returns is Server or named.endswith(("Server", "Proxy"))


def make_server(factory: object, source: Path | str, name: str) -> Server:
    """Call a factory and return its server.

    Raises:
        CommandError: it is not a function, is async, takes arguments, raised an error, or returned something else.
    """
    what = f"{source}:{name}"
    if not callable(factory):
        kind = type(factory).__name__
        raise CommandError(f"{what} is not a Server or a function that returns one, but {kind}", Status.UNREACHABLE)
    # To run it would take an event loop that ends before the server's begins.
    if inspect.iscoroutinefunction(factory):
        advice = "write `def`, and open what the server needs in its lifespan"
        raise CommandError(f"{what} is an async function: {advice}", Status.UNREACHABLE)
    if needed := required_parameters(factory):
        listed = ", ".join(needed)
        raise CommandError(f"{what} is a function that needs arguments: give {listed} a default", Status.UNREACHABLE)
    with file_errors(source):
        server = factory()
    if not is_server(server):
        raise CommandError(f"{what} returned {type(server).__name__}, not a Server", Status.UNREACHABLE)
    return cast("Server", server)


def required_parameters(function: Callable[..., object]) -> list[str]:
    """Return the names of the parameters without a default."""
    try:
        parameters = signature_of(function).parameters.values()
    except (TypeError, ValueError):  # a built-in without a signature
        return []
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in variable]
