from __future__ import annotations
import time
import trio
from collections.abc import Sequence
from ...storage import Put, Record, Remove, StoreConflict

class MemoryStore:
    durable = False
    def __init__(self):
        self.records = {}
    async def write(self, changes):
        await trio.lowlevel.checkpoint()
        for c in changes:
            if isinstance(c, Put):
                r = c.record
                old = self.records.get((r.kind, r.key))
                if (old.version if old else 0) != r.version:
                    raise StoreConflict
        for c in changes:
            if isinstance(c, Put):
                self.records[c.record.kind, c.record.key] = c.record._replace(version=c.record.version + 1)
            else:
                self.records.pop((c.kind, c.key), None)
    async def read(self, kind, key):
        await trio.lowlevel.checkpoint()
        r = self.records.get((kind, key))
        return r if r and r.expires_at > time.time() else None
    async def list(self, kind, *, owner=None, after="", limit=100):
        await trio.lowlevel.checkpoint()
        found = sorted((r for (k, key), r in self.records.items() if k == kind and key > after and (owner is None or r.owner == owner)), key=lambda r: r.key)
        return found[:limit]
    async def join(self, node): pass
    async def is_alive(self, node): return False
    async def aclose(self): pass
