"""The scripts of a mock client: the answers to its questions, in order, and what happens at each.

A script is a list of answers, or one function that answers every question. An answer is a value, a result, a function of the
question's params, an exception, or a step: `Delay`, `Never`, `Disconnect`, `SecondWorker`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from pydantic import BaseModel

from ...checks import check_seconds


@dataclass(frozen=True, slots=True)
class Delay:
    """Answer after some seconds, on Trio's clock.

    Raises:
        TypeError, ValueError: `seconds` is not a finite number of at least 0.
    """

    seconds: float
    answer: object

    def __post_init__(self) -> None:
        check_seconds("seconds", self.seconds, finite=True)
        check_answer("Delay", self.answer)


@dataclass(frozen=True, slots=True)
class Never:
    """Never answer. If the tool gives the question up, its call continues."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Lose the connection instead of answering: the call raises `Disconnected`, and the tool is cancelled."""


@dataclass(frozen=True, slots=True)
class SecondWorker:
    """Answer, and send the answer to another process with the same keys: a call of a modern client is replayed there.

    A legacy session stays with its process, so there it only answers.
    """

    answer: object

    def __post_init__(self) -> None:
        check_answer("SecondWorker", self.answer)


STEPS = (Delay, Never, Disconnect, SecondWorker)
VALUES = (BaseModel, Exception, Enum, str, int, float, dict, list, tuple, *STEPS)
"""What an answer may be, apart from a function."""


def check_answer(where: str, answer: object) -> None:
    """Raise `TypeError` if something cannot be an answer of a script."""
    if isinstance(answer, type):
        raise TypeError(f"{where}: {answer.__name__} is a class: write {answer.__name__}(...)")
    if not isinstance(answer, VALUES) and not callable(answer):
        expected = "a value, a result, a function of the question, an exception or a step such as Delay(5, ...)"
        raise TypeError(f"{where}: an answer is {expected}, not {answer!r:.80}")


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of a script, and how errors name it: `answer 2 of elicits`."""

    name: str
    answer: object


class Script:
    """The answers to one kind of question.

    Args:
        name: the option of the mock client that gave it, for errors.
        answers: a list of answers, a function that answers every question, or None if there are none.

    Raises:
        TypeError: it is something else, or has something that is no answer.
    """

    def __init__(self, name: str, answers: Sequence[object] | Callable[..., object] | None) -> None:
        self.name = name
        self._every = answers if callable(answers) else None
        self._answers: tuple[object, ...] = ()
        if answers is not None and not callable(answers):
            # A string is a sequence of letters, and a dict is one answer: both are frequent mistakes.
            if isinstance(answers, str | dict) or not isinstance(answers, Sequence):
                raise TypeError(f"{name}: a list of answers, such as {name}=[{answers!r:.80}], not {answers!r:.80}")
            self._answers = tuple(answers)
        for number, answer in enumerate(self._answers, 1):
            check_answer(f"answer {number} of {name}", answer)
        self._used = 0

    @property
    def left(self) -> list[Step]:
        """The answers that no question has used; a function that answers every question, if there was none."""
        if self._every is not None:
            return [] if self._used else [Step(self.name, self._every)]
        return [
            Step(f"answer {number} of {self.name}", answer)
            for number, answer in enumerate(self._answers[self._used :], self._used + 1)
        ]

    def take(self) -> Step | None:
        """Return the next answer, or None if none is left."""
        if self._every is None and self._used == len(self._answers):
            return None
        self._used += 1
        if self._every is not None:
            return Step(self.name, self._every)
        return Step(f"answer {self._used} of {self.name}", self._answers[self._used - 1])

    def __str__(self) -> str:
        if self._every is not None:
            return f"{self.name} is a function"
        count = len(self._answers)
        return f"{self.name} has {count} answer{'' if count == 1 else 's'}"
