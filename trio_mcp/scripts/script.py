"""The script of a test: answers in order, or one function that answers every question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from enum import Enum
from typing import Final

from pydantic import BaseModel

VALUES: Final = (BaseModel, Exception, Enum, str, int, float, Mapping, list, tuple)
"""What an answer may be, apart from a dataclass, a function and an action."""


class Action:
    """Base of what a client does instead of answering at once, such as `Delay`."""

    __slots__ = ()


def check_answer(where: str, answer: object, *, actions: bool) -> None:
    """Raise `TypeError` if something cannot be an answer of a script.

    Args:
        actions: whether an action may be in the script.
    """
    if isinstance(answer, type):
        raise TypeError(f"{where}: {answer.__name__} is a class: write {answer.__name__}(...)")
    if isinstance(answer, Action):
        if not actions:
            raise TypeError(f"{where}: {answer!r:.80} is for MockClient")
    elif not isinstance(answer, VALUES) and not is_dataclass(answer) and not callable(answer):
        expected = "a value, a result, a function of the question, an exception" + (
            " or a step such as Delay(5, ...)" if actions else ""
        )
        hint = "; {} confirms a form without fields" if answer is None else ""
        raise TypeError(f"{where}: an answer is {expected}, not {answer!r:.80}{hint}")


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of a script, and how errors name it: `answer 2 of elicits`."""

    name: str
    answer: object


class Script:
    """The answers to one kind of question.

    Args:
        name: the option that gave it, for errors.
        answers: a list of answers, a function that answers every question, or None if there are none.
        actions: whether an action may be an answer.

    Raises:
        TypeError: it is something else, or has something that is not an answer.
    """

    def __init__(
        self, name: str, answers: Sequence[object] | Callable[..., object] | None, *, actions: bool = False
    ) -> None:
        self.name = name
        self._every = answers if callable(answers) else None
        self._answers: tuple[object, ...] = ()
        if answers is not None and not callable(answers):
            # A string is a sequence of letters, and a dict is one answer: both are frequent mistakes.
            if isinstance(answers, str | dict) or not isinstance(answers, Sequence):
                raise TypeError(f"{name}: a list of answers, such as {name}=[{answers!r:.80}], not {answers!r:.80}")
            self._answers = tuple(answers)
        for number, answer in enumerate(self._answers, 1):
            check_answer(f"answer {number} of {name}", answer, actions=actions)
        self._used = 0

    @property
    def left(self) -> list[Step]:
        """The answers that no question has used; a function that answers every question, if there was none."""
        if self._every is not None:
            return [] if self._used else [Step(self.name, self._every)]
        return [self._step(number) for number in range(self._used + 1, len(self._answers) + 1)]

    def has(self, wanted: Callable[[object], bool]) -> bool:
        """Return whether the script has such an answer; a function that answers every question is one."""
        return any(map(wanted, self._answers if self._every is None else [self._every]))

    @property
    def last(self) -> Step | None:
        """The last answer that was taken; None before the first."""
        if self._every is not None or not self._used:
            return None
        return self._step(self._used)

    def take(self) -> Step | None:
        """Return the next answer, or None if none is left."""
        if self._every is None and self._used == len(self._answers):
            return None
        self._used += 1
        return Step(self.name, self._every) if self._every is not None else self._step(self._used)

    def _step(self, number: int) -> Step:
        return Step(f"answer {number} of {self.name}", self._answers[number - 1])

    def __str__(self) -> str:
        if self._every is not None:
            return f"{self.name} is a function"
        count = len(self._answers)
        return f"{self.name} has {count} answer{'' if count == 1 else 's'}"
