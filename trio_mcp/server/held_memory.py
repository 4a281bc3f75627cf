"""What a call holds for its author, in the memory budget of the service."""

from __future__ import annotations

from collections.abc import Callable

from .context import Context


def keep_until_end(ctx: Context) -> Callable[[int], None]:
    """Return a function that draws bytes from the memory budget until the call ends; it raises `LimitExceeded` without room."""
    return ctx._call.actor.keep  # noqa: SLF001  a context has no such method: its author's values are not counted
