"""Loading the server from a Python file."""

from __future__ import annotations

import sys
import traceback
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from ..server import Server
from .errors import CommandError, Status

MODULE_NAME = "served_file"


def load_server(target: str, *, tell_errors: bool = False) -> Server:
    """Return the server in `FILE` or `FILE:name`; without a name the only one, or the one called `server`.

    The file is imported, so code under `if __name__ == "__main__":` does not run. Its folder comes first on the path, as it
    does for `python FILE`.

    Args:
        tell_errors: send unexpected exceptions to the callers, unless the server's own options say whether to.

    Raises:
        CommandError: there is no such file or server, or the file raised an error.
    """
    path, name = split_target(target)
    if not path.is_file():
        raise CommandError(f"there is no file {path}", Status.UNREACHABLE)
    # stdout may be the connection to the client, which a `print` would break.
    with redirect_stdout(sys.stderr):
        server = choose(load(path), path, name)
    if tell_errors and server.options.tell_errors is None:
        return server.with_options(replace(server.options, tell_errors=True))
    return server


def split_target(target: str) -> tuple[Path, str | None]:
    """Return the file and the name. A colon belongs to the file's name if there is such a file."""
    file, colon, name = target.rpartition(":")
    if not colon or Path(target).exists():
        return Path(target), None
    return Path(file), name


def load(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.resolve().parent))
    spec = spec_from_loader(MODULE_NAME, SourceFileLoader(MODULE_NAME, str(path)))
    assert spec is not None
    assert spec.loader is not None
    # In `sys.modules` before it runs: dataclasses and `get_type_hints` look the module up by its name.
    module = sys.modules[MODULE_NAME] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    # A file that calls `sys.exit` or `server.run()` at its top level cannot be served either.
    except (Exception, SystemExit) as error:
        raise CommandError(f"{error_location(error, path)}: {error_text(error)}", Status.UNREACHABLE) from error
    return module


def error_location(error: BaseException, path: Path) -> str:
    """Return the file, and the last line in it that the traceback names, if there is one."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}, line {lines[-1]}" if lines else str(path)


def error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"


def choose(module: ModuleType, path: Path, name: str | None) -> Server:
    """Return the server of that name; without a name the only one, or the one called `server`."""
    servers = {key: value for key, value in vars(module).items() if isinstance(value, Server)}
    # By identity: a module may bind one server to two names.
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
