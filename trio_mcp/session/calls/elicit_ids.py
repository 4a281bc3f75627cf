"""The numbers and the ids of a call's elicitations: `elicit_{call}_{number}`, shared by all branches, the same in a replay."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from ...runtime import Lane
from .call import Call

_DIGITS: Final = 16
"""Hexadecimal digits for the call. An id is shorter than the forty characters that OpenAI allows for the id of a tool call."""

_CALL_NAME: Final = "call name"
"""What the name is recorded under; no step of an author has such a name: theirs have a colon."""


def next_elicit_number(call: Call, lane: Lane) -> int:
    """Return the number of the elicitation that a lane is about to ask: 1, 2, ... in its call."""
    if call.memory is not None:
        # Recorded, because sibling branches run in any order: in a replay another one may ask first.
        return call.memory.question_number(lane.coming_key)
    mailbox = call.actor.mailbox
    mailbox.numbered += 1
    return mailbox.numbered


def elicit_id(call: Call, number: int) -> str:
    """Return the id of an elicitation that was answered."""
    # The name of a call in rounds, which it has by the time of an answer, leads to it in the directory and stays secret. For
    # other calls the process that started them is named, and its actor.
    name = None if call.legs is None else call.legs.call_id
    if name is None:
        name = _recorded_name(call, f"{call.services.node}/{call.actor.name}")
    return f"elicit_{sha256(name.encode()).hexdigest()[:_DIGITS]}_{number}"


def _recorded_name(call: Call, name: str) -> str:
    """Return the name of a call in the process that started it: this one, unless the call was replayed."""
    if call.memory is None:
        return name
    known = call.memory.find_step(_CALL_NAME)
    if known is not None:
        return str(known.value)
    call.memory.record_step(_CALL_NAME, name)
    return name
