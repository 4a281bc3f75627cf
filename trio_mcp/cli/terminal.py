"""Reading lines from the terminal without holding up the event loop.

The terminal's own line editing is used, and the loop waits for it as for any other descriptor. No thread sits in a
read: when a question is withdrawn in the middle, such a thread would take the next question's answer with it.
"""

from __future__ import annotations

import os
import sys

import trio

from .output import note

STDIN = 0
CHUNK = 4096


class Terminal:
    """The person at stdin. Questions are shown on stderr, for stdout is for results."""

    def __init__(self) -> None:
        self._begun = b""

    @property
    def is_interactive(self) -> bool:
        """Whether there is a person to ask."""
        return sys.stdin is not None and sys.stdin.isatty()

    async def ask(self, prompt: str) -> str | None:
        """Show a prompt and return the line that is entered, without its end; None for Ctrl-D.

        A cancel leaves what was typed for the next question.
        """
        note(prompt, end="")
        while b"\n" not in self._begun:
            await trio.lowlevel.wait_readable(STDIN)
            try:
                chunk = os.read(STDIN, CHUNK)
            except OSError:  # the terminal is gone
                chunk = b""
            if not chunk:
                note("")
                self._begun = b""
                return None
            self._begun += chunk
        line, _, self._begun = self._begun.partition(b"\n")
        return line.decode(errors="replace")
