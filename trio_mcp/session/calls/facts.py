"""What a handler may know of the request it serves, and the questions it may ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, TypeVar, cast

from pydantic_core import from_json

from ...protocol.codec.reading import RequestTerms
from ...protocol.jsonrpc import RequestId
from ...runtime.loop_turn import LoopTurn
from ...types import ClientCapabilities, Implementation, JsonObject, Model

T = TypeVar("T", bound=Model)


class RequestFacts(NamedTuple):
    """The description of a request for its handler.

    Attributes:
        turn: what is dear to find out about the request is added to it.
        size: its length in bytes as received.
    """

    id: RequestId
    method: str
    terms: RequestTerms
    principal: str | None
    headers: Mapping[str, str]
    turn: LoopTurn
    size: int = 0

    @property
    def client_capabilities(self) -> ClientCapabilities:
        return self.terms.client_capabilities

    @property
    def client_info(self) -> Implementation | None:
        return self.terms.client_info

    @property
    def meta(self) -> JsonObject:
        """The `_meta` object as it came; decoded each time it is read."""
        return cast("JsonObject", from_json(self.terms.meta.raw))

    @property
    def protocol_version(self) -> str:
        return self.terms.codec.revision.name


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """A question that a call asks its client.

    Attributes:
        kind: `elicit`, `sample` or `roots`; the first part of the question's key.
        answer_type: the model that a valid answer decodes to.
        needs: the client capabilities that it requires, such as `elicitation.form`.
        name: the author's name for it; its key the first time that a call asks it outside of branches.
    """

    kind: str
    method: str
    params: Model
    answer_type: type[T]
    needs: tuple[str, ...]
    name: str | None = None


class ResumeMode(Enum):
    """What happens if a retry arrives and the parked actor of the call no longer exists."""

    REPLAY = "replay"
    PARKED = "parked"
