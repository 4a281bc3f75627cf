"""A server of a group, and the connection to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..client.client import Client
from ..protocol.uri.namespaces import Namespace
from ..session.subscriptions import Change
from .connection import Connection, ServerState
from .names import ToolFilter


@dataclass(frozen=True, slots=True)
class Member:
    """What a group knows of a server beforehand.

    Attributes:
        name: in the group.
        space: the names of its tools, prompts and resources in the group.
        filter: of its tools, by its own names.
        make: returns a client that is not open; it calls the function when its connection is lost.
    """

    name: str
    space: Namespace
    filter: ToolFilter
    make: Callable[[Callable[[str], None]], Client]


class MemberConnection(Connection[Client]):
    """The connection to a server of a group."""

    __slots__ = ("member",)

    def __init__(
        self,
        member: Member,
        open_timeout: float,
        on_state: Callable[[ServerState], None],
        on_change: Callable[[Change], None],
    ) -> None:
        self.member = member
        whose = f"the server {member.name!r} of a group"
        super().__init__(member.name, whose, member.make, open_timeout, on_state, on_change)
