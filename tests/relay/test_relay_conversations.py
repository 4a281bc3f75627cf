"""What passes through proxies is what was recorded of it: see `recorded.py`; `record_conversations.py` renews the record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from proxied_conversations import Conversation, conversations
from recorded import RECORD, packed, played, unpacked

RECORDED = unpacked(RECORD.read_text())
ALL = [*conversations()]


@pytest.mark.parametrize("conversation", ALL, ids=[each.title for each in ALL])
async def test_a_recorded_conversation_passes_as_it_did(conversation: Conversation) -> None:
    found, recorded = await played(conversation), RECORDED[conversation.title]
    assert found["host"].keys() == recorded["host"].keys()
    for stream, messages in recorded["host"].items():
        assert lines(found["host"][stream]) == lines(messages)
    assert lines(found["server"]) == lines(recorded["server"])


def lines(messages: list[Any]) -> list[str]:
    """Return messages as text, in which 1 is not True."""
    return [json.dumps(message, sort_keys=True) for message in messages]


def test_the_record_is_of_these_conversations_alone() -> None:
    assert [*RECORDED] == [each.title for each in ALL]
    assert packed(RECORDED) == RECORD.read_text()
