"""What a caller may have meant by a name that the server does not know."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from ..checks import nearest

MAX_NAME: Final = 64
"""Characters of a name of a peer that are compared."""
MAX_KNOWN: Final = 100
"""How many names it is compared with: a peer can send unknown names again and again."""


def meant(name: str, known: Iterable[str]) -> str:
    """Return a question with the nearest known name, to be put behind an error; empty if none is near.

    Args:
        name: what the peer has sent.
        known: the names that this caller may know.
    """
    question = nearest(name[:MAX_NAME], islice(known, MAX_KNOWN))
    return f"; {question}" if question else ""
