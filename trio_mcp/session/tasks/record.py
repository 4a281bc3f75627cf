"""The record of a task: its request, the state of its work, and its outcome. A store keeps it as JSON.

The record is neutral: it holds the outcome, and each era derives the status that it shows. A task that ended with a result with
`isError` is failed in 2025-11-25 and completed in the extension, for example.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Final, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from ...base.named_tuples import NamedTuple
from ...protocol.codec.restoring import StoredTerms, stored_codec
from ...protocol.codec.tasks import TaskState
from ...protocol.jsonrpc import ErrorDetail
from ...protocol.sealing.request_state import KeyRing, from_base64url, to_base64url
from ...runtime.loop_turn import LoopTurn
from ...storage import Record
from ...types import CallToolRequestParams, CallToolResult, JsonObject, JsonValue, Model, Task
from ..calls.facts import RequestFacts
from ..calls.legs import OpenQuestion, asked_in_order
from ..envelope import Caller
from ..options import TaskOptions

# The ids of tasks: unguessable, and signed, so that a later process of the server can tell their owner what became of them.
#
# Layout: base64url without padding of `random (16 bytes) | boot (8) | created (6) | expires (6) | tag (12)`, with times in
# Unix
# milliseconds. The tag is a truncated HMAC-SHA256 (NIST SP 800-107, 5.3.3) over all of these, the owner and the server. A
# process
# that has no record of a task knows by it that the task was given to this very owner, by another process of this server, and
# that
# its time is not over: its work was lost with that process. All other unknown ids look the same.

_PURPOSE: Final = "trio_mcp task id v1"
_KEY_BYTES: Final = 32
_RANDOM_BYTES: Final = 16
_BOOT_BYTES: Final = 8
_TIME_BYTES: Final = 6
_TAG_BYTES: Final = 12
_CREATED: Final = slice(_RANDOM_BYTES + _BOOT_BYTES, _RANDOM_BYTES + _BOOT_BYTES + _TIME_BYTES)
_EXPIRES: Final = slice(_CREATED.stop, _CREATED.stop + _TIME_BYTES)
_BODY_BYTES: Final = _RANDOM_BYTES + _BOOT_BYTES + 2 * _TIME_BYTES
_KEY: Final = re.compile(r"[0-9a-f]{12}-[0-9a-f]{32}")
ID_CHARACTERS: Final = len(to_base64url(bytes(_BODY_BYTES + _TAG_BYTES)))
"""Characters of every id."""


class TaskLife(NamedTuple):
    """The times between which a task exists, in Unix seconds."""

    created: float
    expires: float


class TaskIds:
    """Makes and recognises the ids of one server's tasks.

    Args:
        ring: the keys. The first signs, all of them verify.
        audience: the identity of the server; ids of another audience are not recognised, also under the same keys.
    """

    def __init__(self, ring: KeyRing, audience: str) -> None:
        self._ring = ring
        self._audience = audience.encode()
        self._boot = secrets.token_bytes(_BOOT_BYTES)

    def new(self, owner: str, created: float, expires: float) -> str:
        """Return an id for a task of this owner that exists between these times, in Unix seconds."""
        times = b"".join(int(time * 1000).to_bytes(_TIME_BYTES) for time in (created, expires))
        # Without its first bit, an id does not begin with a dash, as an option of a command does.
        body = secrets.randbits(8 * _RANDOM_BYTES - 1).to_bytes(_RANDOM_BYTES) + self._boot + times
        return to_base64url(body + self._tag(self._keys[0], body, owner))

    def life_in_another_process(self, task_id: str, owner: str) -> TaskLife | None:
        """Return when the task exists to which another process gave this id, for this owner; None if none did."""
        signed = signed_bytes(task_id)
        if signed is None:
            return None
        body, tag = signed[:_BODY_BYTES], signed[_BODY_BYTES:]
        # All keys are tried, so that time does not tell which one fits.
        fits = [hmac.compare_digest(tag, self._tag(key, body, owner)) for key in self._keys]
        if not any(fits) or body[_RANDOM_BYTES:].startswith(self._boot):
            return None
        return TaskLife(int.from_bytes(body[_CREATED]) / 1000, int.from_bytes(body[_EXPIRES]) / 1000)

    @cached_property
    def _keys(self) -> list[bytes]:
        """Derived for the first task."""
        return self._ring.derive(_PURPOSE, _KEY_BYTES)

    def _tag(self, key: bytes, body: bytes, owner: str) -> bytes:
        name = owner.encode()
        # The length parts the two names: ("a", "bc") must not sign as ("ab", "c") does.
        return hmac.digest(key, body + len(name).to_bytes(8) + name + self._audience, "sha256")[:_TAG_BYTES]


def storage_key(task_id: str) -> str | None:
    """Return the key of a task in a store, None for what is not an id. Keys sort by the time at which their tasks were created.

    It is not the id, which may be all that protects a task.
    """
    signed = signed_bytes(task_id)
    if signed is None:
        return None
    return f"{int.from_bytes(signed[_CREATED]):012x}-{hashlib.sha256(signed).hexdigest()[:32]}"


def is_storage_key(text: str) -> bool:
    """Return whether a text has the form of such a key."""
    return _KEY.fullmatch(text) is not None


def signed_bytes(task_id: str) -> bytes | None:
    """Return the bytes of an id; None for what is none."""
    return from_base64url(task_id) if len(task_id) == ID_CHARACTERS else None


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


class AskedQuestion(NamedTuple):
    """An open question as a record keeps it, so that every process can show it.

    Attributes:
        params: as the newest revision has them.
    """

    key: str
    method: str
    params: JsonObject


class TaskRecord(NamedTuple):
    """One task. Times are Unix seconds.

    Attributes:
        owner: who may ask for it; see `owner_of`. Empty: anyone who knows the id.
        tool: the name of the tool.
        ttl: seconds from its creation on for which it exists, working or ended.
        message: what `ctx.status` said last.
        node: the process that runs it.
        call: what it runs; None when it has ended.
        outcome: how it ended; None before.
        asked: the open questions, in the order in which they are shown; none where no other process reads the record.
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
    asked: tuple[AskedQuestion, ...] = ()

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
            raise ValueError(
                f"another version of this package wrote it: {error.errors(include_input=False)[0]['msg']}"
            ) from None
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
    asked: tuple[AskedQuestion, ...] = ()


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
    emptied = record._replace(owner=TAKEN_BACK_OWNER, tool="", ttl=ttl, message=None, call=None, asked=())
    return emptied._replace(outcome=TaskOutcome())


def is_taken_back(stored: Record) -> bool:
    """Return whether a record of a store is that of a task that was not created."""
    try:
        return TaskRecord.decode(stored.value).owner == TAKEN_BACK_OWNER
    except ValueError:
        return False


# A record as the codecs take it: what is true of the task in any revision. The codec of a request shows it in its own way.

NO_QUESTIONS: Final[Mapping[str, OpenQuestion]] = {}


def asked_questions(questions: Mapping[str, OpenQuestion]) -> tuple[AskedQuestion, ...]:
    """Return open questions for a record. Raises `LocalProtocolError` if one of them cannot be said in JSON."""
    codec, asked = stored_codec(), asked_in_order(questions).items()
    return tuple(
        AskedQuestion(key, method, cast("JsonObject", json.loads(codec.encode_question(method, params))))
        for key, (method, params) in asked
    )


def shown_questions(record: TaskRecord) -> dict[str, tuple[str, Model]]:
    """Return method and params of the questions in a record by key, as a codec shows them."""
    codec = stored_codec()
    return {asked.key: (asked.method, codec.decode_question(asked.method, asked.params)) for asked in record.asked}


def task_state(
    record: TaskRecord, options: TaskOptions, questions: Mapping[str, OpenQuestion] | None = NO_QUESTIONS
) -> TaskState:
    """Return a task for a codec to show.

    Args:
        questions: the open ones; None for those of the record.
    """
    outcome = record.outcome
    ended = None if outcome is None else outcome.result or outcome.error
    task = Task(
        task_id=record.id,
        status="cancelled" if outcome is not None and ended is None else "working",
        status_message=record.message,
        created_at=iso_time(record.created_at),
        last_updated_at=iso_time(record.updated_at),
        ttl_ms=round(record.ttl * 1000),
        poll_interval_ms=round(options.poll_interval * 1000),
    )
    asked = shown_questions(record) if questions is None else asked_in_order(questions)
    return TaskState(task, asked=asked, outcome=ended)


def iso_time(seconds: float) -> str:
    """Return a time of Unix seconds in ISO 8601, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
