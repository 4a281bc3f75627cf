"""The journal of an actor: what it has learned, in order, and never under another question's name."""

from __future__ import annotations

import pytest
from naming import naming

from trio_mcp.runtime import Divergence, EntryKind, Journal, JournalEntry

STEP = JournalEntry(EntryKind.STEP, "search", ["TP1"])
ANSWER = JournalEntry(EntryKind.ANSWER, "elicit-1", {"seat": "aisle"}, digest="d1")


def test_what_was_recorded_is_recalled_by_kind_and_name() -> None:
    journal = Journal()
    journal.record(STEP)
    journal.record(ANSWER)
    assert journal.recall(EntryKind.STEP, "search") == STEP
    assert journal.recall(EntryKind.ANSWER, "elicit-1", "d1") == ANSWER


def test_nothing_is_known_under_a_name_that_was_not_recorded() -> None:
    journal = Journal((STEP,))
    assert journal.recall(EntryKind.STEP, "book") is None
    assert journal.recall(EntryKind.ANSWER, "search") is None


def test_a_name_is_recorded_once_for_each_kind() -> None:
    journal = Journal((STEP,))
    with pytest.raises(ValueError, match=naming("step", "'search'")):
        journal.record(STEP)
    journal.record(JournalEntry(EntryKind.ANSWER, "search", 1))
    assert len(journal.entries) == 2


def test_an_old_answer_is_never_given_to_another_question_of_the_same_name() -> None:
    journal = Journal((ANSWER,))
    with pytest.raises(Divergence, match="answer 'elicit-1'"):
        journal.recall(EntryKind.ANSWER, "elicit-1", "d2")


def test_entries_keep_the_order_in_which_they_were_learned() -> None:
    journal = Journal()
    entries = [JournalEntry(EntryKind.STEP, name, None) for name in ("c", "a", "b")]
    for entry in entries:
        journal.record(entry)
    assert tuple(entries) == journal.entries
    assert tuple(entries) == Journal(journal.entries).entries


def test_the_repr_shows_names_and_no_values() -> None:
    assert repr(Journal((STEP, ANSWER))) == "<Journal ['step search', 'answer elicit-1']>"
