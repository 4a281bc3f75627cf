"""Loading what calls may need, ahead of them, in a server of many clients.

A server starts fast because it loads only what it uses (`late.py`). The first call that asks a question would load the rest in
the event loop, and every other client would wait for that. So a server for many connections loads it before it serves: a tenth of
a second, and ten megabytes that the first question would take. One that serves a single channel does not: no other client waits
there, and most servers of that kind never ask.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Final

import trio

from ..process_memory import no_collection, settle_for_server
from ..runtime.watchdog import time_is_virtual
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


async def load_for_calls() -> None:
    """Load `MODULES` in a thread, since lifespans may have tasks; a cancel waits for the module that is being loaded.

    Under virtual time (`trio.testing.MockClock`) nothing is loaded ahead: the clock would jump while the thread runs.
    """
    if time_is_virtual() or not (missing := [name for name in MODULES if name not in sys.modules]):
        return
    with no_collection():
        await trio.to_thread.run_sync(load, missing, limiter=trio.CapacityLimiter(1))
    if OWNS_PROCESS.get():
        # Again: the garbage collector would scan what was loaded since.
        settle_for_server()


def load(modules: Iterable[str]) -> None:
    """Load some modules, in a thread of Trio; its task can be cancelled between two of them."""
    for name in modules:
        trio.from_thread.check_cancelled()
        import_module(name)
