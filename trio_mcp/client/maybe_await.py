"""Functions of the program that may be plain or async."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar, cast

T = TypeVar("T")


async def maybe_await(value: T | Awaitable[T]) -> T:
    """Return a value, or await it first if it is awaitable: a handler may be plain or async."""
    if isinstance(value, Awaitable):
        return cast("T", await value)
    return value
