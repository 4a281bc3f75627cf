"""Reading what others sent, beside the event loop if it is large.

A thread cannot be ended from outside. What runs in it takes linear time, and asks every few milliseconds whether it is still
wanted.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

import trio

T = TypeVar("T")

READ_INLINE: Final = 64 * 1024
"""Bytes that are read in the event loop, in some milliseconds; more in a thread."""

Check: TypeAlias = Callable[[], None]
"""Raises if nothing waits for the value any longer."""


def never_ends() -> None:
    """Let the reading go on: it runs where nothing could end it."""


async def read_beside(read: Callable[[Check], T], size: int) -> T:
    """Return what a function reads.

    Args:
        size: bytes of what it reads.

    A cancel ends the thread at its next check.
    """
    if size <= READ_INLINE:
        return read(never_ends)
    return await trio.to_thread.run_sync(read, trio.from_thread.check_cancelled)


# The encodings in which an API may send text.
#
# An API chooses the encoding of its response, and Python knows many: some take quadratic time (`punycode`), some raise
# whatever
# the error handler is (`undefined`, `idna`, and `iso2022_jp` in pieces), and a search for an unknown one keeps its name in
# memory.
# Those here are the common ones of text. They are decoded in C, in linear time.

PIECE: Final = 64 * 1024
"""Bytes that are decoded at once, in some milliseconds: other threads run between two pieces."""

_NAMES: Final = (
    "utf-8 utf-16 utf-16-le utf-16-be ascii",
    " ".join(f"iso8859-{number}" for number in (*range(1, 12), *range(13, 17))),
    " ".join(f"cp{number}" for number in (437, 850, 866, 874, 932, 949, 950, *range(1250, 1259))),
    "koi8-r koi8-u mac-roman tis-620",
    "shift_jis euc-jp gb2312 gbk gb18030 big5 big5hkscs euc-kr",
)
_OTHER_NAMES: Final = {
    "utf8": "utf-8",
    "utf-16le": "utf-16-le",
    "utf-16be": "utf-16-be",
    "us-ascii": "ascii",
    "latin1": "iso8859-1",
    "latin-1": "iso8859-1",
    "macintosh": "mac-roman",
    "ibm866": "cp866",
    "windows-31j": "cp932",
    "x-sjis": "shift_jis",
    "sjis": "shift_jis",
    "big5-hkscs": "big5hkscs",
    "ks_c_5601-1987": "cp949",
}
ENCODINGS: Final = {
    **{name: name for names in _NAMES for name in names.split()},
    **{f"iso-8859-{number}": f"iso8859-{number}" for number in (*range(1, 12), *range(13, 17))},
    **{f"windows-{number}": f"cp{number}" for number in (874, 949, *range(1250, 1259))},
    **_OTHER_NAMES,
}
"""The encodings by the names that responses give them, in lower case."""


def decoded(body: bytes, charset: str, check: Check = never_ends) -> str:
    """Return a body as text, in UTF-8 unless its encoding is one of `ENCODINGS`; what cannot be decoded is replaced."""
    name = ENCODINGS.get(charset.lower(), "utf-8")
    if name == "utf-16":
        # Its decoder raises if no byte order mark comes first.
        name = "utf-16-be" if body.startswith(codecs.BOM_UTF16_BE) else "utf-16-le"
        body = body.removeprefix(codecs.BOM_UTF16_BE).removeprefix(codecs.BOM_UTF16_LE)
    decoder = codecs.getincrementaldecoder(name)("replace")
    pieces: list[str] = []
    for start in range(0, len(body), PIECE):
        check()
        pieces.append(decoder.decode(body[start : start + PIECE]))
    pieces.append(decoder.decode(b"", final=True))
    return "".join(pieces)
