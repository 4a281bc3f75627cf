"""Rounds: a server that needs something from the client ends the request with questions (2026-07-28, MRTR)."""

from typing import Annotated, TypeAlias

from pydantic import Field

from .elicitation import ElicitRequest, ElicitResult
from .messages import Result
from .roots import ListRootsRequest, ListRootsResult
from .sampling import CreateMessageRequest, CreateMessageResult

InputRequest: TypeAlias = Annotated[
    CreateMessageRequest | ListRootsRequest | ElicitRequest,
    Field(discriminator="method"),
]
InputRequests: TypeAlias = dict[str, InputRequest]
InputResponse: TypeAlias = CreateMessageResult | ListRootsResult | ElicitResult


class InputRequiredResult(Result):
    """Not done yet: answer the questions, if any, and send the request again with the answers and the state."""

    result_type: str | None = "input_required"
    input_requests: InputRequests | None = None
    request_state: str | None = None
