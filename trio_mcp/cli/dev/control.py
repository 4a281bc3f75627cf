"""What `trio-mcp dev` and its children say to each other: lines of JSON on a pair of sockets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from ...base.named_tuples import NamedTuple
from ...base.values import JsonValue
from .sources import Source, Stamp

# To a child.


class Begin(NamedTuple):
    """Load the file as it is now, and serve it.

    Attributes:
        announces: say where the server is.
        must_authenticate: do not serve a file that lets everybody call.
        path: where a server is that the parent alone reaches; None for one that clients reach.
    """

    announces: bool
    must_authenticate: bool
    path: str | None


class Replaced(NamedTuple):
    """Another child serves: announce these lists, and end when the calls have ended.

    Attributes:
        lists: "tools", "prompts", "resources".
    """

    lists: list[str]


# To the parent.


class Read(NamedTuple):
    """A module of the project is made of this version of a file."""

    path: str
    modified: int | None
    size: int
    inode: int
    digest: str | None

    @property
    def source(self) -> Source:
        stamp = None if self.modified is None else Stamp(self.modified, self.size, self.inode)
        return Source(stamp, self.digest)

    @classmethod
    def of(cls, path: Path, source: Source) -> Read:
        if source.stamp is None:
            return cls(str(path), None, 0, 0, source.digest)
        return cls(str(path), source.stamp.modified, source.stamp.size, source.stamp.inode, source.digest)


class Loaded(NamedTuple):
    """The file was imported.

    Attributes:
        lists: a digest of each list that clients see.
        hiding: the lists that some callers see in part.
        declared: digests of what legacy clients read only when they connect, by name.
        authenticates: whether the server authenticates its callers over HTTP.
    """

    lists: dict[str, str]
    hiding: list[str]
    declared: dict[str, str]
    authenticates: bool


class Serving(NamedTuple):
    """The child serves.

    Attributes:
        urls: of the server.
        is_sse: the first of them is one of HTTP+SSE.
    """

    urls: list[str]
    is_sse: bool


class Failed(NamedTuple):
    """The child cannot serve the file, and ends.

    Attributes:
        text: the error in one line.
        lines: where it was raised and what it says.
        is_final: no change of the files would help, or the server could not start.
    """

    text: str
    lines: list[str]
    is_final: bool


class Ending(NamedTuple):
    """The child ends when its calls have ended.

    Attributes:
        calls: how many there are.
    """

    calls: int


Message: TypeAlias = Begin | Replaced | Read | Loaded | Serving | Failed | Ending
KINDS: Final = {kind.__name__: kind for kind in (Begin, Replaced, Read, Loaded, Serving, Failed, Ending)}


def encoded(message: Message) -> bytes:
    """Return a message as a line."""
    return json.dumps([type(message).__name__, *message]).encode() + b"\n"


def decoded(line: bytes | str) -> Message:
    """Return the message of a line, of this version of the program."""
    name, *fields = json.loads(line)
    kind: type[Message] = KINDS[name]
    values: list[JsonValue] = fields
    return kind(*values)  # type: ignore[arg-type]


def changed_lists(old: Loaded, new: Loaded) -> list[str]:
    """Return the lists that differ for some client."""
    # Which callers see an item is decided by a function, and what another function decides is not known.
    hiding = {*old.hiding, *new.hiding}
    return [name for name, digest in new.lists.items() if digest != old.lists[name] or name in hiding]


def new_declarations(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return what differs of what legacy clients read only when they connect, by name."""
    # What is no longer offered is an empty list to them.
    return [name for name, digest in new.items() if digest != old.get(name)]
