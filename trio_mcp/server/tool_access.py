"""Who sees a tool, and who may call it: the options `visible` and `scopes` of a tool.

A tool that is hidden from a caller is unknown to it: no list has it, and a call gets the error for an unknown name. A tool whose
scopes a caller lacks is listed, so that a client can learn which scopes to get: over HTTP the call is answered with 403, and
elsewhere with an error result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Generic, Protocol, TypeAlias, TypeVar, cast

from ..checks import check_str, check_sync_callback, mistake
from ..logs import RepeatedRecords, peer_logger
from ..protocol.jsonrpc import Request
from ..session import Caller, RequestFacts
from ..session.caller import check_scopes
from ..types import JsonObject
from .catalog import Catalog

logger = peer_logger("trio_mcp.tool")

TAGS_META_KEY = "trio-mcp/tags"
"""The member of a tool's `_meta` in which it publishes its tags."""

Visible: TypeAlias = Callable[[Caller | None], bool]
"""Returns whether a caller sees a tool; the caller is None if the server does not authenticate its callers."""


def everybody(_caller: Caller | None) -> bool:
    return True


class ToolAccess:
    """The restrictions of one tool."""

    __slots__ = ("_records", "_visible", "scopes")

    def __init__(self, scopes: frozenset[str], visible: Visible) -> None:
        self.scopes = scopes
        self._visible = visible
        self._records = RepeatedRecords(logger)

    @property
    def may_hide(self) -> bool:
        """Whether some callers may not see the tool."""
        return self._visible is not everybody

    def hides_from(self, caller: Caller | None) -> bool:
        """Return whether the tool is unknown to a caller. It is if `visible` fails, or returns something other than a bool."""
        try:
            visible: object = self._visible(caller)
            if not isinstance(visible, bool):
                raise TypeError(f"visible returns True or False, not {type(visible).__name__}")
        except Exception as error:  # noqa: BLE001  it is logged; a guess could show the tool to the wrong caller
            self._records.log("visible failed, so a tool was hidden", level=logging.ERROR, exc_info=error)
            return True
        return not visible

    def lacks_scopes(self, caller: Caller | None) -> bool:
        """Return whether a caller lacks one of the scopes."""
        return not self.scopes <= (frozenset[str]() if caller is None else caller.scopes)


def tool_access(name: str, options: Mapping[str, object]) -> ToolAccess | None:
    """Return the restrictions in the options of the tool of this name; None without any.

    Raises:
        TypeError, ValueError: `scopes` or `visible` is wrong.
    """
    scopes = check_scopes(f"{name}: scopes", options.get("scopes", ()))
    visible = options.get("visible")
    if visible is not None:
        check_sync_callback(f"{name}: visible", visible)
    if not scopes and visible is None:
        return None
    return ToolAccess(scopes, everybody if visible is None else cast("Visible", visible))


def tags_meta(name: str, tags: object) -> JsonObject:
    """Return the members of `_meta` that publish the tags of the tool of this name.

    Raises:
        TypeError, ValueError: `tags` is not a collection of texts.
    """
    # A string is a collection of letters, each of which would be a tag.
    if isinstance(tags, str) or not isinstance(tags, Collection):
        raise TypeError(mistake(f"{name}: tags", 'a set of texts, such as {"admin"}', tags))
    names = {check_str(f"{name}: each of tags", tag) for tag in tags}
    if "" in names:
        raise ValueError(f"{name}: tags: a tag is not empty")
    return {TAGS_META_KEY: [*sorted(names)]} if names else {}


class Restrictable(Protocol):
    """A tool, as far as this module knows it."""

    @property
    def access(self) -> ToolAccess | None: ...


T = TypeVar("T", bound=Restrictable)


class RestrictedTools(Generic[T]):
    """The tools of a catalog that some callers may not see or call.

    They are looked for once after each change of the catalog, so that a server without such tools pays nothing for a list.
    """

    __slots__ = ("_hideable", "_snapshot", "_tools")

    def __init__(self, tools: Catalog[T]) -> None:
        self._tools = tools
        self._snapshot: object = None
        self._hideable: tuple[T, ...] = ()

    def hidden(self, facts: RequestFacts) -> frozenset[T]:
        """Return the tools that are hidden from the caller of this request."""
        hideable = self.hideable()
        if not hideable:
            return frozenset()
        caller = facts.caller
        return frozenset(tool for tool in hideable if tool.access is not None and tool.access.hides_from(caller))

    def hideable(self) -> tuple[T, ...]:
        """Return the tools that some callers may not see."""
        if self._snapshot is not (snapshot := self._tools.snapshot()):
            self._snapshot = snapshot
            self._hideable = tuple(tool for _, tool in snapshot if tool.access is not None and tool.access.may_hide)
        return self._hideable

    def missing_scopes(self, request: Request, caller: Callable[[], Caller | None]) -> frozenset[str]:
        """Return the scopes that a request needs, if it is a call of a visible tool and its caller lacks one of them."""
        if request.method != "tools/call" or not isinstance(request.params, dict):
            return frozenset()
        name = request.params.get("name")
        tool = self._tools.by_key.get(name) if isinstance(name, str) else None
        if tool is None or (access := tool.access) is None:
            return frozenset()
        found = caller()
        return access.scopes if access.lacks_scopes(found) and not access.hides_from(found) else frozenset()
