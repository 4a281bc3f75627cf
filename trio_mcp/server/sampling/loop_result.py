"""What a tool loop returns, and how a tool ends one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from ...errors import ToolError
from ...protocol.strict_json import dumps, loads
from ...session import TokenUsage
from ...types import JsonValue, SamplingMessage

ENDED: Final = "A tool has ended the loop."
"""The text of a break without a value."""


class BreakToolLoop(ToolError):
    """Raise this in a tool to end the loop that runs it: what the loop was for has been found, or cannot be.

        raise BreakToolLoop({"flight": "TP3"})

    The other calls of the round are cancelled, and the model is asked nothing more. In a tool that a client calls, it is an error
    result with its text.

    Args:
        value: JSON; `ToolLoopResult.value` has it.
        text: what `ToolLoopResult.text` and the conversation have; by default the value, as JSON if it is not text.

    Raises:
        ValueError: JSON cannot hold the value or the text.
    """

    def __init__(self, value: JsonValue = None, text: str | None = None) -> None:
        written = dumps(value)
        if text is None:
            text = value if isinstance(value, str) else ENDED if value is None else written.decode()
        dumps(text, "text")
        super().__init__(text)
        # As a replay would read it from the journal.
        self.value = loads(written)


@dataclass(frozen=True, slots=True)
class ToolLoopResult:
    """The outcome of `ctx.run_tool_loop`.

    Attributes:
        text: the last answer of the model; or the text of the `BreakToolLoop` that ended the loop.
        ended_by: "answer", if the model called no more tools; "limit", if it had to answer without tools in the last round that
            `max_iterations` allows; or "break".
        value: the value of the `BreakToolLoop`; None without one.
        messages: the whole conversation, the messages that the loop began with included.
        usage: the tokens of all answers, as far as they were reported.
        iterations: how many times the model was asked.
        stop_reason: why the model stopped in its last answer, such as "endTurn"; None if the client did not say.
    """

    text: str
    ended_by: Literal["answer", "limit", "break"]
    value: JsonValue
    messages: tuple[SamplingMessage, ...] = field(repr=False)
    usage: TokenUsage
    iterations: int
    stop_reason: str | None
