"""Record how control passes between the files of this project, under `sys.setprofile`.

What counts:

- An *own call* is the start of a function of `trio_mcp` or `trio_mcp_transports`. Resuming a coroutine or a generator starts
  nothing, and a comprehension is part of its function. Methods that `dataclass` or `NamedTuple` generate belong to no file.
- A *change of file* is counted when an own frame gets control and the own frame that had it before is in another file. A frame
  gets control when it is called, when what it called returns to it, and when its task goes on. Library frames are skipped:
  from `a.py` through Trio into `b.py` is one change. A C function has no frame, so what it calls is called by its caller.
- When a task suspends, no frame in its chain of awaits gets control, and when it goes on, only the innermost own frame does. So
  a switch of tasks is at most one change, however deep the chain is.
"""

from __future__ import annotations

import dis
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

import trio_mcp
import trio_mcp_transports

FOLDERS = tuple(f"{Path(package.__path__[0])}/" for package in (trio_mcp, trio_mcp_transports))
NO_FUNCTIONS = {"<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}


@dataclass
class Step:
    """How an own function got control: by a call, a return, or because its task went on."""

    how: str
    file: str
    function: str
    changed: bool


@dataclass
class Leg:
    """What was recorded from one anchor on."""

    name: str
    steps: list[Step] = field(default_factory=list)
    pairs: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """How often control passed in which way from one file to another."""

    @property
    def calls(self) -> int:
        return sum(step.how == "call" and step.function not in NO_FUNCTIONS for step in self.steps)

    @property
    def files(self) -> int:
        return len({step.file for step in self.steps})

    @property
    def changes(self) -> int:
        return self.pairs.total()

    @property
    def returns(self) -> int:
        """Those of the changes that went back to a caller."""
        return sum(count for (how, _, _), count in self.pairs.items() if how == "return")

    def passed(self, how: str, code: CodeType) -> None:
        """Control passed to a function."""
        file, function = own_file(code), code.co_qualname
        last = self.steps[-1] if self.steps else None
        changed = last is not None and last.file != file
        if last is not None and changed:
            self.pairs[how, last.file, file] += 1
        if how == "call" or last is None or (last.file, last.function) != (file, function):
            self.steps.append(Step(how, file, function, changed))


class Recorder:
    """Records legs, each from the call of its anchor until the next one begins or `end` is called."""

    def __init__(self) -> None:
        self.legs: list[Leg] = []
        self._planned: deque[tuple[str, CodeType]] = deque()
        self._leg: Leg | None = None
        self._resumed: FrameType | None = None
        """An own frame that goes on, until it is known whether it only leads to a frame that it awaits."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)

    def plan(self, legs: Iterable[tuple[str, CodeType]]) -> None:
        """Name the legs that come next and the functions with whose call they begin."""
        self._planned.extend(legs)

    def end(self) -> None:
        """End the last leg that was planned.

        Raises:
            RuntimeError: it has not begun, or another was still to come: the anchors are not on the path any more.
        """
        if self._planned or self._leg is None:
            raise RuntimeError(f"not reached: {[name for name, _ in self._planned] or 'a leg'}")
        self._leg = None

    def _on_event(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        going_on = event == "call" and not starts(code, frame.f_lasti)
        resumed, self._resumed = self._resumed, None
        if resumed is not None and not (going_on and frame.f_back is resumed):
            self._passed("resume", resumed.f_code)
        if going_on:
            self._resumed = frame if own_file(code) else None
        elif event == "call" and own_file(code):
            self._begin_leg(code)
            self._passed("call", code)
        elif event == "return" and frame.f_back is not None and not suspends(code, frame.f_lasti):
            self._passed("return", frame.f_back.f_code)

    def _begin_leg(self, code: CodeType) -> None:
        if self._planned and self._planned[0][1] is code:
            self._leg = Leg(self._planned.popleft()[0])
            self.legs.append(self._leg)

    def _passed(self, how: str, code: CodeType) -> None:
        if self._leg is not None and own_file(code):
            self._leg.passed(how, code)


@cache
def own_file(code: CodeType) -> str:
    """The path of an own file, from its package on; empty for any other."""
    for folder in FOLDERS:
        if code.co_filename.startswith(folder):
            return f"{Path(folder).name}/{code.co_filename.removeprefix(folder)}"
    return ""


@cache
def starts(code: CodeType, at: int) -> bool:
    """Whether a frame that gets control at this instruction begins, and does not go on after a suspension."""
    first = next((each.offset for each in dis.get_instructions(code) if each.opname == "RESUME"), at)
    return at <= first


@cache
def suspends(code: CodeType, at: int) -> bool:
    """Whether a frame that gives up control at this instruction awaits something, and goes on later."""
    names = {each.offset: (each.opname, each.arg or 0) for each in dis.get_instructions(code)}
    name, arg = names.get(at, ("", 0))
    # CPython 3.11 is at the `YIELD_VALUE` then. Later versions, seen up to 3.14, are at the `RESUME` after it already.
    if name == "YIELD_VALUE":
        name, arg = names.get(at + 2, ("", 0))
    return name == "RESUME" and arg & 3 >= 2  # 1 is a generator's `yield`, 2 and 3 are awaits
