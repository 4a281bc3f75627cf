"""Idempotency keys in a durable store: the next process knows what ran under a key, has its outcome, or goes on with it.

A call that must not run twice claims its key before its body runs; its outcome is stored before it is answered. So a key that is
not in the store is one of a call that has not run. Calls that may run twice (`runs_again`) claim nothing, unless a task may come
of them, since it must be one.
"""

# The record of a key, and what a repeat of its request gets from another process:
#
#     event                          record            a repeat
#     claim                          open, of a node   waits while the node lives; else adopts it: see `Claim.is_adopted`
#     the first leg has an outcome   over, with it     the outcome, for KEY_LIFE
#     cancelled for its client       open, of no node  adopts it
#     a legacy session keeps it      over, without     LOST: the session goes on with it
#
# A call that was adopted runs again with what its log has, if its tool may be replayed; else it is LOST.

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

import trio

from ...errors import LimitExceeded
from ...logs import RepeatedRecords
from ...protocol.jsonrpc import Encoded, ErrorDetail
from ...protocol.strict_json import dumps
from ...shared_limits import STORED_OUTCOMES
from ...storage import Change, Forget, Put, Record, Remove, Store, StoreConflict, StoreError
from ...types import JsonValue
from ..replies import LegOutcome
from .log import LOG_KIND
from .outcome_room import OutcomeRoom
from .repeats import KEY_LIFE, CallKey, other_request

KEY_KIND: Final = "key"
"""The kind of the records of keys."""

NODE_KIND: Final = "node"
"""The kind of the records of processes that have used the store."""

OPEN_SECONDS: Final = 86400.0
"""For how long the key of a call is kept whose process ended."""

NODE_SECONDS: Final = 7 * 86400.0
"""For how long a process is known that used the store."""

STORE_SECONDS: Final = 5.0
"""How long the store may take for one thing."""

MAX_STORED_BYTES: Final = STORED_OUTCOMES.limit
"""Bytes of outcomes that one process keeps in the store at a time; a further one is stored without its bytes. One owner may have
half, and a quarter while others need room."""


class StoredKey(NamedTuple):
    """What a store has under a key.

    Attributes:
        request: the digest of what the request asks for.
        node: the process that runs the call; empty if none does.
        is_over: nothing more is run under the key.
        outcome: of the first leg; None if it is not known.
        owner: who may ask for the task that the outcome names; None if it names none.
    """

    request: str
    node: str = ""
    is_over: bool = False
    outcome: LegOutcome = None
    owner: str | None = None

    def encode(self) -> bytes:
        members: dict[str, JsonValue] = {"request": self.request, "node": self.node, "over": self.is_over}
        if self.owner is not None:
            members["owner"] = self.owner
        if isinstance(self.outcome, Encoded):
            members["result"] = self.outcome.raw.decode()
        elif self.outcome is not None:
            members["error"] = [self.outcome.code, self.outcome.message, self.outcome.data]
        return dumps(members)

    @classmethod
    def decode(cls, data: bytes) -> StoredKey:
        """Read what `encode` wrote. Raises `StoreError` for anything else: another version of this package wrote it."""
        try:
            members = cast("dict[str, object]", json.loads(data))
            request, node, is_over = (
                cast("str", members["request"]),
                cast("str", members["node"]),
                bool(members["over"]),
            )
            outcome: LegOutcome = None
            if "result" in members:
                outcome = Encoded(cast("str", members["result"]).encode())
            elif "error" in members:
                code, message, data_member = cast("tuple[int, str, JsonValue]", members["error"])
                outcome = ErrorDetail(code, message, data_member)
            owner = cast("str | None", members.get("owner"))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreError(f"the record of an idempotency key is not one of this version: {error}") from None
        return cls(request, node, is_over, outcome, owner)


@dataclass(slots=True, eq=False)
class Claim:
    """A key that this process has claimed for a call.

    Attributes:
        version: of its record.
        is_adopted: an earlier run may have left something in the log of the key.
    """

    key: CallKey
    version: int
    is_adopted: bool

    @property
    def name(self) -> str:
        """Names the record, and the log of what runs under the key."""
        return self.key.digest.hex()


@dataclass(slots=True, eq=False)
class StoredKeys:
    """The keys in the store of a service.

    Args:
        node: names this process.
        grace: seconds for which an outcome is kept in memory too.
        records: counts how often the store failed.
    """

    _store: Store
    _node: str
    _grace: float
    _records: RepeatedRecords
    _clock: Callable[[], float] = time.time
    _room: OutcomeRoom = field(init=False)

    def __post_init__(self) -> None:
        self._room = OutcomeRoom(MAX_STORED_BYTES, self._clock)

    async def introduce(self) -> None:
        """Let other processes know, from now on, that this one uses the store; a store that fails is logged."""
        record = Record(NODE_KIND, self._node, b"", expires_at=self._clock() + NODE_SECONDS)
        try:
            known = await self._store.read(NODE_KIND, self._node)
            await self._store.write([Put(record if known is None else record._replace(version=known.version))])
        except StoreError as error:
            self._records.log("the store did not take the name of this process: %s", error)

    async def stay_known(self) -> None:
        """Do so again every day, for ever; run it as a task."""
        while True:
            await trio.sleep(NODE_SECONDS / 7)
            await self.introduce()

    async def knows(self, node: str) -> bool:
        """Return whether a process uses this store, or used it lately. Raises `StoreError`."""
        return node == self._node or await self._store.read(NODE_KIND, node) is not None

    async def claim(self, key: CallKey) -> Claim | StoredKey:
        """Claim a key for a call; return what the store has under it if that is over.

        Raises:
            RemoteProtocolError: -32602, another request has used the key.
            LimitExceeded: a process that lives runs the call.
            StoreError: whatever the store raises; nothing may be run.
        """
        mine = StoredKey(key.request.hex(), self._node)
        try:
            await self._write(key, mine, 0, OPEN_SECONDS)
        except StoreConflict:
            return await self._adopt(key, mine)
        return Claim(key, 1, is_adopted=False)

    async def _adopt(self, key: CallKey, mine: StoredKey) -> Claim | StoredKey:
        stored = await self._store.read(KEY_KIND, key.digest.hex())
        if stored is None:
            raise LimitExceeded(STILL_RUNS)
        known = StoredKey.decode(stored.value)
        if known.request != mine.request:
            raise other_request()
        if known.is_over:
            return known
        if known.node and (known.node == self._node or await self._store.is_alive(known.node)):
            raise LimitExceeded(STILL_RUNS)
        try:
            await self._write(key, mine, stored.version, OPEN_SECONDS)
        except StoreConflict:
            # Another repeat was faster.
            raise LimitExceeded(STILL_RUNS) from None
        return Claim(key, stored.version + 1, is_adopted=True)

    def ending(self, claim: Claim, outcome: LegOutcome, owner: str | None = None) -> list[Change]:
        """Return the changes that store an outcome, and remove what would have been needed to go on.

        Args:
            owner: who may ask for the task that the outcome names.
        """
        outcome = self._bounded(claim.key.owner, outcome)
        over = StoredKey(claim.key.request.hex(), is_over=True, outcome=outcome, owner=owner)
        return [self._put(claim.key, over, claim.version, self._grace + KEY_LIFE), Forget(LOG_KIND, claim.name)]

    def removing(self, claim: Claim) -> list[Change]:
        """Return the changes that forget a key under which nothing has run."""
        return [Remove(KEY_KIND, claim.name)]

    async def end(self, claim: Claim, outcome: LegOutcome) -> None:
        """Store the outcome of a call, within `STORE_SECONDS`; a store that fails is logged."""
        await self._commit(self.ending(claim, outcome))

    async def leave(self, claim: Claim) -> None:
        """Leave a call that was cancelled for its client to a repeat; a store that fails is logged."""
        left = StoredKey(claim.key.request.hex())
        await self._commit([self._put(claim.key, left, claim.version, OPEN_SECONDS)])

    async def remove(self, claim: Claim) -> None:
        """Forget a key under which nothing has run; a store that fails is logged."""
        await self._commit(self.removing(claim))

    async def _commit(self, changes: list[Change]) -> None:
        # Shielded: a call may end because the server does, and its outcome must not be lost with it.
        with trio.CancelScope(shield=True):
            try:
                with trio.fail_after(STORE_SECONDS):
                    await self._store.write(changes)
            except (StoreError, trio.TooSlowError) as error:
                self._records.log("the store did not keep the outcome of a call: %s", error or "it took too long")

    async def _write(self, key: CallKey, stored: StoredKey, version: int, lifetime: float) -> None:
        try:
            with trio.fail_after(STORE_SECONDS):
                await self._store.write([self._put(key, stored, version, lifetime)])
        except trio.TooSlowError:
            raise StoreError(f"the store did not answer within {STORE_SECONDS:g} seconds") from None

    def _put(self, key: CallKey, stored: StoredKey, version: int, lifetime: float) -> Put:
        expires_at = self._clock() + lifetime
        return Put(Record(KEY_KIND, key.digest.hex(), stored.encode(), expires_at=expires_at, version=version))

    def _bounded(self, owner: str | None, outcome: LegOutcome) -> LegOutcome:
        """Return an outcome if there is room for it, else None: a repeat then hears that it is not known."""
        has_room = outcome is None or self._room.take(owner, size_of(outcome), self._grace + KEY_LIFE)
        return outcome if has_room else None


def size_of(outcome: Encoded | ErrorDetail) -> int:
    """Return about how many bytes an outcome takes in the store."""
    return len(outcome.raw) if isinstance(outcome, Encoded) else len(outcome.message) + len(dumps(outcome.data))


STILL_RUNS: Final = "the call that this request repeats still runs, or ends; send the request again in a moment"
