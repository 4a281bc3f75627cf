"""Reading lines from the terminal without blocking the event loop.

The terminal's line editing is used, and the loop waits for its descriptor.
"""

# The alternative is a thread that blocks in `input()`. It cannot be cancelled: if a question is withdrawn while the user types,
# such a thread would read the line that answers the next question, and drop it.

from __future__ import annotations

import os
import sys
from contextlib import suppress

import trio

from ...base.values import printable
from .output import note

STDIN = 0
CHUNK = 4096


class Terminal:
    """The user at stdin. Questions are shown on stderr, because stdout is for results."""

    def __init__(self) -> None:
        self._begun = b""
        self._descriptor = STDIN

    @property
    def is_interactive(self) -> bool:
        """Whether a user can be asked."""
        return sys.stdin is not None and sys.stdin.isatty()

    def note(self, text: str, end: str = "\n") -> None:
        """Show a line."""
        note(text, end)

    async def ask(self, prompt: str) -> str | None:
        """Show a prompt and return the line that the user enters, without its end; None for Ctrl-D.

        After a cancel, the complete lines that were read are the answers of the next questions.
        """
        self.note(prompt, end="")
        while b"\n" not in self._begun:
            await trio.lowlevel.wait_readable(self._descriptor)
            try:
                chunk = os.read(self._descriptor, CHUNK)
            # Another process that reads the terminal was faster.
            except BlockingIOError:
                continue
            # A terminal that was closed raises EIO, where a pipe would return no bytes.
            except OSError:
                chunk = b""
            if not chunk:
                self.note("")
                self._begun = b""
                return None
            self._begun += chunk
        # The rest is kept: a user may have typed, or pasted, the answers of several questions.
        line, _, self._begun = self._begun.partition(b"\n")
        return line.decode(errors="replace")


class ControllingTerminal(Terminal):
    """The user at the terminal that the process was started from, for a command whose stdin and stderr are a host's.

    It never blocks: the host may read the same terminal, and a user may stop its output.

    Raises:
        OSError: there is none.
    """

    def __init__(self, path: str = "/dev/tty") -> None:
        super().__init__()
        # Opened by its path, so that the flag is for this descriptor alone.
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)

    @property
    def is_interactive(self) -> bool:
        return True

    def note(self, text: str, end: str = "\n") -> None:
        """Show a line; what the terminal does not take at once is not shown.

        Raises:
            OSError: the terminal was closed.
        """
        shown = (printable(text) + end).encode(errors="replace")
        with suppress(BlockingIOError):
            while shown:
                shown = shown[os.write(self._descriptor, shown) :]

    async def ask(self, prompt: str) -> str | None:
        """Show a prompt and return the line that the user enters; None for Ctrl-D, or from a process in the background."""
        if self._is_in_background():
            # The system stops a process that reads there.
            self.note(f"{prompt}(not asked: the proxy runs in the background)")
            return None
        return await super().ask(prompt)

    def _is_in_background(self) -> bool:
        try:
            return os.tcgetpgrp(self._descriptor) != os.getpgrp()
        except OSError:
            return False  # it controls nothing

    def close(self) -> None:
        """Close the terminal; nothing may be asked any more."""
        os.close(self._descriptor)
