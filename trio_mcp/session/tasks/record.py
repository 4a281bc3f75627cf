"""The record of a task: what it was asked, how its work stands, and how it ended. A store keeps it as JSON.

The record is neutral: it holds the outcome, and each era derives the status that it shows. A task that ended with a result with
`isError` is failed in 2025-11-25 and completed in the extension, for example.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from ...protocol.codec.restoring import StoredTerms
from ...protocol.jsonrpc import ErrorDetail
from ...runtime.loop_turn import LoopTurn
from ...storage import Record
from ...types import (
    CallToolRequestParams,
    CallToolResult,
    JsonObject,
    JsonValue,
)
from ..caller import Caller
from ..calls.facts import RequestFacts
from .ids import storage_key

KIND: Final = "task"
"""The kind of the records in a store."""

TAKEN_BACK_OWNER: Final = "nobody"
"""The owner of the record of a task that was not created; no owner has this form."""


class TaskOutcome(NamedTuple):
    """How the work of a task ended: with a result, with an error, or, with neither, by a cancel.

    Attributes:
        result: in the shape of the newest revision.
    """

    result: CallToolResult | None = None
    error: ErrorDetail | None = None


class TaskCall(BaseModel):
    """The call that a task runs, as far as it is needed to run it again in another process.

    No header is kept, so that no credential is: `principal`, `scopes` and `claims` say who was authenticated.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    params: JsonObject
    terms: StoredTerms
    principal: str | None
    scopes: tuple[str, ...]
    claims: JsonObject | None
    size: int

    @classmethod
    def of(cls, facts: RequestFacts, params: CallToolRequestParams) -> Self:
        """Return the call that a request makes."""
        known = facts.known_caller
        return cls(
            params=params.wire(),
            terms=StoredTerms.of(facts.terms),
            principal=facts.principal,
            scopes=() if known is None else tuple(sorted(known.scopes)),
            claims=None if known is None else known.claims,
            size=facts.size,
        )

    def request(self) -> CallToolRequestParams:
        """Return the params of the call."""
        return CallToolRequestParams.model_validate(self.params)

    def facts(self) -> RequestFacts:
        """Return the facts of the request, as far as another process can still know them."""
        caller = None
        if self.principal is not None and (self.scopes or self.claims is not None):
            caller = Caller(self.principal, self.scopes, self.claims)
        return RequestFacts(0, "tools/call", self.terms.terms(), self.principal, {}, LoopTurn(), self.size, caller)


class TaskRecord(NamedTuple):
    """One task. Times are Unix seconds.

    Attributes:
        owner: who may ask for it; see `owner_of`. Empty: whoever holds the id.
        tool: the name of the tool.
        ttl: seconds from its creation on for which it exists, working or ended.
        message: what `ctx.status` said last.
        node: the process that runs it.
        call: what it runs; None when it has ended.
        outcome: how it ended; None before.
    """

    id: str
    owner: str
    tool: str
    created_at: float
    updated_at: float
    ttl: float
    node: str
    message: str | None = None
    call: TaskCall | None = None
    outcome: TaskOutcome | None = None

    @property
    def expires_at(self) -> float:
        """When it is forgotten."""
        return self.created_at + self.ttl

    def encode(self) -> bytes:
        """Return the record as JSON, for a store."""
        outcome = None
        if self.outcome is not None:
            result, error = self.outcome
            outcome = StoredOutcome(
                result=None if result is None else result.wire(),
                error=None if error is None else StoredError(error.code, error.message, error.data),
            )
        stored = StoredTask(**{**self._asdict(), "outcome": outcome})
        return stored.model_dump_json(exclude_defaults=True).encode()

    @classmethod
    def decode(cls, value: bytes) -> TaskRecord:
        """Read what `encode` wrote.

        Raises:
            ValueError: another version of this package wrote it.
        """
        outcome = None
        try:
            stored = StoredTask.model_validate_json(value)
            if (ended := stored.outcome) is not None:
                result = None if ended.result is None else CallToolResult.model_validate(ended.result)
                outcome = TaskOutcome(result, None if ended.error is None else ErrorDetail(*ended.error))
        except ValidationError as error:
            # Without the input, which may be a result.
            raise ValueError(f"not the record of a task: {error.errors(include_input=False)[0]['msg']}") from None
        members = {name: getattr(stored, name) for name in cls._fields}
        return cls(**{**members, "outcome": outcome})


class StoredError(NamedTuple):
    """An error as a record keeps it."""

    code: int
    message: str
    data: JsonValue = None


class StoredOutcome(BaseModel):
    """An outcome as a record keeps it."""

    model_config = ConfigDict(defer_build=True)

    result: JsonObject | None = None
    error: StoredError | None = None


class StoredTask(BaseModel):
    """A `TaskRecord` as JSON."""

    model_config = ConfigDict(defer_build=True)

    version: Literal[1] = 1
    id: str
    owner: str
    tool: str
    created_at: float
    updated_at: float
    ttl: float
    node: str
    message: str | None = None
    call: TaskCall | None = None
    outcome: StoredOutcome | None = None


def stored_form(record: TaskRecord, version: int) -> Record:
    """Return a record as a store takes it, in place of the one with this version."""
    return Record(KIND, stored_key(record), record.encode(), record.owner, record.expires_at, version)


def stored_key(record: TaskRecord) -> str:
    """Return the key of a record in a store, which is that of the log of its call too."""
    key = storage_key(record.id)
    assert key is not None
    return key


def taken_back(record: TaskRecord, until: float) -> TaskRecord:
    """Return the record that takes the place of a task that was not created, until a time in Unix seconds.

    It is over, and its owner is no principal.
    """
    ttl = until - record.created_at
    return record._replace(owner=TAKEN_BACK_OWNER, tool="", ttl=ttl, message=None, call=None, outcome=TaskOutcome())


def is_taken_back(stored: Record) -> bool:
    """Return whether a record of a store is that of a task that was not created."""
    try:
        return TaskRecord.decode(stored.value).owner == TAKEN_BACK_OWNER
    except ValueError:
        return False
