"""Numbers on a command line, as types of `argparse`."""

from __future__ import annotations

from argparse import ArgumentTypeError


def seconds(text: str) -> float:
    """Return a finite number of seconds, 0 or more."""
    try:
        # Written so that NaN fails: it compares as false with everything.
        if 0 <= (value := float(text)) < float("inf"):
            return value
    except ValueError:
        pass
    raise ArgumentTypeError(f"{text!r} is not a number of seconds")


def port(text: str) -> int:
    """Return a TCP port; 0 takes a free one."""
    if not text.isdecimal() or int(text) > 65535:
        raise ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def count(text: str) -> int:
    """Return a number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)
