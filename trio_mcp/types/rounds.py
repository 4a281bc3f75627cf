"""Multi-round-trip requests (MRTR, 2026-07-28): a server that needs input ends the request with questions.

The client sends the request again with the answers. In the code each such exchange is a *round*.
"""

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
    """The call needs input: answer the questions, if any, and send the request again with the answers and the state."""

    result_type: str | None = "input_required"
    input_requests: InputRequests | None = None
    request_state: str | None = None
