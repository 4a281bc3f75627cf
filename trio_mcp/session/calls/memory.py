"""What is stored of a call, so that its body can run again when its parked actor no longer exists.

The retry may reach another process, or come after a restart. Then the body can run again from its top, if its author allows
it: recorded answers and step results return at once, and only new questions are asked. That is a *replay*. A call that must
not be replayed is lost with its actor, and its caller gets an error.

A state that this process sealed never needs a replay: if its actor is not here, the call has been over for longer than its
outcomes are kept, and running it again would repeat what was to be done once.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from ...base.logs import RepeatedRecords
from ...errors import InvalidRequestState, PeerError, RemoteProtocolError, RequestTimeout
from ...protocol.sealing.request_state import digest
from ...protocol.strict_json import dumps
from ...runtime import Divergence, EntryKind, Journal, JournalEntry
from ...storage import Change, JournalStore
from ...types import JsonObject, JsonValue, Model
from ..recovery.stored_journal import CallLog, intent
from .facts import Question, ResumeMode
from .legs import OpenQuestionRecord

T = TypeVar("T", bound=Model)

FINGERPRINT_DIGITS = 32
"""Hexadecimal digits of a question's fingerprint: 128 bits."""


@dataclass(slots=True, eq=False)
class CallMemory:
    """Records the answers and step results of one call, and recalls those of an earlier run.

    Args:
        target: the name of what is called, for messages.
        on_divergence: called when a replay asks something else than the run before.
        is_durable: what is recorded may be kept in a store; see `keep_in`.

    Attributes:
        log: where it is kept; None while nothing could come back for the call after the end of the process.
        timed_out: the questions that were not answered in time, for the task that the call becomes. A replay asks them again, as
            an answer may have come by then.
    """

    journal: Journal
    _target: str
    _on_divergence: Callable[[str], None]
    is_durable: bool = False
    log: CallLog | None = field(default=None, init=False)
    timed_out: tuple[JournalEntry, ...] = field(default=(), init=False)
    _running: dict[str, bool] | None = field(default=None, init=False)
    """The steps that are running, and whether each is recorded in the log; None if there was none."""

    # in a durable store

    def keep_in(self, log: CallLog, requests: Iterable[JournalEntry] = ()) -> None:
        """Write everything that is recorded from now on to a log, and first what was recorded before.

        Args:
            requests: the entries of the questions that are open.
        """
        log.add(*self.journal.entries, *self._intents(), *requests)
        self.log = log

    def continue_in(self, log: CallLog) -> None:
        """Write everything that is recorded from now on to a log, which has what came before."""
        self.log = log

    def go_on_in(self, log: CallLog) -> bool:
        """Write everything that is recorded from now on to a log, and first which steps run; return whether one does.

        What was recorded before is in the state that leads to the log.
        """
        running = self._intents()
        log.add(*running)
        self.log = log
        return bool(running)

    @property
    def runs_step(self) -> bool:
        """Whether a step is running."""
        return bool(self._running)

    def add_to_log(self, entry: JournalEntry) -> None:
        """Add an entry that is in no journal to the log, if there is one."""
        if self.log is not None:
            self.log.add(entry)

    def _intents(self) -> list[JournalEntry]:
        return [intent(name) for name, is_logged in (self._running or {}).items() if is_logged]

    async def begin_step(self, name: str, *, may_run_twice: bool = False) -> None:
        """Record that a step is about to run, and return when that would survive a crash; one that may run twice needs no record.

        Raises:
            StoreError: the store did not record it; the step must not run, because it could run again after a crash.
        """
        self._running = self._running or {}
        self._running[name] = not may_run_twice
        if self.log is not None and not may_run_twice:
            self.log.add(intent(name))
            await self.log.commit_in_time()

    def fail_step(self, name: str, *, was_given_up: bool) -> None:
        """Record that a step was not done, unless the whole call was given up while it ran."""
        if was_given_up:
            # It may have been done: who goes on with the call has to know that it was begun, also in a log that is opened later.
            return
        if self._running is not None and self._running.pop(name, False):
            self.add_to_log(JournalEntry(EntryKind.FAILED, name, None))

    async def commit(self, *further: Change) -> bool:
        """Return when what was recorded would survive a crash, also if the caller is cancelled.

        A store that fails, or takes too long, is logged, and the call goes on.

        Args:
            further: changes that are made together with it, if anything is kept in a store.

        Returns:
            whether the store has everything; True too if nothing is kept in one.
        """
        return self.log is None or await self.log.commit_or_report(*further)

    def _record(self, entry: JournalEntry) -> None:
        self.journal.record(entry)
        if self.log is not None:
            self.log.add(entry)

    # what was recorded

    def fingerprint(self, question: Question[T]) -> str:
        """Return what tells this question from another one under the same key."""
        return digest(question.method, question.params.wire())[:FINGERPRINT_DIGITS]

    def recall_answer(self, key: str, question: Question[T], fingerprint: str) -> T | None:
        """Return the answer that an earlier run got to this very question."""
        known = self._recall(EntryKind.ANSWER, key, fingerprint)
        return None if known is None else question.answer_type.model_validate(known.value)

    def has_answer(self, key: str) -> bool:
        """Return whether the question under this key was answered, whatever it was."""
        return any(entry.kind is EntryKind.ANSWER and entry.name == key for entry in self.journal.entries)

    def record_answer(self, key: str, answer: Model, fingerprint: str) -> None:
        self._record(JournalEntry(EntryKind.ANSWER, key, answer.wire(), fingerprint))

    def note_timeout(self, key: str, text: str, fingerprint: str) -> None:
        """Note that a question was not answered in time; `text` is the message of the error."""
        self.timed_out = (*self.timed_out, JournalEntry(EntryKind.TIMED_OUT, key, text, fingerprint))

    def check_timeout(self, key: str, fingerprint: str) -> None:
        """Raise `RequestTimeout` if this very question timed out before the call became a task."""
        found = self.journal.find(EntryKind.TIMED_OUT, key)
        if found is not None and found.digest == fingerprint:
            raise RequestTimeout(cast("str", found.value))

    def recall_reply(
        self, key: str, question: Question[T], fingerprint: str
    ) -> T | PeerError | RemoteProtocolError | None:
        """Return what an earlier run got for this very question: an answer, or the error that its client sent instead."""
        found = self.journal.find(EntryKind.REJECTED, key)
        rejected = None if found is None else self._recall(EntryKind.REJECTED, key, fingerprint)
        if rejected is None:
            return self.recall_answer(key, question, fingerprint)
        code, message, data, malformed = cast("tuple[int, str, JsonValue, bool]", rejected.value)
        return RemoteProtocolError(message, code=code, data=data) if malformed else PeerError(code, message, data)

    def record_reply(self, key: str, reply: Model | PeerError | RemoteProtocolError, fingerprint: str) -> None:
        """Record what a client sent for a question: an answer, or an error."""
        if isinstance(reply, Model):
            self.record_answer(key, reply, fingerprint)
            return
        malformed = isinstance(reply, RemoteProtocolError)
        text = str(reply.args[0]) if isinstance(reply, RemoteProtocolError) else reply.message
        self._record(JournalEntry(EntryKind.REJECTED, key, [reply.code, text, reply.data, malformed], fingerprint))

    def note_other_question(self, key: str) -> None:
        """Report that the body asks another question than an earlier run, which has no answer yet."""
        self._on_divergence(f"{self._target}: the question {key!r} is not the one that was asked")

    def recall_step(self, name: str) -> JournalEntry | None:
        """Return the result that an earlier run had from this step, as JSON."""
        return self._recall(EntryKind.STEP, name, "")

    def find_step(self, name: str) -> JournalEntry | None:
        """Return what `recall_step` returns, for a step in which a call asks; see `Journal.find`."""
        return self.journal.find(EntryKind.STEP, name)

    def record_step(self, name: str, result: JsonValue) -> None:
        self._record(JournalEntry(EntryKind.STEP, name, result))
        if self._running is not None:
            self._running.pop(name, None)

    def forget_steps(self, is_stale: Callable[[str], bool]) -> None:
        """Forget the results of steps that an earlier run made where this one does something else."""
        self.journal.forget_steps(is_stale)

    def question_number(self, key: str) -> int:
        """Return the number that an earlier run gave to the question at this place, or the next free one, which is recorded."""
        known = self._recall(EntryKind.NUMBER, key, "")
        if known is not None:
            return cast("int", known.value)
        number = 1 + sum(entry.kind is EntryKind.NUMBER for entry in self.journal.entries)
        self._record(JournalEntry(EntryKind.NUMBER, key, number))
        return number

    def _recall(self, kind: EntryKind, name: str, fingerprint: str) -> JournalEntry | None:
        try:
            return self.journal.recall(kind, name, fingerprint)
        except Divergence as divergence:
            self._on_divergence(f"{self._target}: {divergence}")
            return None

    def payload(
        self,
        node: str,
        asked: Mapping[str, OpenQuestionRecord],
        limit: int,
        store: JournalStore | None,
        records: RepeatedRecords,
    ) -> StatePayload:
        """Return what a sealed state is to remember. A payload with a `journal_key` has to be stored first; see `stored`."""
        entries = self.journal.entries
        # Measured as JSON, which is what travels; the sealing adds a third to it.
        size = len(dumps(entries_to_json(entries)))
        if size <= limit:
            return StatePayload(node, asked, entries)
        if store is None:
            records.log("%s has a journal of %d bytes, which is too large to travel", self._target, size)
            return StatePayload(node, asked, dropped_bytes=size)
        return StatePayload(node, asked, entries, journal_key=secrets.token_urlsafe(16))


@dataclass(frozen=True, slots=True)
class StatePayload:
    """The part of a sealed state that a replay reads.

    Attributes:
        node: the process that sealed it.
        asked: the questions that were open, by key.
        entries: what the call had recorded; empty for a call that is not to be replayed.
        journal_key: the key of the entries in the journal store, where they are too large to travel.
        dropped_bytes: the size of the entries that were too large and could not be stored.
    """

    node: str
    asked: Mapping[str, OpenQuestionRecord] = field(default_factory=dict[str, OpenQuestionRecord])
    entries: tuple[JournalEntry, ...] = ()
    journal_key: str | None = None
    dropped_bytes: int = 0

    def wire(self) -> JsonObject:
        """Return it as JSON, to be sealed."""
        data: JsonObject = {"node": self.node}
        if self.asked:
            data["asked"] = {key: list(asked) for key, asked in self.asked.items()}
        if self.entries:
            data["entries"] = entries_to_json(self.entries)
        if self.journal_key is not None:
            data["reference"] = self.journal_key
        if self.dropped_bytes:
            data["dropped"] = self.dropped_bytes
        return data

    @classmethod
    def read(cls, data: JsonValue) -> StatePayload:
        """Read what `wire` wrote, out of a state that this server's own key has opened.

        Raises:
            InvalidRequestState: another version of this server wrote it.
        """
        try:
            members = cast("dict[str, object]", data)
            asked = cast("dict[str, list[str]]", members.get("asked", {}))
            return cls(
                node=cast("str", members["node"]),
                asked={key: OpenQuestionRecord(method, mark) for key, (method, mark) in asked.items()},
                entries=entries_from_json(cast("JsonValue", members.get("entries", []))),
                journal_key=cast("str | None", members.get("reference")),
                dropped_bytes=cast("int", members.get("dropped", 0)),
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise InvalidRequestState("the journal inside is not one of this version") from None

    def lost(self) -> StatePayload:
        """Return a payload that leads to no replay: the store did not record which steps run."""
        return replace(self, entries=(), journal_key=None, dropped_bytes=1)

    async def stored(self, store: JournalStore, ttl: float, records: RepeatedRecords) -> StatePayload:
        """Put the entries into the store; what is to be sealed then holds their key only."""
        assert self.journal_key is not None
        data = dumps(entries_to_json(self.entries))
        try:
            await store.put(self.journal_key, data, ttl)
        except Exception as error:  # noqa: BLE001  whatever a store raises
            # The call can still go on here. Only a replay is lost, which hardly any call needs.
            records.log(
                "the store did not keep a journal; the call goes on without", level=logging.ERROR, exc_info=error
            )
            return replace(self, entries=(), journal_key=None, dropped_bytes=len(data))
        return replace(self, entries=())

    async def fetched(self, store: JournalStore | None) -> StatePayload:
        """Return the payload with its entries out of the store."""
        data = None if store is None or self.journal_key is None else await store.get(self.journal_key)
        if data is None:
            return replace(self, journal_key=None, dropped_bytes=1)
        return replace(self, journal_key=None, entries=entries_from_json(json.loads(data)))

    # replaying

    def answered(self, answers: Mapping[str, Model]) -> tuple[JournalEntry, ...]:
        """Return the entries of the answers that came with a retry, for the replayed body to find."""
        return tuple(
            JournalEntry(EntryKind.ANSWER, key, answer.wire(), self.asked[key].fingerprint)
            for key, answer in answers.items()
        )

    def lost_reason(self, mode: ResumeMode) -> str | None:
        """Return why the call cannot be replayed, None if it can."""
        if mode is ResumeMode.PARKED:
            return (
                "This call was lost while it waited for an answer: the server was restarted, or the answer reached another "
                f"process. {START_AGAIN}"
            )
        if self.dropped_bytes:
            return f"This call was lost while it waited for an answer, and what it had recorded is lost. {START_AGAIN}"
        return None


START_AGAIN = "Nothing more of it was run; what it did before it asked stays done. Start it again if that is safe."


def entries_to_json(entries: tuple[JournalEntry, ...]) -> JsonValue:
    return [[entry.kind.value, entry.name, entry.digest, cast("JsonValue", entry.value)] for entry in entries]


def entries_from_json(data: JsonValue) -> tuple[JournalEntry, ...]:
    """Read what `entries_to_json` wrote. Raises `TypeError` or `ValueError` for anything else."""
    listed = cast("list[tuple[str, str, str, JsonValue]]", data)
    return tuple(JournalEntry(EntryKind(kind), name, value, mark) for kind, name, mark, value in listed)
