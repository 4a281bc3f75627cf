"""Which resources a resource is a part of (L-RES-1s).

`resources/updated` may name "a sub-resource of the one that the client actually subscribed to". The specification defines no
syntax for that, so both sides use the widest reading of RFC 3986: a part differs from the whole by a path below it, a query or
a fragment. If the reading is too wide, the client reads a resource once more than it had to. If it is too narrow, the client
keeps an outdated one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

MAX_LEVELS: Final = 256
"""Separators of a URI that are looked at for its ancestors."""

_SEPARATOR: Final = re.compile("[/?#]")


def ancestor_uris(uri: str) -> Iterator[str]:
    """Yield `uri` and every URI that it is a part of: `file:///a/b` is a part of `file:///a/` and of `file:///a`."""
    yield uri
    for separator in islice(_SEPARATOR.finditer(uri), MAX_LEVELS):
        yield uri[: separator.start()]
        if separator[0] == "/":
            yield uri[: separator.end()]


def is_part_of(uri: str, whole: str) -> bool:
    """Return whether `whole` is one of `ancestor_uris(uri)`, without listing them."""
    if not uri.startswith(whole):
        return False
    return len(uri) == len(whole) or whole.endswith("/") or uri[len(whole)] in "/?#"
