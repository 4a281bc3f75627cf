"""What a call between Trio and asyncio needs of both: the loop, and how each side reaches the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Protocol


class OpenCall(Protocol):
    """A call that crosses from asyncio to Trio."""

    def end(self) -> None:
        """Wake the asyncio task that awaits the call."""


class Host(Protocol):
    """An asyncio loop beside a Trio run: the one whose guest Trio is, or one in a thread.

    Attributes:
        loop: the loop.
        calls: the calls from asyncio to Trio that are open.
    """

    loop: asyncio.AbstractEventLoop
    calls: set[OpenCall]

    def start(self, function: Callable[[], object], context: Context) -> None:
        """Call a function in the thread of the loop, from Trio: at once, or in a later turn."""

    def settle(self, function: Callable[[], object]) -> None:
        """Call a function that sets a future or cancels a task of the loop, from Trio."""

    def to_trio(self, function: Callable[[], object]) -> None:
        """Call a function in the thread of Trio, from the loop. It must not raise."""
