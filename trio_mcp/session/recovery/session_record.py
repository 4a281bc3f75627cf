"""What a store keeps of a legacy session and of the requests in it, so that the next process can go on with them."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ...base.named_tuples import NamedTuple
from ...protocol.jsonrpc import RequestId
from ...types import InitializeRequestParams, JsonObject, LoggingLevel

R = TypeVar("R", bound=BaseModel)


class SessionSnapshot(BaseModel):
    """What a session has agreed on with its client.

    Attributes:
        revision: the one that was negotiated.
        proposed: the one that the client asked for.
        capabilities, client_info: what the client declared, as the newest revision writes it.
        log_level: the least severe messages that it wants.
        initialized: it has sent `notifications/initialized`, or subscribed to a resource.
        watched: the URIs that it is subscribed to.
        owner: names the session where something outlives its requests, such as a task; None where nothing does.
        next_request_id: of the requests to the client; lower ones may have been used.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    revision: str
    proposed: str
    capabilities: JsonObject
    client_info: JsonObject
    log_level: LoggingLevel | None
    initialized: bool
    watched: tuple[str, ...] = ()
    next_request_id: int = 1
    owner: str | None = None

    @property
    def handshake(self) -> InitializeRequestParams:
        """The params with which the client opened the session.

        Raises:
            ValueError: another version of this package wrote them.
        """
        return InitializeRequestParams.model_validate(
            {"protocolVersion": self.proposed, "capabilities": self.capabilities, "clientInfo": self.client_info}
        )


class CallRecord(BaseModel):
    """A request that waits for its answer on a stream.

    The log of the call has the same key as the record: its steps, its answers, and the questions that are open. No header is
    kept, so that no credential is.

    Attributes:
        stream: the number of the stream that the answer goes to.
        batch: the answer goes there in an array.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: RequestId
    method: str
    params: JsonObject
    stream: int
    batch: bool = False


class ContinuedStream(NamedTuple):
    """A stream that a later process went on with.

    Attributes:
        stream: its number.
        epoch: that of the process; the one that opened the session has 0.
        last: the newest event that it knew.
    """

    stream: int
    epoch: int
    last: int


class StoredSession(BaseModel):
    """The record of a session in a store.

    Attributes:
        principal: whose it is.
        node: the process that has it.
        epoch: counts the processes that had it.
        standalone: the number of the stream for what belongs to no request; 0 before there is one.
        continued: the streams that later processes went on with, in the order of their epochs.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    principal: str | None
    node: str
    epoch: int
    standalone: int
    snapshot: SessionSnapshot
    continued: list[ContinuedStream] = []


def encoded_record(record: StoredSession | CallRecord) -> bytes:
    """Return a record as JSON, for a store."""
    return record.model_dump_json().encode()


def decoded_record(kind: type[R], value: bytes) -> R:
    """Read what `encoded_record` wrote.

    Raises:
        ValueError: another version of this package wrote it.
    """
    try:
        return kind.model_validate_json(value)
    except ValidationError as error:
        # Without the input, which may hold arguments of a call.
        problem = error.errors(include_input=False)[0]["msg"]
        raise ValueError(f"this is no {kind.__name__} of this version: {problem}") from None
