"""A server of a group."""

from __future__ import annotations

from dataclasses import dataclass

from ..client.client import Client
from ..protocol.uri.namespaces import Namespace
from .connection import Connection
from .names import ToolFilter


@dataclass(slots=True, eq=False, kw_only=True)
class Member(Connection[Client]):
    """The connection to a server of a group, and what the group knows of the server beforehand.

    Attributes:
        space: the names of its tools, prompts and resources in the group.
        filter: of its tools, by its own names.
    """

    space: Namespace
    filter: ToolFilter
