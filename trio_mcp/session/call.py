"""A call: the actor that serves it, the leg it is on, and the way back to its client."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import trio

from ..errors import (
    CapabilityError,
    Disconnected,
    LimitExceeded,
    LocalProtocolError,
    ProtocolError,
    RequestTimeout,
    ResourceNotFound,
    ToolError,
)
from ..protocol.jsonrpc import INTERNAL_ERROR, SERVER_BUSY, ErrorDetail, ErrorResponse, dump
from ..protocol.sealing.request_state import digest
from ..protocol.strict_json import dumps
from ..runtime import (
    Actor,
    Cancelled,
    CancelReason,
    Divergence,
    EntryKind,
    Journal,
    JournalEntry,
    Lane,
    Outcome,
    Raised,
    Returned,
)
from ..types import LoggingMessageNotificationParams, Model, ProgressNotificationParams
from .backchannel import Backchannel, Question
from .leg import UNHEARD, Ending, Leg, RequestFacts
from .replay import Asked, Recollection, Resume, entries_to_json
from .rounds import Rounds

if TYPE_CHECKING:
    from ..types import JsonValue, LoggingLevel
    from .service import Plan, Service


T = TypeVar("T", bound=Model)
logger = logging.getLogger("trio_mcp.call")

FINGERPRINT = 32
"""Hexadecimal digits that tell a question from another: 128 bits."""


class Call:
    """One logical call of a client. Made and started by the session; handlers see it through a `Context`."""

    __slots__ = ("_backchannel", "_plan", "actor", "digest", "leg", "outcome", "replayable", "rounds", "service")

    def __init__(self, service: Service, plan: Plan, leg: Leg, digest: str) -> None:
        self.service = service
        self._plan = plan
        self.leg: Leg | None = leg
        """The leg it is on; None while it is parked."""
        self.digest = digest
        self.replayable = plan.resume is Resume.REPLAY or service.options.always_replay
        """What it learns is recorded, so that it can be run again when its parked actor is gone."""
        self.outcome: Outcome | None = None
        """How it ended; None while it lives."""
        self.rounds: Rounds | None = None
        self._backchannel: Backchannel | None = None
        self.actor: Actor

    def start_live(self, backchannel: Backchannel) -> None:
        """Start the actor of a handshake-era call, whose questions are requests of their own.

        Raises:
            LimitExceeded: the server runs too many calls, or is shutting down.
        """
        self._backchannel = backchannel
        self._start(None)

    def start_rounds(self, name: str | None = None, number: int = 1, journal: Journal | None = None) -> None:
        """Start the actor of a modern call, which asks in rounds. Raises as `start_live` does.

        Args:
            name, number, journal: of a call that goes on here after its actor is gone.
        """
        self._start(journal)
        self.rounds = self._backchannel = Rounds(self, name, number)
        self.actor.on_quiet = self.rounds.quiet

    def _start(self, journal: Journal | None) -> None:
        assert self.leg is not None
        seconds = min(self._plan.seconds, self.service.options.max_seconds)
        self.actor = self.service.supervisor.start(
            self._run,
            self._done,
            principal=self.leg.facts.principal,
            deadline=trio.current_time() + seconds,
            label=self._plan.target,
            journal=journal,
        )
        self.actor.held_bytes = self.leg.facts.size

    def ask(self, lane: Lane, question: Question[T]) -> Awaitable[T]:
        """Ask the client; see `Backchannel.ask`."""
        if self._backchannel is None:
            raise Disconnected("the call is over, or was answered for: nobody can be asked about it any more")
        return self._backchannel.ask(self, lane, question)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report progress on the current leg, if its request asked for it.

        Raises:
            LocalProtocolError: the value did not rise (L-PRG-1b), or is not a finite number.
        """
        leg = self.leg
        if leg is None or leg.progress_token is None or self.replaying:
            await trio.lowlevel.checkpoint()
            return
        if not leg.progress < progress < float("inf"):
            raise LocalProtocolError(f"progress must rise: {progress} came after {leg.progress}")
        leg.progress = progress
        params = ProgressNotificationParams(
            progress_token=leg.progress_token, progress=progress, total=total, message=message
        )
        await leg.notify("notifications/progress", params)

    async def log(self, level: LoggingLevel, data: JsonValue, logger_name: str | None) -> None:
        """Send a log message, if the current leg's threshold lets it through."""
        leg = self.leg
        if leg is None or not leg.threshold.passes(level) or self.replaying:
            await trio.lowlevel.checkpoint()
            return
        params = LoggingMessageNotificationParams.model_validate({"level": level, "data": data, "logger": logger_name})
        await leg.notify("notifications/message", params)

    async def end_stream(self, retry: float | None) -> None:
        """End the response stream of the current leg, where its client can come back for the rest."""
        leg = self.leg
        pause = leg.listeners[0].pause if leg is not None and leg.listeners else None
        if pause is None:
            await trio.lowlevel.checkpoint()
        else:
            await pause(retry)

    def cancel(self, reason: CancelReason) -> None:
        self.actor.cancel(reason)

    # what it learns

    @property
    def replaying(self) -> bool:
        """It runs again and has not come to anything new: what it says now was said before."""
        return self.replayable and self.actor.journal.replaying

    def fingerprint(self, question: Question[T]) -> str:
        """What tells this question from another under the same key."""
        return digest(question.method, question.params.wire())[:FINGERPRINT] if self.replayable else ""

    def recall_answer(self, key: str, question: Question[T], fingerprint: str) -> T | None:
        """The answer that an earlier run was given to this very question."""
        known = self._recall(EntryKind.ANSWER, key, fingerprint)
        return None if known is None else question.answer_type.model_validate(known.value)

    def record_answer(self, key: str, answer: Model, fingerprint: str) -> None:
        if self.replayable:
            self.actor.journal.record(JournalEntry(EntryKind.ANSWER, key, answer.wire(), fingerprint))

    def recall_step(self, name: str) -> JournalEntry | None:
        """The result that an earlier run had from this step, as JSON."""
        return self._recall(EntryKind.STEP, name, "")

    def record_step(self, name: str, result: JsonValue) -> None:
        self.actor.journal.record(JournalEntry(EntryKind.STEP, name, result))

    def _recall(self, kind: EntryKind, name: str, fingerprint: str) -> JournalEntry | None:
        if not self.replayable:
            return None
        try:
            return self.actor.journal.recall(kind, name, fingerprint)
        except Divergence as divergence:
            self.service.note_divergence(f"{self._plan.target}: {divergence}")
            return None

    def recollection(self, asked: Mapping[str, Asked]) -> Recollection:
        """What the state is to remember. One with a reference has to be kept first; see `keep`."""
        service = self.service
        if not self.replayable:
            return Recollection(service.node)
        entries = self.actor.journal.entries
        size = len(dumps(entries_to_json(entries)))
        if size <= service.options.max_state:
            return Recollection(service.node, asked, entries)
        if service.options.store is None:
            logger.warning("%s has a journal of %d bytes, which is too large to travel", self._plan.target, size)
            return Recollection(service.node, asked, dropped=size)
        return Recollection(service.node, asked, entries, reference=secrets.token_urlsafe(16))

    async def keep(self, recollection: Recollection) -> Recollection:
        """Keep a large journal in the store; what is to be sealed then holds the reference only."""
        store, reference = self.service.options.store, recollection.reference
        assert store is not None
        assert reference is not None
        data = dumps(entries_to_json(recollection.entries))
        try:
            await store.put(reference, data, self.service.options.actors.park_ttl)
        except Exception:
            logger.exception("the store did not keep a journal; the call goes on without")
            return replace(recollection, entries=(), reference=None, dropped=len(data))
        return replace(recollection, entries=())

    def end_leg(self, ending: Ending) -> None:
        """The current leg is over, this way."""
        leg, self.leg = self.leg, None
        if self.rounds is not None:
            self.rounds.ended(ending)
        if leg is not None:
            leg.finish(ending)

    def _run(self, _actor: Actor) -> Awaitable[Model]:
        return self._plan.run(self)

    def _done(self, _actor: Actor, outcome: Outcome) -> None:
        self.outcome = outcome
        if self.leg is not None:
            self.conclude(self.leg, outcome)
        if self.rounds is None or not self.rounds.finished():
            self.let_go()

    def let_go(self) -> None:
        """Nobody can come back for it. What it and its past hold of each other is let go, for the collector comes late."""
        self.outcome = self.rounds = self._backchannel = None

    def conclude(self, leg: Leg, outcome: Outcome) -> None:
        """End this leg, the last one, with what became of the call. It tells a client that has cancelled nothing."""
        self.leg = leg
        try:
            ending = self._ending(leg.facts, outcome)
        except BaseException as error:  # noqa: BLE001, ASYNC103  nothing that a tool makes may get past its own call
            ending = error_detail(leg.facts, error, self._plan.target)
        self.end_leg(None if self.actor.cancel_reason in UNHEARD else ending)

    def _ending(self, facts: RequestFacts, outcome: Outcome) -> Ending:
        match outcome:
            case Returned(value):
                assert isinstance(value, Model)
                return self._encoded(facts, value)
            case Raised(error):
                result = self._plan.failed(error)
                return error_detail(facts, error, self._plan.target) if result is None else self._encoded(facts, result)
            case Cancelled(reason):
                if reason in UNHEARD:
                    return None
                detail = self._overtime() if reason is CancelReason.DEADLINE else CANCELLED[reason]
                cause = LimitExceeded(detail.message) if reason is CancelReason.DEADLINE else reason
                result = self._plan.failed(cause)
                return detail if result is None else self._encoded(facts, result)

    def _overtime(self) -> ErrorDetail:
        """Which limit a call has met that took too long; the shortest is the one that cancels."""
        own, most = self._plan.seconds, self.service.options.max_seconds
        whose = "its timeout" if own <= most else "the most that this server allows"
        took = f"{self._plan.target[:128]} did not finish within {min(own, most):g} seconds, {whose}."
        return ErrorDetail(SERVER_BUSY, took)

    def _encoded(self, facts: RequestFacts, result: Model) -> Ending:
        try:
            return facts.codec.encode_result(facts.method, result, self.service.signature)
        except LocalProtocolError as error:
            instead = self._plan.failed(error)
            if instead is None:
                raise
            return facts.codec.encode_result(facts.method, instead, self.service.signature)

    def __repr__(self) -> str:
        return f"<Call {self._plan.target} {self.leg!r}>"


CANCELLED = {
    CancelReason.EXPIRED: ErrorDetail(SERVER_BUSY, "The call waited too long for an answer."),
    CancelReason.SHUTDOWN: ErrorDetail(SERVER_BUSY, "The server is shutting down. Try again in a moment."),
    CancelReason.SIBLING: ErrorDetail(INTERNAL_ERROR, "The call was cancelled."),
}


def error_detail(facts: RequestFacts, error: BaseException, target: str = "") -> ErrorDetail:
    """What the peer is told of an error, in a form that can be sent: one that cannot would break everybody's connection.

    The log names the `target`, where the request has one.
    """
    try:
        detail = told(facts, error, target)
        dump(ErrorResponse(None, detail))
    except (TypeError, ValueError) as unsendable:
        return told(facts, unsendable, target)
    return detail


def told(facts: RequestFacts, error: BaseException, target: str) -> ErrorDetail:
    """What the peer is told of an error that is not the tool's own; unknown ones only by a number to look up in the log."""
    match error:
        case LocalProtocolError():
            logger.error("%s broke a rule", logged(facts, target), exc_info=error)
            return ErrorDetail(INTERNAL_ERROR, str(error))
        case ProtocolError():
            return ErrorDetail(error.code, str(error), error.data)
        case CapabilityError():
            return ErrorDetail(
                facts.codec.revision.missing_capability, str(error), {"requiredCapabilities": error.required}
            )
        case ResourceNotFound(uri=uri):
            return ErrorDetail(facts.codec.revision.missing_resource, str(error), {"uri": uri})
        case LimitExceeded():
            return ErrorDetail(SERVER_BUSY, str(error))
        case ToolError() | RequestTimeout():
            return ErrorDetail(INTERNAL_ERROR, str(error))
        case _:
            reference = secrets.token_hex(4)
            logger.error("%s failed [%s]", logged(facts, target), reference, exc_info=error)
            return ErrorDetail(INTERNAL_ERROR, f"Internal error; the server's log has the details under {reference}.")


def logged(facts: RequestFacts, target: str) -> str:
    """A request as the log names it; a target that a client wrote cannot break the line."""
    return f"{facts.method} of {target[:128]!r}" if target else facts.method
