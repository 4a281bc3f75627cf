"""Completion: suggestions for an argument of a prompt, or a variable of a resource template, while it is typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import trio

from ..session import Call, Plan, RequestFacts
from ..types import CompleteResult, Completion, Model
from .handler import Function, Handler, make_handler
from .signature import parameters_of

__all__ = ["MAX_VALUES", "Completer", "make_completer"]

MAX_VALUES = 100
"""Values of one answer (L-CMP-1s)."""

PARAMETERS = ("value", "arguments")

NOTHING = CompleteResult(completion=Completion(values=[]))
"""The answer for an argument that nobody completes."""


@dataclass(frozen=True, slots=True)
class Completer:
    """A registered completion function, and which of the parameters it takes."""

    _handler: Handler
    _takes: frozenset[str]

    def plan(self, facts: RequestFacts, target: str, value: str, arguments: Mapping[str, str]) -> Plan:
        """How to complete one value; `arguments` are those that were settled before."""
        given = {"value": value, "arguments": arguments}
        values: dict[str, object] = {name: given[name] for name in self._takes}
        return Plan(partial(self._run, facts, values), target)

    async def _run(self, facts: RequestFacts, values: dict[str, object], call: Call) -> Model:
        return CompleteResult(completion=completion(await self._handler(facts, values, call)))


def make_completer(function: Function, threads: trio.CapacityLimiter) -> Completer:
    """A completer from a function.

    Raises:
        TypeError: it has other parameters than `value`, `arguments` and a context.
    """
    taken, context, _ = parameters_of(function)
    names = frozenset(parameter.name for parameter in taken)
    if "value" not in names or not names.issubset(PARAMETERS):
        raise TypeError(
            f"{function.__qualname__}: a completion takes `value`, and if it likes `arguments` and a Context"
        )
    return Completer(make_handler(function, context, threads), names)


def completion(value: object) -> Completion:
    """What a completion function returned, cut to what one answer may have; the rest is counted (L-CMP-1s)."""
    if isinstance(value, Completion):
        found, total, more = value.values, value.total, value.has_more
    else:
        found = list(cast("Sequence[str]", value))
        total, more = len(found), None
    cut = len(found) > MAX_VALUES
    return Completion(values=found[:MAX_VALUES], total=total, has_more=True if cut else bool(more))
