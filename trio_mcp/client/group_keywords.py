"""The keyword arguments of `ClientGroup`, as type checkers see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from .changes import OnChange
from .group_member import ServerState
from .keywords import ConnectKeywords
from .tool_filter import ToolSelection

ForServer: TypeAlias = Callable[[str], ConnectKeywords]
"""A function that returns more keyword arguments of `Client.connect` for the server of this name."""

OnState: TypeAlias = Callable[[ServerState], None]
"""A plain function, called with each new state of a server."""


class GroupKeywords(ConnectKeywords, total=False):
    """The keyword arguments of `ClientGroup`, which describes each, and those of `Client.connect`."""

    only: ToolSelection | None
    without: ToolSelection | None
    for_server: ForServer | None
    on_state: OnState | None
    on_change: OnChange | None
    open_timeout: float
