"""Mistakes in what a program passes to a client, refused where it passes them and in its own words."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import trio

from ..errors import RequestTimeout
from ..protocol.revisions import REVISIONS
from ..types.logging import LOGGING_LEVELS

T = TypeVar("T")

MODES = ("auto", "modern", "legacy", *REVISIONS)


def is_function(name: str, value: object) -> None:
    """Refuse a handler that cannot be called; None is no handler."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} is a function, not {type(value).__name__}")


def plain(**callbacks: object) -> None:
    """Refuse an async function where nobody awaits what is called: it would never run."""
    for name, value in callbacks.items():
        is_function(name, value)
        called = getattr(type(value), "__call__", None)  # noqa: B004  its code is looked at, not whether it is there
        if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(called):
            raise TypeError(
                f"{name} is a plain function, not an async one: nobody awaits it; "
                "let it put what it gets into a memory channel (send_nowait), and await in a task of yours"
            )


def known_mode(mode: object) -> None:
    """Refuse a mode that there is not."""
    if mode not in MODES:
        raise ValueError(f"mode={mode!r} is none of {', '.join(MODES)}")


def known_level(name: str, level: object) -> None:
    """Refuse a log level that there is not."""
    if level not in LOGGING_LEVELS:
        raise ValueError(f"{name} is one of {', '.join(LOGGING_LEVELS)}, not {level!r}")


def seconds(**durations: object) -> None:
    """Refuse what is no time to wait."""
    for name, value in durations.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} is a number of seconds (math.inf for no end), not {value!r:.80}")
        if value < 0 or math.isnan(value):
            raise ValueError(f"{name} is a number of seconds from 0 on, not {value!r}")


def size(name: str, value: object) -> None:
    """Refuse what is no number of bytes."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a number of bytes, not {value!r:.80}")
    if value < 1:
        raise ValueError(f"{name} is a number of bytes from 1 on, not {value}")


async def within(timeout: float, what: str, fn: Callable[[], Awaitable[T]]) -> T:
    """What a function returns, unless it takes longer than `timeout` seconds."""
    seconds(timeout=timeout)
    with trio.move_on_after(timeout):
        return await fn()
    raise RequestTimeout(f"{what} did not finish within {timeout:g} seconds; it was cancelled at the server")


def texts(what: str, values: object) -> dict[str, str]:
    """A mapping of strings to strings.

    Raises:
        TypeError: it is not, and the text says where.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"{what} are a mapping of names to strings, not {type(values).__name__}")
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"{what} are strings; {name!r:.80} is {type(value).__name__}")  # it may be secret
    return dict(values)
