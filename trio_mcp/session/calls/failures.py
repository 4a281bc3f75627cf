"""Turns an error into the answer to its caller, and logs it."""

from __future__ import annotations

import logging
import secrets
from typing import TypeVar

from ... import types
from ...base.groups import leaf_exceptions
from ...base.logs import FailureLog, RepeatedRecords, peer_logger
from ...errors import (
    BranchLimit,
    CapabilityError,
    LimitExceeded,
    LocalProtocolError,
    MalformedAnswer,
    ProtocolError,
    ProviderError,
    QuestionRejected,
    RequestTimeout,
    ResourceNotFound,
    ToolError,
    UrlElicitationRequired,
    UrlToOpen,
)
from ...protocol.jsonrpc import INTERNAL_ERROR, SERVER_BUSY, ErrorDetail, ErrorResponse, dump
from ...protocol.revisions import OUTCOME_UNKNOWN
from ...runtime import CancelReason
from ...storage import StoreError, StoreFull, StoreTimeout
from ...types import ClientCapabilities, JsonValue, Model
from ...types.capabilities import declares, lacks
from ..envelope import Caller
from ..event_loop import asyncio_hint, text_of
from .facts import Question, RequestFacts

T = TypeVar("T", bound=Model)

logger = peer_logger("trio_mcp.call")

NO_REPLY_REASONS = (CancelReason.CLIENT, CancelReason.DISCONNECT)
"""Reasons after which no reply is sent, because the client does not want one or cannot get one (L-CAN-2b, M-CAN-2s)."""

GOES_ON_REASONS = (CancelReason.SHUTDOWN, CancelReason.FENCED)
"""Reasons after which another process may go on with what this one has stored of a call."""

CANCEL_ERRORS = {
    CancelReason.EXPIRED: ErrorDetail(SERVER_BUSY, "The call waited too long for an answer."),
    # Not "busy", which says that nothing was run.
    CancelReason.SHUTDOWN: ErrorDetail(
        INTERNAL_ERROR,
        "The server is shutting down and has cancelled this call. What it did stays done. Start it again if that is safe.",
        {OUTCOME_UNKNOWN: True},
    ),
    CancelReason.FENCED: ErrorDetail(
        INTERNAL_ERROR,
        "This server did not reach its store for too long and has cancelled this call. What it did stays done. Start it again if "
        "that is safe.",
        {OUTCOME_UNKNOWN: True},
    ),
    CancelReason.SIBLING: ErrorDetail(INTERNAL_ERROR, "The call was cancelled."),
}

SENDER_DISCONNECTED = ErrorDetail(
    INTERNAL_ERROR, "The call was cancelled because the client that carried it went away. Start it again."
)
"""The reply to a copy of a leg whose first sender disconnected: the leg was cancelled then, and runs no more."""


EXPECTED_ERRORS = (
    ProtocolError,
    ToolError,
    CapabilityError,
    LimitExceeded,
    RequestTimeout,
    ResourceNotFound,
    QuestionRejected,
    ProviderError,
)
"""Errors whose text, or `public_text`, is meant for the caller."""

MAX_TOLD = 10_000
"""Characters of an unexpected error's text that a caller receives."""


def store_failure(records: RepeatedRecords, error: StoreError, advice: str = "Try again later.") -> LimitExceeded:
    """Return the error for a caller whose request the store fails; what the store says is for the log, and may name a path."""
    records.log("the store failed a request: %s", error, level=logging.ERROR)
    match error:
        case StoreFull():
            why = "has no room"
        case StoreTimeout():
            why = "does not answer"
        case _:
            why = "fails"
    return LimitExceeded(f"The store of this server {why} now. {advice}")


def told_error(failures: FailureLog, facts: RequestFacts, error: BaseException, target: str) -> BaseException:
    """Return an error that the caller may read: an unexpected one becomes a `ToolError` with its type and text, and is logged."""
    if isinstance(error, EXPECTED_ERRORS):
        return error
    failures.log(logger, facts.method, f"{log_name(facts, target)} failed", error)
    return ToolError(f"{exception_text(error, runner_name(facts))}{unknown_hint(error, facts)}")


def exception_text(error: BaseException, what: str) -> str:
    """Return the types and texts of the exceptions in a group, or of the one exception; `what` raised it."""
    texts = (f"{type(leaf).__name__}: {text_of(leaf)}".removesuffix(": ") for leaf in leaf_exceptions(error))
    return f"{'; '.join(texts)[:MAX_TOLD]}{author_hint(error, what)}"


def author_hint(error: BaseException, what: str) -> str:
    """Return advice to append to the text of an error, if it has a well-known cause; `what` raised it."""
    return f"{asyncio_hint(error, what)}{context_hint(error)}"


def context_hint(error: BaseException) -> str:
    """Return advice to append to the text of an error, if code that uses the state or caller of its context has found None."""
    for leaf in leaf_exceptions(error):
        if not isinstance(leaf, AttributeError) or leaf.obj is not None or leaf.name is None:
            continue
        names = last_names(leaf)
        if "caller" in names and hasattr(Caller, leaf.name):
            return (
                "; ctx.caller is None where the server does not authenticate, as on stdio: check for None, "
                "or pass principal= in a test"
            )
        if "state" in names:
            return "; ctx.state is None without a lifespan: give one to Server(lifespan=...), or state= to make_context"
    return ""


def unknown_hint(error: BaseException, facts: RequestFacts) -> str:
    """Return advice to append to the text of an error, if the function of a resource has found no such key."""
    if facts.method != "resources/read" or not any(isinstance(leaf, LookupError) for leaf in leaf_exceptions(error)):
        return ""
    return "; for a resource that does not exist, raise ResourceNotFound(uri), or return None"


def last_names(error: BaseException) -> tuple[str, ...]:
    """Return the names in the code that raised an error."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return () if traceback is None else traceback.tb_frame.f_code.co_names


def runner_name(facts: RequestFacts) -> str:
    """Return what runs for a request."""
    return "tool" if facts.method == "tools/call" else "function"


def error_detail(failures: FailureLog, facts: RequestFacts, error: BaseException, target: str = "") -> ErrorDetail:
    """Return the error to answer the caller with, in a form that can be sent.

    The log names the `target`, where the request has one.
    """
    # An error that cannot be encoded would otherwise surface in the writer, and end the connection for every call on it.
    try:
        detail = describe_error(failures, facts, error, target)
        dump(ErrorResponse(None, detail))
    except (TypeError, ValueError) as unsendable:
        return describe_error(failures, facts, unsendable, target)
    return detail


def describe_error(failures: FailureLog, facts: RequestFacts, error: BaseException, target: str) -> ErrorDetail:
    """Return the error for the caller; an unexpected one is only a reference number, with its traceback in the log."""
    match error:
        case UrlElicitationRequired() if (code := url_required_code(facts)) is not None:
            return ErrorDetail(code, str(error), {"elicitations": [page_to_json(page) for page in error.pages]})
        case LocalProtocolError():
            failures.log(logger, facts.method, f"{log_name(facts, target)} failed: {error}", error)
            return ErrorDetail(INTERNAL_ERROR, str(error))
        # Before `ProtocolError`, and not with the code of the client: its -32601 would say that this server lacks the method.
        case ToolError() | RequestTimeout() | QuestionRejected() | MalformedAnswer():
            return ErrorDetail(INTERNAL_ERROR, str(error))
        case ProtocolError():
            return ErrorDetail(error.code, str(error), error.data)
        case CapabilityError():
            return ErrorDetail(
                facts.terms.codec.revision.missing_capability, str(error), {"requiredCapabilities": error.required}
            )
        case ResourceNotFound(uri=uri):
            return ErrorDetail(facts.terms.codec.revision.missing_resource, str(error), {"uri": uri})
        # A limit of this one call: the same request reaches it again, so it is no reason to try later (503 over HTTP).
        case BranchLimit():
            return ErrorDetail(INTERNAL_ERROR, str(error))
        case LimitExceeded():
            return ErrorDetail(SERVER_BUSY, str(error))
        case ProviderError():
            # The API's message may quote its request, and is for the log only.
            failures.log(logger, facts.method, f"{log_name(facts, target)} has no answer of its model", error)
            return ErrorDetail(INTERNAL_ERROR, error.public_text)
        case _:
            reference = secrets.token_hex(4)
            hint = f"{author_hint(error, runner_name(facts))}{unknown_hint(error, facts)}"
            failures.log(
                logger, facts.method, f"{log_name(facts, target)} failed", error, reference=reference, hint=hint
            )
            return ErrorDetail(INTERNAL_ERROR, f"Internal error; the server's log has the details under {reference}.")


def url_required_code(facts: RequestFacts) -> int | None:
    """Return the error code for `UrlElicitationRequired`; None if the client must not be asked to open a page so."""
    can_open = declares(facts.client_capabilities, "elicitation.url")
    return facts.terms.codec.revision.url_required if can_open else None


def page_to_json(page: UrlToOpen) -> JsonValue:
    """Return a page as the error -32042 lists it (L-ELI-10s)."""
    params = types.ElicitRequestURLParams(message=page.message, url=page.url, elicitation_id=page.elicitation_id)
    return params.wire()


def check_capabilities(facts: RequestFacts, question: Question[T], *, whose: str = "this one") -> None:
    """Raise `CapabilityError` unless the client declared, for this request, all that a question needs.

    Args:
        whose: the client, in the words of the error.
    """
    codec, needs = facts.terms.codec, question.needs
    missing = lacks(facts.terms.client_capabilities, needs)
    if missing is not None:
        # With the part that is lacking: a client may have sampling, and none with tools.
        names = ", ".join(need for need in needs if lacks(facts.terms.client_capabilities, (need,)) is not None)
        raise CapabilityError(f"this needs a client that supports {names}, which {whose} did not declare", missing)
    # A client declares all that it has before a revision is agreed on, which may be older.
    if not codec.can_ask(question.method, question.params):
        needed = lacks(ClientCapabilities(), needs) or {}
        what = " ".join([question.method, *needs])
        raise CapabilityError(f"this client speaks {codec.revision.name}, which has no {what}", needed)


def timeout_error(target: str, timeout: float, max_seconds: float) -> LimitExceeded:
    """Return the error of a call that timed out; it names the limit that was the shorter one."""
    which = "its timeout" if timeout <= max_seconds else "the most that this server allows"
    return LimitExceeded(f"{target[:128]} did not finish within {min(timeout, max_seconds):g} seconds, {which}.")


def log_name(facts: RequestFacts, target: str) -> str:
    """Return the name of a request for the log; the repr keeps a client's text from breaking the line."""
    return f"{facts.method} of {target[:128]!r}" if target else facts.method
