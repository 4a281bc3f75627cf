"""What a tool asked of a mock client, as the client remembers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ...client.elicit_router import question_of
from ...protocol.conversation import blocks_of
from ...types import (
    CreateMessageRequestParams,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    JsonObject,
    Model,
    SamplingMessage,
    TextContent,
)

Kind: TypeAlias = Literal["elicit", "url", "sample", "roots"]


@dataclass(frozen=True, slots=True)
class Question:
    """One question that a tool asked.

    Attributes:
        kind: "elicit" for a form, "url" for a page, "sample" or "roots".
        params: the params of the request.
        leg: which request of the call asked it, counted from 1. In the legacy era a call has one.
    """

    kind: Kind
    params: Model
    leg: int

    @property
    def message(self) -> str:
        """The text of a form or a page, or the last text that a sample sends to the model; empty for roots."""
        if isinstance(self.params, ElicitRequestFormParams | ElicitRequestURLParams):
            return self.params.message
        if isinstance(self.params, CreateMessageRequestParams):
            return text_of(self.params.messages[-1]) if self.params.messages else ""
        return ""

    @property
    def schema(self) -> JsonObject | None:
        """The JSON Schema of a form, as it was sent; None for any other question."""
        params = self.params
        return params.requested_schema.wire() if isinstance(params, ElicitRequestFormParams) else None

    @property
    def key(self) -> str | None:
        """The key of a form that the tool declared, or None."""
        named = question_of(self.params) if isinstance(self.params, ElicitRequestFormParams) else None
        return None if named is None else named[1]

    def __str__(self) -> str:
        fields = self.params.requested_schema.properties if isinstance(self.params, ElicitRequestFormParams) else {}
        form = f" with the fields {', '.join(fields)}" if fields else ""
        if isinstance(self.params, CreateMessageRequestParams) and not self.message and self.params.messages:
            blocks = blocks_of(self.params.messages[-1].content)
            return f"{self.kind} after {', '.join(block.type for block in blocks)}"
        return f"{self.kind} {self.message!r:.200}{form}"


def text_of(message: SamplingMessage) -> str:
    """Return the text blocks of a message, each on its own lines."""
    return "\n".join(block.text for block in blocks_of(message.content) if isinstance(block, TextContent))
