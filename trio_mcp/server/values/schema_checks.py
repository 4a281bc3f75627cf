"""Validation of a peer's values against an author's JSON Schema, in a thread if it is expensive.

A hostile value can cost a second. Nearly every check takes less than a millisecond, and is made where the value is needed. One
that would take more than about ten milliseconds is abandoned there and repeated in a thread, which pauses every millisecond so
that other tasks run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

import trio
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ... import server
from ...protocol.schema.json_schema import Schema
from ...protocol.schema.references import CheckTooExpensive
from ...runtime import ThreadLimiter
from ...types import JsonValue

T = TypeVar("T")

# One at a time: two would not be faster, because both need the interpreter.
_LIMITER: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("schema checks")


class DeferredCheck(Exception, Generic[T]):
    """A check that has to be made in a thread; `decide` makes it, and what follows from it.

    Args:
        finish: returns what follows from the check, as it would have in one go.
    """

    def __init__(self, finish: Callable[[], T]) -> None:
        super().__init__("a check takes too long for the event loop")
        self._finish = finish

    async def decide(self, threads: ThreadLimiter, caller: Hashable | None = None) -> T:  # noqa: ARG002  for those that may hang
        """Make the check in a thread; raises what `finish` raises.

        Args:
            threads: those of the server, for a check that may take any time.
            caller: whose thread it is.

        A cancel ends the wait for the thread.
        """
        return await self.make()

    async def make(self) -> T:
        """Make a check by a schema in the thread for those.

        A cancel ends the wait for the thread. A check that has begun ends by itself, after `MAX_STEPS` at the latest.
        """
        try:
            limiter = _LIMITER.get()
        except LookupError:
            limiter = trio.CapacityLimiter(1)
            _LIMITER.set(limiter)
        return await trio.to_thread.run_sync(self._finish, limiter=limiter)


def checked(schema: Schema, value: JsonValue, then: Callable[[str | None], T]) -> T:
    """Return `then(problem)` with the problem of a value, or None.

    Raises:
        DeferredCheck: the check would take long.
    """
    with suppress(CheckTooExpensive):
        return then(schema.quick_check(value))
    # After the block, so that the first error is not its context: their tracebacks would keep the value until the garbage
    # collector runs.
    raise DeferredCheck(lambda: then(schema.check(value, pause=partial(time.sleep, 0))))


# The errors of a validation in one line, for a log, a model or a user.

MAX_PROBLEMS = 5
"""How many problems the line about a wrong value names."""


def error_summary(error: ValidationError, *steps: str, known: Collection[str] = ()) -> str:
    """Return a validation error in one line: `flight: Input should be a valid string; ...`.

    Args:
        steps: where the value is that was validated, if it is a member of another one.
        known: the names that its members may have, to suggest one for another.
    """
    # Bounded, because names and texts come from the peer, and the line goes into a log and into a model's context.
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{error_path((*steps, *problem['loc']))}: {problem['msg'][:200]}{meant_member(problem, known)}"
        for problem in problems[:MAX_PROBLEMS]
    )


def meant_member(problem: ErrorDetails, known: Collection[str]) -> str:
    """Return a question with the known name of a member that is unknown; empty for other problems, and if none is near."""
    if problem["type"] != "extra_forbidden" or len(problem["loc"]) != 1:
        return ""
    return server.other_names.meant(str(problem["loc"][0]), known)


def error_path(steps: tuple[int | str, ...]) -> str:
    """Return where a problem is, with dots between the steps; the names are the peer's, so they are cut."""
    return ".".join(str(step)[:64] for step in steps)[:256] or "value"
