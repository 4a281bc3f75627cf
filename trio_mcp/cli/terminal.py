"""Reading lines from the terminal without blocking the event loop.

The terminal's line editing is used, and the loop waits for its descriptor.
"""

# The alternative is a thread that blocks in `input()`. It cannot be cancelled: if a question is withdrawn while the user types,
# such a thread would read the line that answers the next question, and drop it.

from __future__ import annotations

import os
import sys

import trio

from .output import note

STDIN = 0
CHUNK = 4096


class Terminal:
    """The user at stdin. Questions are shown on stderr, because stdout is for results."""

    def __init__(self) -> None:
        self._begun = b""

    @property
    def is_interactive(self) -> bool:
        """Whether a user can be asked."""
        return sys.stdin is not None and sys.stdin.isatty()

    async def ask(self, prompt: str) -> str | None:
        """Show a prompt and return the line that the user enters, without its end; None for Ctrl-D.

        After a cancel, the complete lines that were read are the answers of the next questions.
        """
        note(prompt, end="")
        while b"\n" not in self._begun:
            await trio.lowlevel.wait_readable(STDIN)
            try:
                chunk = os.read(STDIN, CHUNK)
            # A terminal that was closed raises EIO, where a pipe would return no bytes.
            except OSError:
                chunk = b""
            if not chunk:
                note("")
                self._begun = b""
                return None
            self._begun += chunk
        # The rest is kept: a user may have typed, or pasted, the answers of several questions.
        line, _, self._begun = self._begun.partition(b"\n")
        return line.decode(errors="replace")
