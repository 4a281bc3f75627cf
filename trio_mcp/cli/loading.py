"""Finding the server in a Python file."""

from __future__ import annotations

import sys
import traceback
from contextlib import redirect_stdout
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from ..server import Server
from .errors import CommandError, Status

MODULE_NAME = "served_file"


def load_server(target: str) -> Server:
    """The server in `FILE` or `FILE:name`; without a name the only one there is, or the one called `server`.

    The file runs as an import does, so what stands under `if __name__ == "__main__":` does not run. What it prints goes
    to stderr, for stdout may be the wire. Its folder comes first on the path, as it does for `python FILE`.

    Raises:
        Failed: there is no such file or server, or the file raised an error.
    """
    path, name = split(target)
    if not path.is_file():
        raise CommandError(f"there is no file {path}", Status.UNREACHABLE)
    with redirect_stdout(sys.stderr):
        return choose(load(path), path, name)


def split(target: str) -> tuple[Path, str | None]:
    """The file and the name. A colon in a file's name is part of it when there is such a file."""
    file, colon, name = target.rpartition(":")
    if not colon or Path(target).exists():
        return Path(target), None
    return Path(file), name


def load(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.resolve().parent))
    spec = spec_from_loader(MODULE_NAME, SourceFileLoader(MODULE_NAME, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[MODULE_NAME] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise CommandError(f"{place(error, path)}: {reason(error)}", Status.UNREACHABLE) from error
    return module


def place(error: BaseException, path: Path) -> str:
    """Where in the file it went wrong, as far as that can be said."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}, line {lines[-1]}" if lines else str(path)


def reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"


def choose(module: ModuleType, path: Path, name: str | None) -> Server:
    servers = {key: value for key, value in vars(module).items() if isinstance(value, Server)}
    if name is None and len(set(map(id, servers.values()))) == 1:
        return next(iter(servers.values()))
    found = servers.get(name or "server")
    if found is not None:
        return found
    if not servers:
        raise CommandError(f"{path} has no Server in it", Status.UNREACHABLE)
    names = ", ".join(f"{path}:{key}" for key in servers)
    missing = "several servers" if name is None else f"no server called {name!r}"
    raise CommandError(f"{path} has {missing}; choose one of: {names}", Status.UNREACHABLE)
