"""A client whose user and model follow a script."""

from ...scripts import tool_use, unchecked_tool_use
from .actions import Delay, Disconnect, Never, SecondWorker
from .client import ElicitScript, MockClient, SampleScript, UrlScript, make_context
from .questions import Question
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
    "unchecked_tool_use",
]
