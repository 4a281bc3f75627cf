"""How much memory this process may use, and giving back what it does not."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

UNKNOWN_MACHINE: Final = 4 * 1024**3
"""The memory of a machine that does not say how much it has."""


def usable_memory() -> int:
    """Return the bytes of memory that this process may use: those of the machine, or of its control group if it has fewer."""
    return min([machine_memory(), *control_group_limits()])


def machine_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return UNKNOWN_MACHINE


def control_group_limits(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> list[int]:
    """Return the memory limits, in bytes, of the control groups of this process (Linux, cgroups(7)); often none."""
    return [limit for file in control_group_files(root, own) if (limit := read_limit(file)) is not None]


def control_group_files(root: Path, own: Path) -> Iterator[Path]:
    """Yield the files that may hold such a limit: the limit of each group applies to the groups in it."""
    # A container sees its own group as the root, whatever path its processes are said to be in.
    yield root / "memory.max"
    yield root / "memory/memory.limit_in_bytes"
    try:
        groups = own.read_text().splitlines()
    except OSError:
        return
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            base, name = (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
            group = base / path.lstrip("/")
            for each in (group, *group.parents):
                if each.is_relative_to(base):
                    yield each / name


def read_limit(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    # "max" stands for no limit.
    return int(text) if text.isdigit() else None


def give_back_free_memory() -> None:
    """Return the pages that nothing uses, also between others, to the system, where the C library can (malloc_trim(3), glibc).

    It keeps them otherwise: results of a megabyte that were sent leave holes between those that were not, and what does not fit
    into a hole makes the process grow.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):
        # No C library of its own kind is there to be asked, as on Windows.
        return None
    return trim
