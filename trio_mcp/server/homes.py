"""The server that a function was registered with, for tests that call the function as its tool."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ReferenceType, WeakKeyDictionary, ref

# Weak on both sides: a server that is dropped takes its tools with it, and a function may be registered with many in turn.
_HOMES: WeakKeyDictionary[Callable[..., object], ReferenceType[object]] = WeakKeyDictionary()


def remember_home(function: Callable[..., object], server: object) -> None:
    """Note that a function is a tool of this server; the last one counts."""
    try:
        _HOMES[function] = ref(server)
    except TypeError:
        # It cannot be hashed or referred to weakly, as some callable objects. Then a test names its server and its tool.
        return


def home_of(function: Callable[..., object]) -> object | None:
    """Return the server that a function was last registered with; None if there is none, or it is gone."""
    try:
        home = _HOMES.get(function)
    except TypeError:  # as above
        return None
    return None if home is None else home()
