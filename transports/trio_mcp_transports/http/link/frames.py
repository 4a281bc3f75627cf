"""The frames of a link: what two processes that serve as one say to each other.

    kind      from    means                                           follows
    REQUEST   front   a request, with its body                        ACCEPTED, MOVED, LEAVING
    ACCEPTED  owner   its call runs                                   WHOLE, HEAD
    WHOLE     owner   a response that fits into one frame             nothing
    HEAD      owner   the status and the headers of the response      DATA, END
    DATA      owner   a part of its body
    END       owner   all of it was sent                              nothing
    BROKEN    owner   the rest cannot be sent                         nothing
    MOVED     owner   what it is about is not here                    nothing
    LEAVING   owner   it begins something, and this process is ending  nothing
    LAST      owner   this process is ending: its number is that of   nothing
                      the last request that was read, none for 0
    GONE      front   its client has left                             nothing; what the owner still says of it is dropped
    WINDOW    front   the number of bytes of the body that may be sent beyond those before

A request has a number, which the front counts. Each frame has a limit, which is checked before its bytes are kept; a frame that
is too large, of an unknown kind, or not what may follow ends the link.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final

from trio_mcp.base.named_tuples import NamedTuple

HEADER: Final = struct.Struct(">BQI")
"""The kind, the number of the request, and the length of what follows."""

WINDOW_BYTES: Final = 256 * 1024
"""Bytes of the body of a response that may be on their way."""
CHUNK: Final = 64 * 1024
"""Bytes of a part of it."""
MAX_HEAD: Final = 256 * 1024
"""Bytes of the head of a request or a response."""


class LinkBroken(Exception):
    """The other end of a link does not keep to its rules, or has gone."""


class Kind(IntEnum):
    """The kinds of frames."""

    REQUEST = 1
    ACCEPTED = 2
    HEAD = 3
    DATA = 4
    END = 5
    BROKEN = 6
    MOVED = 7
    GONE = 8
    WINDOW = 9
    LEAVING = 10
    WHOLE = 11
    LAST = 12


def limits_of_front(max_body: int) -> Mapping[int, int]:
    """Return the most bytes of each kind of frame that a front sends."""
    return {Kind.REQUEST: MAX_HEAD + max_body, Kind.GONE: 0, Kind.WINDOW: 4}


LIMITS_OF_OWNER: Final[Mapping[int, int]] = {
    Kind.ACCEPTED: 0,
    Kind.HEAD: MAX_HEAD,
    Kind.DATA: CHUNK,
    Kind.END: 0,
    Kind.BROKEN: 0,
    Kind.MOVED: 0,
    Kind.LEAVING: 0,
    Kind.LAST: 0,
    Kind.WHOLE: MAX_HEAD + CHUNK,
}


class Frame(NamedTuple):
    """One frame."""

    kind: Kind
    number: int
    data: bytes


def encode(kind: Kind, number: int, data: bytes = b"") -> bytes:
    """Return the bytes of a frame."""
    return HEADER.pack(kind, number, len(data)) + data


class FrameReader:
    """Finds the frames in what comes over a link.

    Args:
        limits: the most bytes of each kind.
    """

    def __init__(self, limits: Mapping[int, int]) -> None:
        self._limits = limits
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that these bytes complete.

        Raises:
            LinkBroken: a frame is too large, or of an unknown kind.
        """
        buffer = self._buffer
        buffer += data
        while len(buffer) >= HEADER.size:
            kind, number, length = HEADER.unpack_from(buffer)
            most = self._limits.get(kind)
            if most is None or length > most:
                raise LinkBroken(f"a frame of kind {kind} with {length} bytes, which may have {most or 0}")
            end = HEADER.size + length
            if len(buffer) < end:
                return
            body = bytes(buffer[HEADER.size : end])
            del buffer[:end]
            yield Frame(Kind(kind), number, body)
