"""Which operations become tools, under which names, and the report of what became of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ..base.checks import mistake, nearest
from ..server.tool_options import check_tool_name
from .operations import Operation
from .parts import FreeNames

MAX_NAME: Final = 64
"""Characters of a name that is made here. More are allowed, but not by the APIs of all models."""
NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")

Selector: TypeAlias = Callable[[Operation], bool] | Collection[str]
"""Selects operations: a function, or a collection of ids (`listPets`), keys (`GET /pets`) and tags (`#pets`)."""
Rename: TypeAlias = Callable[[Operation], str | None] | Mapping[str, str]
"""Names tools: a function, None for the usual name, or a mapping from ids (`listPets`) or keys (`GET /pets`) to names."""


def selected(selector: Selector | None, operations: Sequence[Operation], option: str) -> Callable[[Operation], bool]:
    """Return whether an operation is selected, as a function.

    Args:
        option: the name of the option, for errors.

    Raises:
        LookupError: no operation has an id, a key or a tag of the collection.
        TypeError: it is neither a function nor a collection of strings.
    """
    if selector is None:
        return lambda _operation: True
    if callable(selector):
        return lambda operation: bool(selector(operation))
    if isinstance(selector, str) or not isinstance(selector, Collection):
        expected = 'a function of an operation, or a list such as ["listPets", "GET /pets/{petId}", "#store"]'
        raise TypeError(mistake(option, expected, selector))
    wanted = frozenset(selector)
    known = {name for operation in operations for name in labels_of(operation)}
    check_known(wanted, known, option)
    return lambda operation: not wanted.isdisjoint(labels_of(operation))


def labels_of(operation: Operation) -> list[str]:
    """Return by what a collection can name an operation."""
    return [*filter(None, [operation.id]), operation.key, *(f"#{tag}" for tag in operation.tags)]


def check_known(wanted: Collection[str], known: Collection[str], option: str) -> None:
    """Raise `LookupError` if the document has no operation of a name."""
    for name in wanted:
        if name not in known:
            raise LookupError(
                f"{option}: the document has no operation {name!r:.200}; {nearest(name, known)}".rstrip("; ")
            )


def tool_names(
    operations: Sequence[Operation], rename: Rename | None, all_operations: Sequence[Operation]
) -> list[str]:
    """Return the names of the tools of operations: each is valid, and no two are equal.

    Raises:
        LookupError: `rename` names an operation that the document does not have.
        ValueError: `rename` gives a name that no tool can have, or one to two operations.
    """
    if isinstance(rename, Mapping):
        known = {label for each in all_operations for label in labels_of(each) if not label.startswith("#")}
        check_known(rename.keys(), known, "rename")
    given = [given_name(operation, rename) for operation in operations]
    taken = set[str]()
    for name in given:
        if name in taken:
            raise ValueError(f"rename gives the name {name!r} to two operations")
        taken.update([name] if name is not None else [])
    short = short_ids(operations)
    free = FreeNames(taken)
    names: list[str] = []
    for operation, own in zip(operations, given, strict=True):
        usual = short[operation.id] if operation.id in short else usual_name(operation)
        names.append(taken_name(usual, free) if own is None else own)
    return names


def given_name(operation: Operation, rename: Rename | None) -> str | None:
    """Return the name that the author gave to an operation, or None."""
    name: str | None = None
    if isinstance(rename, Mapping):
        name = rename.get(operation.key) or rename.get(operation.id or "")
    elif rename is not None:
        name = rename(operation)
    if name is not None:
        check_tool_name(name)
    return name


def usual_name(operation: Operation) -> str:
    """Return the name of an operation without any other: its id, or its method and path."""
    if operation.id is not None and (name := NO_NAME.sub("_", operation.id).strip("_-")):
        return name
    path = re.sub(r"\{([^{}]*)\}", r"by \1", operation.path)
    return NO_NAME.sub("_", f"{operation.method.lower()} {path}").strip("_-")


def taken_name(name: str, free: FreeNames) -> str:
    """Take a name, short enough and free, and return it."""
    short = name[:MAX_NAME]
    # Otherwise with room for the number.
    return free.take(short if short not in free else name[: MAX_NAME - 5])


def short_ids(operations: Sequence[Operation]) -> dict[str | None, str]:
    """Return the names of functions that FastAPI made ids of: `read_item_items__item_id__get` is `read_item`.

    Such an id is left as it is where two have the same function.
    """
    found: dict[str | None, str] = {}
    for operation in operations:
        suffix = re.sub(r"\W", "_", f"{operation.path}_{operation.method.lower()}")
        # FastAPI joins the name and the path without anything between, and the path begins with a slash.
        if operation.id is not None and operation.id.endswith(suffix) and (name := operation.id.removesuffix(suffix)):
            found[operation.id] = NO_NAME.sub("_", name).strip("_-")
    names = list(found.values())
    others = {usual_name(operation) for operation in operations if operation.id not in found}
    return {key: name for key, name in found.items() if name and names.count(name) == 1 and name not in others}


# What became of each operation of a document.


@dataclass(frozen=True, slots=True)
class TakenOperation:
    """An operation that became a tool.

    Attributes:
        tool: the name of the tool.
        resource: the URI or the template of the resource that it became too, if it was asked for and is possible.
        notes: what differs from the document, or is not as it could be.
    """

    operation: Operation
    tool: str
    resource: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOutOperation:
    """An operation that did not become a tool.

    Attributes:
        chosen: `include` does not select it; otherwise it cannot be called.
    """

    operation: Operation
    reason: str
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class OpenApiReport:
    """What became of the operations of a document. Its text has a line for each, and for each note."""

    taken: tuple[TakenOperation, ...]
    left_out: tuple[LeftOutOperation, ...]

    @property
    def impossible(self) -> tuple[LeftOutOperation, ...]:
        """The operations that `include` selects, and that cannot be called."""
        return tuple(each for each in self.left_out if not each.chosen)

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools."""
        return tuple(each.tool for each in self.taken)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for taken in self.taken:
            resource = "" if taken.resource is None else f", resource {taken.resource}"
            yield f"{taken.operation.key}: tool {taken.tool}{resource}"
            yield from (f"    {note}" for note in taken.notes)
        for left_out in self.left_out:
            yield f"{left_out.operation.key}: left out: {left_out.reason}"
