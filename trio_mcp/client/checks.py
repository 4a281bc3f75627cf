"""Checks of the arguments that a program passes to a client: each raises where the mistake was made, and names the argument."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping

from ..protocol.revisions import REVISIONS
from ..types.logging import LOGGING_LEVELS

MODES = ("auto", "modern", "legacy", *REVISIONS)


def check_callable(name: str, value: object) -> None:
    """Raise unless `value` can be called."""
    if not callable(value):
        raise TypeError(f"{name} is a function, not {type(value).__name__}")


def check_sync_callback(name: str, value: object) -> None:
    """Raise unless `value` is a plain function: nothing awaits it, so an async one would never run."""
    check_callable(name, value)
    called = getattr(type(value), "__call__", None)  # noqa: B004  its code is looked at, not whether it is there
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(called):
        raise TypeError(
            f"{name} is a plain function, not an async one: nobody awaits it; "
            "let it put what it gets into a memory channel (send_nowait), and await in a task of yours"
        )


def check_mode(mode: object) -> None:
    """Raise unless `mode` is one of `MODES`."""
    if mode not in MODES:
        raise ValueError(f"mode={mode!r} is none of {', '.join(MODES)}")


def check_log_level(name: str, level: object) -> None:
    """Raise unless `level` is a log level of MCP."""
    if level not in LOGGING_LEVELS:
        raise ValueError(f"{name} is one of {', '.join(LOGGING_LEVELS)}, not {level!r}")


def check_seconds(name: str, value: object) -> None:
    """Raise unless `value` is a number of seconds from 0 on; infinity is one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number of seconds (math.inf for no end), not {value!r:.80}")
    if value < 0 or math.isnan(value):
        raise ValueError(f"{name} is a number of seconds from 0 on, not {value!r}")


def check_size(name: str, value: object) -> None:
    """Raise unless `value` is a number of bytes from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a number of bytes, not {value!r:.80}")
    if value < 1:
        raise ValueError(f"{name} is a number of bytes from 1 on, not {value}")


def check_text(name: str, value: object) -> None:
    """Raise unless `value` is a string."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is a string, not {type(value).__name__}: {value!r:.80}")


def check_str_mapping(name: str, values: object) -> dict[str, str]:
    """Return a copy of a mapping of strings to strings as a dict; raise for any other value."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} are a mapping of names to strings, not {type(values).__name__}")
    for key, value in values.items():
        if not isinstance(key, str) or not isinstance(value, str):
            # Not the value itself: it may be a secret.
            raise TypeError(f"{name} are strings; {key!r:.80} is {type(value).__name__}")
    return dict(values)
