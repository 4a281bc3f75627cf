"""Loading what calls may need, ahead of them, in a server of many clients.

A server starts fast because it loads only what it uses (`late.py`). The first call that asks a question would load the rest in
the event loop, and every other client would wait for that. So a server for many connections loads it before it serves: a tenth of
a second, and ten megabytes that the first question would take. One that serves a single channel does not: no other client waits
there, and most servers of that kind never ask.
"""

from __future__ import annotations

import sys
from importlib import import_module
from itertools import chain
from typing import Final

from ..base.late import freeze, modules_in_calls, no_collection
from ..session.transport import OWNS_PROCESS

OTHERS: Final = (
    "trio_mcp.protocol.conversation",
    "cryptography.exceptions",
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.hazmat.primitives.hashes",
    "cryptography.hazmat.primitives.kdf.hkdf",
)
"""What calls may need besides what the tables of the packages name (`late.py`)."""


def load_for_calls() -> None:
    """Load what the methods of a context need, and what requests need that go with questions and tasks.

    The event loop is blocked meanwhile; no client is served yet. Not in a thread: calls with arguments of a megabyte then took
    1.09 times the CPU time (docs/internals/performance.md).
    """
    before = len(sys.modules)
    with no_collection():
        for name in chain(modules_in_calls(), OTHERS):
            import_module(name)
    if len(sys.modules) > before and OWNS_PROCESS.get():
        # What was loaded earlier is frozen already (`settle_for_server`).
        freeze()
