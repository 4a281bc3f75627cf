"""Testing your own tools and transports. Each name is loaded when it is first used.

`MockClient` calls a tool and answers its questions from a script, `make_context` makes a context for a function that takes one,
and `replay_tool` replays a call at every leg. Two packages have more: `sweep` interrupts a scenario at every step, and
`contract` has the rules that every transport must obey.
"""

# Loaded when used, because the mock client and `replay` import the client and the server, and a test of a transport needs only
# one of them.

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .mock import (
        Delay,
        Disconnect,
        ElicitScript,
        MockClient,
        Never,
        Question,
        SampleScript,
        SecondWorker,
        Target,
        UrlScript,
        make_context,
        tool_use,
        unchecked_tool_use,
    )
    from .replay import ReplayReport, replay_tool

__all__ = [
    "Delay",
    "Disconnect",
    "ElicitScript",
    "MockClient",
    "Never",
    "Question",
    "ReplayReport",
    "SampleScript",
    "SecondWorker",
    "Target",
    "UrlScript",
    "make_context",
    "replay_tool",
    "tool_use",
    "unchecked_tool_use",
]

_IN_REPLAY = ("ReplayReport", "replay_tool")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".replay" if name in _IN_REPLAY else ".mock", __name__), name)
