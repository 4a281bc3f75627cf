"""Numbers on a command line."""

from __future__ import annotations

from argparse import ArgumentTypeError


def seconds(text: str) -> float:
    """A length of time."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def port(text: str) -> int:
    """A TCP port."""
    if not text.isdecimal() or int(text) > 65535:
        raise ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)
