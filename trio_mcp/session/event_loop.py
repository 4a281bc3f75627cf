"""Programs and functions that were written for asyncio: how to tell, and what to tell their authors."""

from __future__ import annotations

from typing import Final

from sniffio import AsyncLibraryNotFoundError, current_async_library

from ..base.groups import leaf_exceptions

PAGE: Final = "https://github.com/trio-mcp/trio-mcp/blob/main/docs/asyncio.md"

ASYNCIO_ERRORS: Final = (
    (RuntimeError, "no running event loop"),
    (RuntimeError, "no current event loop"),
    (TypeError, "unrecognized yield message"),
    # `asyncio.Lock` and the like do not ask for the event loop before they have to wait.
    (AttributeError, "'NoneType' object has no attribute 'create_future'"),
)
"""The errors of asyncio without its event loop, and Trio's when a task awaits something of asyncio's."""


def check_event_loop() -> None:
    """Raise `RuntimeError` unless this runs on Trio."""
    library = current_async_library()
    if library != "trio":
        raise RuntimeError(
            f"trio_mcp runs on Trio, not on {library}: start your program with trio.run ({PAGE} has other ways)"
        )


def check_no_event_loop() -> None:
    """Raise `RuntimeError` if an event loop runs in this thread: another one in it would block the first."""
    try:
        library = current_async_library()
    except AsyncLibraryNotFoundError:
        return
    if library == "trio":
        raise RuntimeError("server.run() starts Trio, which runs here already: write `await server.serve(...)`")
    raise RuntimeError(
        f"server.run() starts Trio, and would block {library}, which runs in this thread: call it outside of {library}.run(), "
        f"or write `await asyncio.to_thread(trio.run, server.serve)` ({PAGE})"
    )


def asyncio_hint(error: BaseException, what: str) -> str:
    """Return advice to append to the text of an error, if asyncio code on Trio has raised it; else an empty text.

    Args:
        what: what runs on Trio, such as "tool".
    """
    if any(
        isinstance(leaf, kind) and text in text_of(leaf)
        for leaf in leaf_exceptions(error)
        for kind, text in ASYNCIO_ERRORS
    ):
        return f"; this {what} runs on Trio, not on asyncio: write trio.sleep and the like, or see {PAGE}"
    return ""


def text_of(error: BaseException) -> str:
    """Return the text of an exception, whatever its `__str__` does."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001  it is the author's code
        return f"its text failed with {type(failure).__name__}"
