"""Packages that load what they export when it is first used (PEP 562).

A server loads so only the features that it uses. Each package has one table of what it exports; `docs/internals/architecture.md`
lists the packages. In no other place is an import deferred.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Final, Never

_IN_CALLS: dict[str, tuple[str, ...]] = {}
"""The modules that calls may need, by package."""


def exports(
    package: str, modules: Mapping[str, str], *, in_calls: str = ""
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, `__dir__` and `__all__` of a package that loads its modules when they are first used.

    Args:
        package: its name.
        modules: the names that each of its modules exports, separated by spaces. `package.module` loads the module itself. A
            module that begins with `trio_mcp.` is one of another package.
        in_calls: modules that calls may need, separated by spaces; `modules_in_calls` yields them.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}
    _IN_CALLS[package] = tuple(f"{package}.{module}" for module in in_calls.split())

    def load(name: str) -> object:
        if name in modules and name not in module_of:
            return import_module(f"{package}.{name}")
        if name not in module_of:
            # A class: a function may have the name of a module, which `from package import module` then looks for.
            raise missing_name(package, name, is_import=name[0].isupper() and importing_module() is not None)
        module = module_of[name]
        path = module if module.startswith("trio_mcp.") else f"{package}.{module}"
        value: object = getattr(import_module(path), name)
        # So that this function is called once for each name.
        vars(sys.modules[package])[name] = value
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return load, names, sorted(module_of, key=_rank)


def _rank(name: str) -> tuple[int, str]:
    """Constants first, then classes, then functions: the order that ruff keeps in a list (RUF022)."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def modules_in_calls() -> Iterator[str]:
    """Yield the modules that calls may need, of all packages that are loaded, also of those that are loaded meanwhile."""
    done = set[str]()
    while waiting := _IN_CALLS.keys() - done:
        done |= waiting
        for package in waiting:
            yield from _IN_CALLS[package]


def missing_name(module: str, name: str, *, is_import: bool) -> AttributeError | ImportError:
    """Return the error for a name that a module below `trio_mcp` does not have: what to write instead, if that is known.

    Args:
        is_import: whether it is imported. A hint needs an `ImportError`: an `AttributeError` would become one without it.
    """
    if is_import and (hint := hint_for_name(name)):
        return ImportError(f"cannot import name {name!r} from {module!r}: {hint}", name=module)
    return AttributeError(f"module {module!r} has no attribute {name!r}")


def hint_for_name(name: str) -> str:
    """Return what to write to import a name; empty if nothing is known."""
    if name in vars(sys.modules["trio_mcp"])["__all__"]:
        return "it is in trio_mcp"
    # By its name: a program without a mistake does not load the hints.
    hint: str = import_module("trio_mcp.import_hints").hint(name)
    return hint


def hinting(module: str, names: str) -> Callable[[str], Never]:
    """Return the `__getattr__` of a module in which users of other libraries look for names, separated by spaces."""

    def missing(name: str) -> Never:
        raise missing_name(module, name, is_import=name in names.split())

    return missing


def importing_module() -> str | None:
    """Return the name of the module whose `from package import name` calls the `__getattr__` of a package; call it there.

    None if the name is read as an attribute, as by `hasattr`.
    """
    # `from package import name` turns an `AttributeError` into an `ImportError` with another text, and `hasattr` passes an
    # `ImportError` on: what `__getattr__` has to raise depends on who asks. The statement asks in this function of importlib.
    caller = sys._getframe(2)  # noqa: SLF001
    if caller.f_code.co_name != "_handle_fromlist" or caller.f_back is None:
        return None
    name: object = caller.f_back.f_globals.get("__name__")
    return name if isinstance(name, str) else ""


class _MissingModules:
    """The last finder of Python: it finds nothing, and says what to write instead of modules that other libraries have."""

    def __init__(self, package: str, hint: Callable[[str], str]) -> None:
        self._prefix = f"{package}."
        self._hint = hint

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        """Raise `ModuleNotFoundError` with a hint, if there is one."""
        if name.startswith(self._prefix) and (hint := self._hint(name.removeprefix(self._prefix))):
            raise ModuleNotFoundError(f"No module named {name!r}: {hint}", name=name)


def hint_at_modules(package: str, hint: Callable[[str], str]) -> None:
    """Show hints when modules of a package are imported that it does not have.

    Args:
        hint: returns what to write instead of the module of this name in the package; empty if nothing is known.
    """
    sys.meta_path.append(_MissingModules(package, hint))


# The memory of a process that serves: what is loaded is not scanned for garbage, and what large messages took is used again.

THRESHOLD: Final = 10_000
"""New objects after which the garbage collector of a server scans the youngest generation."""
# Python's default is 700 or 2,000. A call makes about sixty objects that the collector tracks, and reference counting frees
# nearly all of them when it ends, so that a scan after every few calls finds nothing.

LARGE: Final = 4 << 20
"""Bytes of the largest block of memory that is used again: a message has as many by default."""


@contextmanager
def no_collection() -> Generator[None]:
    """Load modules in the block without a collection: that makes a hundred thousand objects and hardly any garbage."""
    # To look for it would take a tenth of the start.
    collecting, before = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            # All objects are old now, as after the collections that they would have outlived. But not if the program has frozen
            # some, which this would thaw; to count them takes as long as to scan them.
            if len(sys.modules) > before and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def settle_for_server() -> None:
    """Prepare for serving, in a process that exists for it: what is loaded now is never scanned again, and freed memory kept."""
    freeze()
    gc.set_threshold(THRESHOLD)
    _keep_freed_memory()


def freeze() -> None:
    """Never scan for garbage again what is loaded now, since modules and tools live as long as the process."""
    # Only what is young is collected first: to look through everything takes a tenth of the start, and finds little but what
    # loading classes leaves behind.
    gc.collect(1)
    gc.freeze()


def _keep_freed_memory() -> None:
    """Let the C library reuse the memory of large messages, instead of returning it to the kernel after each."""
    # glibc learns from the first large block that is freed: it maps blocks of that size no more, and keeps twice as much at the
    # end of its heap (mallopt(3), M_MMAP_THRESHOLD). Left to chance, half of the processes took 700 page faults for each message
    # of a megabyte, and 1.7 times the CPU time. The block is never written to, so it takes no memory.
    bytes(LARGE)
