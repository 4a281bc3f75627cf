"""Testing your own tools and transports. Each name is loaded when it is first used.

`replay_tool` replays a call at every leg. Two packages have more: `sweep` interrupts a scenario at every step, and `contract`
has the rules that every transport must obey.
"""

# Loaded when used, because `replay` imports the client and the server, and a test of a transport needs only one of them.

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .replay import ReplayReport, replay_tool

__all__ = ["ReplayReport", "replay_tool"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".replay", __name__), name)
