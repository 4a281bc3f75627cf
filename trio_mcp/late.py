"""Packages that load what they export when it is first used (PEP 562).

A server loads so only the features that it uses. `docs/internals/architecture.md` lists the packages; in no other place is an
import deferred.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package that loads its modules when they are first used.

    Args:
        package: its name.
        modules: the names that each of its modules exports, separated by spaces. `package.module` loads the module itself.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def load(name: str) -> object:
        if name in modules and name not in module_of:
            return import_module(f"{package}.{name}")
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{package}.{module_of[name]}"), name)
        # So that this function is called once for each name.
        vars(sys.modules[package])[name] = value
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return load, names


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
