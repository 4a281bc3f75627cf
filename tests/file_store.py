"""A durable store in a file, for a server in a process that is killed: each write is one record at its end."""

from __future__ import annotations

import fcntl
import pickle
from collections.abc import Sequence
from pathlib import Path

from crashing_store import CrashingStore, Disk

from trio_mcp.storage import Change


class FileStore(CrashingStore):
    """A store whose processes follow each other; each reads at its start what those before it have written."""

    def __init__(self, path: Path) -> None:
        super().__init__(Disk())
        self._path = path
        self._file = path.open("a+b")
        self._file.seek(0)
        while data := self._file.readline():
            for change in pickle.loads(bytes.fromhex(data.decode())):
                self._apply(change)

    async def write(self, changes: Sequence[Change]) -> None:
        await super().write(changes)
        # Without a line break at its end the last one was cut off by a kill.
        self._file.write(pickle.dumps(list(changes)).hex().encode() + b"\n")
        self._file.flush()

    async def join(self, node: str) -> None:
        self._lock = self._path.with_name(f"{node}.lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    async def is_alive(self, node: str) -> bool:
        try:
            with self._path.with_name(f"{node}.lock").open() as other:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            pass
        return False
