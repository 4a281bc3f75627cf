"""Waiting for what another thread or process does, of which nothing notifies."""

from __future__ import annotations

from collections.abc import Callable

import trio

BOUND = 30.0


async def until(is_so: Callable[[], object], seconds: float = BOUND) -> None:
    """Wait until something is so. Raises `trio.TooSlowError` after these seconds."""
    with trio.fail_after(seconds):
        while not is_so():  # noqa: ASYNC110  no event of ours
            await trio.sleep(0.01)
