"""Coroutines whose value cannot be used by mistake before it is awaited.

A plain coroutine is true: `assert client.call(tool)`, without `await`, would pass without a call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from types import CoroutineType, TracebackType
from typing import Final, Never, TypeVar, cast

T_co = TypeVar("T_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Coroutine[object, object, object]])

READ_BY_TOOLS: Final = ("_", "cr_", "gi_", "ag_")
"""How the names of attributes begin that Trio, asyncio and debuggers look for. No result has such a one."""


class Unawaited(Coroutine[object, object, T_co]):
    """A coroutine that raises `TypeError` where its value is used instead of awaited.

    Args:
        name: how the author has written the call, such as "ctx.elicit".
    """

    # It is gone when the coroutine runs: an `await` keeps only what `__await__` returns.
    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[object, object, T_co], name: str) -> None:
        # For type checkers: what an async function returns.
        self._coroutine: CoroutineType[object, object, T_co] = coroutine  # type: ignore[assignment]
        # Python warns with this name if the coroutine is never awaited.
        self._coroutine.__qualname__ = name

    def __await__(self) -> Generator[object, None, T_co]:
        return cast("Generator[object, None, T_co]", self._coroutine.__await__())

    def send(self, value: object) -> object:
        return self._coroutine.send(value)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> object:
        if isinstance(kind, BaseException):
            return self._coroutine.throw(kind)
        return self._coroutine.throw(kind, value, traceback)

    def close(self) -> None:
        self._coroutine.close()

    def __repr__(self) -> str:
        return f"<{self._coroutine.__qualname__}(...), a coroutine to await>"

    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> object:
        if name == "__name__":
            return self._coroutine.__qualname__
        if name.startswith(READ_BY_TOOLS):
            raise AttributeError(f"{self!r} has no attribute {name!r}")
        return self._raise_misuse()

    def _raise_misuse(self, *_others: object) -> Never:
        """Raise `TypeError`. A coroutine that has not begun is closed, so that no warning follows."""
        name = self._coroutine.__qualname__
        if inspect.getcoroutinestate(self._coroutine) == inspect.CORO_CREATED:
            self.close()
        raise TypeError(f"{name}(...) was not awaited: write `await {name}(...)`")

    __bool__ = __str__ = __format__ = _raise_misuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _raise_misuse
    __iter__ = __len__ = __getitem__ = __contains__ = _raise_misuse


def unawaited(name: str) -> Callable[[F], F]:
    """Return a decorator of an async function; what the function returns is an `Unawaited` with this name."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: object, **options: object) -> Unawaited[object]:
            return Unawaited(function(*args, **options), name)

        return cast("F", call)

    return decorate
