"""The stderr of a server that the command starts: on a terminal it is shown without control characters."""

# A child usually writes to the stderr of its parent directly, and its escape sequences then reach the terminal. So it gets a pipe
# there, which a task copies. Into a file or a pipe go the bytes as they are: a program reads them, and no terminal.

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from .output import note

LINGER: Final = 0.5
"""Seconds for the rest of what the child wrote; a process that outlives it may keep the pipe open."""


@asynccontextmanager
async def printable_stderr() -> AsyncIterator[int | None]:
    """Yield the descriptor that a child process gets as its stderr; None for that of this process, if it is not a terminal.

    Leave the block when the child has ended. What it wrote is shown by then.
    """
    if not sys.stderr.isatty():
        yield None
        return
    reading, writing = os.pipe()
    copied = trio.Event()
    async with trio.lowlevel.FdStream(reading) as pipe, trio.open_nursery() as nursery:
        nursery.start_soon(copy, pipe, copied)
        try:
            yield writing
        finally:
            os.close(writing)
            with trio.move_on_after(LINGER, shield=True):
                await copied.wait()
            nursery.cancel_scope.cancel()


async def copy(pipe: trio.abc.ReceiveStream, copied: trio.Event) -> None:
    """Write what comes from the pipe to stderr, until its end; the last line is completed."""
    # It also replaces carriage returns, by line breaks: a line must not overwrite the one before it.
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    text = "\n"
    try:
        # One chunk at a time: a server that writes without an end waits for the terminal.
        async for chunk in pipe:
            if shown := decoder.decode(bytes(chunk)):
                text = shown
                note(text, end="")
        if shown := decoder.decode(b"", final=True):
            text = shown
            note(text, end="")
    finally:
        # Also when this task is cancelled: what the command writes next begins a line.
        if not text.endswith("\n"):
            note("")
        copied.set()
