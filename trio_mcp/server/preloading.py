"""Loading what calls may need, ahead of them, in a server of many clients.

A server starts fast because it loads only what it uses (`late.py`). The first call that asks a question would load the rest in
the event loop, and every other client would wait for that. So a server for many connections loads it before it serves: a tenth of
a second, and ten megabytes that the first question would take. One that serves a single channel does not: no other client waits
there, and most servers of that kind never ask.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

from ..process_memory import freeze, no_collection
from ..session.transport import OWNS_PROCESS

MODULES: Final = (
    *(
        f"trio_mcp.session.{name}"
        for name in (
            "batch",
            "calls.asks_requests",
            "calls.asks_rounds",
            "calls.client_tasks",
            "calls.earlier",
            "calls.log",
            "calls.memory",
            "calls.retries",
            "calls.stored_keys",
            "calls.url_elicitations",
            "kept_results",
            "keyed_requests",
            "listen_requests",
            "tasks.requests",
            "tasks.tasks",
            "token_usage",
        )
    ),
    *(
        f"trio_mcp.server.{name}"
        for name in (
            "concurrency",
            "elicitation",
            "elicits",
            "exchanges",
            "large_results",
            "nested",
            "sampling.attempts",
            "sampling.loop",
            "sampling.looper",
            "sampling.model",
            "sampling.sampler",
            "sampling.structured",
            "sampling.tools",
            "step_results",
            "url_elicitation",
        )
    ),
    *(
        f"trio_mcp.types.{name}"
        for name in ("completion", "elicitation", "prompts", "resources", "roots", "rounds", "sampling", "tasks")
    ),
    "trio_mcp.protocol.conversation",
    "cryptography.exceptions",
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.hazmat.primitives.hashes",
    "cryptography.hazmat.primitives.kdf.hkdf",
)
"""What the methods of a context load, and what requests of both eras load that go with questions and tasks."""


def load_for_calls() -> None:
    """Load `MODULES`. The event loop is blocked meanwhile; no client is served yet.

    Not in a thread: calls with arguments of a megabyte then took 1.09 times the CPU time (docs/internals/performance.md).
    """
    missing = [name for name in MODULES if name not in sys.modules]
    if not missing:
        return
    with no_collection():
        for name in missing:
            import_module(name)
    if OWNS_PROCESS.get():
        # What was loaded earlier is frozen already (`settle_for_server`).
        freeze()
