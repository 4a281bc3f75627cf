"""What a mock client does in place of answering at once: `Delay`, `Never`, `Disconnect`, `SecondWorker`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...base.checks import check_seconds
from ...scripts import Action, check_answer


@dataclass(frozen=True, slots=True)
class Delay(Action):
    """Answer after some seconds, on Trio's clock.

    Raises:
        TypeError, ValueError: `seconds` is not a finite number of at least 0.
    """

    seconds: float
    answer: object

    def __post_init__(self) -> None:
        check_seconds("seconds", self.seconds, finite=True)
        check_answer("Delay", self.answer, actions=True)


@dataclass(frozen=True, slots=True)
class Never(Action):
    """Never answer. If the tool gives the question up, its call continues."""


@dataclass(frozen=True, slots=True)
class Disconnect(Action):
    """Lose the connection instead of answering: the call raises `Disconnected`, and the tool is cancelled."""


@dataclass(frozen=True, slots=True)
class SecondWorker(Action):
    """Answer, and send the answer to another process with the same keys: a call of a modern client is replayed there.

    A legacy session stays with its process, so there it only answers.
    """

    answer: object

    def __post_init__(self) -> None:
        check_answer("SecondWorker", self.answer, actions=True)


def may_be_second_worker(answer: object) -> bool:
    """Return whether an answer is a `SecondWorker`, or a function, which may return one."""
    while isinstance(answer, Delay):
        answer = answer.answer
    return isinstance(answer, SecondWorker) or callable(answer)


ACTIONS: Final = (Delay, Never, Disconnect, SecondWorker)
