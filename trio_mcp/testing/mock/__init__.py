"""A client whose user and model follow a script."""

from .answers import tool_use
from .client import ElicitScript, MockClient, SampleScript, UrlScript, make_context
from .questions import Question
from .script import Delay, Disconnect, Never, SecondWorker
from .target import Target

__all__ = [
    "Delay",
    "Disconnect",
    "ElicitScript",
    "MockClient",
    "Never",
    "Question",
    "SampleScript",
    "SecondWorker",
    "Target",
    "UrlScript",
    "make_context",
    "tool_use",
]
