"""Processes of `order_server.py` on one store, and what is sent to them in plain JSON. Every wait is bounded."""

from __future__ import annotations

import base64
import os
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from peer import Json
from serving import HttpProcess

SCRIPT = Path(__file__).with_name("order_server.py")
BOUND = 60


def new_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


def process_of(store: str, folder: Path, keys: str) -> HttpProcess:
    """Return a process on a store that has not started; its effects and the file `go` are in the folder."""
    imports = os.pathsep.join(sys.path)
    return HttpProcess(SCRIPT, TRIO_MCP_STORE=store, TRIO_MCP_KEYS=keys, FOLDER=str(folder), PYTHONPATH=imports)


@asynccontextmanager
async def two_processes(store: str, folder: Path) -> AsyncIterator[tuple[HttpProcess, HttpProcess]]:
    keys = new_key()
    first, second = (process_of(store, folder, keys) for _ in range(2))
    async with AsyncExitStack() as stack:
        for each in (first, second):
            stack.push_async_callback(each.kill)
            await each.start()
        yield first, second


def message(method: str, params: Json, number: int | None = None) -> Json:
    return {"jsonrpc": "2.0", "method": method, "params": params, **({} if number is None else {"id": number})}
