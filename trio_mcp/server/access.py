"""Who sees an item that a server offers, and who may use it: the options `visible` and `scopes` of tools, resources and prompts.

An item that is hidden from a caller is unknown to it: no list has it, and a request for it gets the error for an unknown name. An
item whose scopes a caller lacks is listed, so that a client can learn which scopes to get: over HTTP the request is answered with
403, and elsewhere with an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeAlias, TypeVar, cast

from ..base.checks import check_sync_callback
from ..base.logs import RepeatedRecords, peer_logger
from ..errors import RemoteProtocolError
from ..protocol.revisions import REQUIRED_SCOPES
from ..session import Caller, RequestFacts
from ..session.envelope import check_scopes
from ..types import JsonObject
from .catalog import Catalog

logger = peer_logger("trio_mcp.tool")

Visible: TypeAlias = Callable[[Caller | None], bool]
"""Returns whether a caller sees an item; the caller is None if the server does not authenticate its callers."""


def everybody(_caller: Caller | None) -> bool:
    return True


class Access:
    """The restrictions of one item."""

    __slots__ = ("_records", "_visible", "scopes")

    def __init__(self, scopes: frozenset[str], visible: Visible) -> None:
        self.scopes = scopes
        self._visible = visible
        self._records = RepeatedRecords(logger)

    @property
    def may_hide(self) -> bool:
        """Whether some callers may not see the item."""
        return self._visible is not everybody

    def hides_from(self, caller: Caller | None) -> bool:
        """Return whether the item is unknown to a caller. It is if `visible` fails, or returns something other than a bool."""
        try:
            visible: object = self._visible(caller)
            if not isinstance(visible, bool):
                raise TypeError(f"visible returns True or False, not {type(visible).__name__}")
        except Exception as error:  # noqa: BLE001  it is logged; a guess could show the item to the wrong caller
            self._records.log("visible failed, so an item was hidden", level=logging.ERROR, exc_info=error)
            return True
        return not visible

    def lacks_scopes(self, caller: Caller | None) -> bool:
        """Return whether a caller lacks one of the scopes."""
        return not self.scopes <= (frozenset[str]() if caller is None else caller.scopes)

    def check(self, caller: Caller | None, item: str, unknown: Callable[[], Exception]) -> None:
        """Raise what `unknown` returns if the item is hidden from a caller, and `RemoteProtocolError` if it lacks a scope."""
        if self.hides_from(caller):
            raise unknown()
        if self.lacks_scopes(caller):
            data: JsonObject = {REQUIRED_SCOPES: [*sorted(self.scopes)]}
            raise RemoteProtocolError(self.lacking_text(item), data=data)

    def lacking_text(self, item: str) -> str:
        """Return the text of the error for a caller that lacks a scope."""
        return f"{item} needs the scopes {', '.join(sorted(self.scopes))}"


def access_of(name: str, options: Mapping[str, object]) -> Access | None:
    """Return the restrictions in the options of an item; None without any.

    Args:
        name: what errors call it.

    Raises:
        TypeError, ValueError: `scopes` or `visible` is wrong.
    """
    scopes = check_scopes(f"{name}: scopes", options.get("scopes", ()))
    visible = options.get("visible")
    if visible is not None:
        check_sync_callback(f"{name}: visible", visible)
    if not scopes and visible is None:
        return None
    return Access(scopes, everybody if visible is None else cast("Visible", visible))


class Restrictable(Protocol):
    """A tool, prompt, resource or template, as far as this module knows it."""

    @property
    def access(self) -> Access | None: ...


T = TypeVar("T", bound=Restrictable)


class Restricted(Generic[T]):
    """The items of a catalog that some callers may not see or use.

    They are looked for once after each change of the catalog, so that a server without such items pays nothing for a list.
    """

    __slots__ = ("_catalog", "_restricted", "_snapshot")

    def __init__(self, catalog: Catalog[T]) -> None:
        self._catalog = catalog
        self._snapshot: object = None
        self._restricted: tuple[tuple[T, Access], ...] = ()

    def items(self) -> tuple[tuple[T, Access], ...]:
        """Return the items that have restrictions, with them."""
        if self._snapshot is not (snapshot := self._catalog.snapshot()):
            self._snapshot = snapshot
            self._restricted = tuple((item, item.access) for _, item in snapshot if item.access is not None)
        return self._restricted

    def hidden(self, facts: RequestFacts) -> frozenset[T]:
        """Return the items that are hidden from the caller of this request."""
        if not self.items():
            return frozenset()
        caller = facts.caller
        return frozenset(item for item, access in self.items() if access.may_hide and access.hides_from(caller))

    def hideable(self) -> tuple[T, ...]:
        """Return the items that some callers may not see."""
        return tuple(item for item, access in self.items() if access.may_hide)
