"""Completion: suggestions for an argument of a prompt, or a variable of a resource template, while it is typed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from ..runtime import Lane, ThreadLimiter
from ..session import CallPort, Plan
from ..types import CompleteResult, Completion, Model
from .handler import Function, Handler, make_handler
from .results import ReturnError, shown
from .signature import parameters_of

MAX_VALUES = 100
"""Values of one answer (L-CMP-1s)."""

PARAMETERS = ("value", "arguments")

NO_SUGGESTIONS = (None, type(None), str, bytes, int, float, bool, dict)

NOTHING = CompleteResult(completion=Completion(values=[]))
"""The answer for an argument that nobody completes."""


@dataclass(frozen=True, slots=True)
class Completer:
    """A registered completion function, and which of the parameters it takes."""

    _handler: Handler
    _takes: frozenset[str]

    def plan(self, target: str, value: str, arguments: Mapping[str, str]) -> Plan:
        """How to complete one value; `arguments` are those that were settled before."""
        given = {"value": value, "arguments": arguments}
        values: dict[str, object] = {name: given[name] for name in self._takes}
        return Plan(partial(self._run, values), target)

    async def _run(self, values: dict[str, object], call: CallPort, lane: Lane) -> Model:
        return CompleteResult(completion=completion(await self._handler(values, call, lane)))


def make_completer(function: Function, threads: ThreadLimiter) -> Completer:
    """A completer from a function.

    Raises:
        TypeError: it has other parameters than `value`, `arguments` and a context, or declares that it returns no suggestions.
    """
    taken, context, returns = parameters_of(function)
    if returns in NO_SUGGESTIONS:
        raise TypeError(f"{function.__qualname__}: a completion returns list[str] or a Completion, not {returns}")
    names = frozenset(parameter.name for parameter in taken)
    if "value" not in names or not names.issubset(PARAMETERS):
        raise TypeError(
            f"{function.__qualname__}: a completion takes `value`, and if it likes `arguments` and a Context"
        )
    return Completer(make_handler(function, context, threads), names)


def suggestions(value: object) -> list[str]:
    """What a completion function returned, if it is a list of strings or the like.

    Raises:
        ReturnError: it is something else, such as one string.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ReturnError(f"a completion returns a list of strings, not {shown(value)}")
    found = list(value)
    for suggestion in found:
        if not isinstance(suggestion, str):
            raise ReturnError(f"a completion returns a list of strings, not one with {shown(suggestion)}")
    return found


def completion(value: object) -> Completion:
    """What a completion function returned, cut to what one answer may have; the rest is counted (L-CMP-1s)."""
    if isinstance(value, Completion):
        found, total, more = value.values, value.total, value.has_more
    else:
        found = suggestions(value)
        total, more = len(found), None
    cut = len(found) > MAX_VALUES
    return Completion(values=found[:MAX_VALUES], total=total, has_more=True if cut else bool(more))
