"""Bytes as an expression of Python that a reader can look at and paste into a test."""

from __future__ import annotations

import re

REPEATED = re.compile(rb"(.{1,16}?)\1{19,}", re.DOTALL)


def literal(data: bytes) -> str:
    """Return an expression for these bytes, in which long repetitions are products."""
    parts, end = [], 0
    for found in REPEATED.finditer(data):
        if found.start() > end:
            parts.append(repr(data[end : found.start()]))
        unit = found[1]
        parts.append(f"{unit!r} * {len(found[0]) // len(unit)}")
        end = found.end()
    if end < len(data) or not parts:
        parts.append(repr(data[end:]))
    return " + ".join(parts)
