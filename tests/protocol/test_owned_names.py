"""Names that belong to one owner: a text opens for that owner alone, and a name has one text."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from trio_mcp.protocol.sealing.owned_names import OwnedNames
from trio_mcp.protocol.sealing.request_state import KeyRing, from_base64url

KEY, OTHER_KEY = bytes(range(32)), bytes(range(32, 64))


def names(*keys: bytes, audience: str = "proxy") -> OwnedNames:
    return OwnedNames(KeyRing(keys or (KEY,)), audience)


@given(st.text(), st.text(), st.text())
def test_a_name_opens_for_its_kind_and_owner_and_has_one_text(kind: str, owner: str, name: str) -> None:
    text = names().seal(kind, owner, name)
    assert names().open(kind, owner, text) == name
    assert names().seal(kind, owner, name) == text


@pytest.mark.parametrize(
    ("kind", "owner", "change"),
    [("link", "alice", ""), ("task", "bob", ""), ("task", "", ""), ("tas", "kalice", ""), ("task", "alice", "x")],
)
def test_a_text_of_another_kind_or_owner_or_name_is_not_opened(kind: str, owner: str, change: str) -> None:
    assert names().open(kind, owner, names().seal("task", "alice", "t-1") + change) is None


def test_a_text_of_another_audience_is_not_opened() -> None:
    text = names().seal("task", "alice", "t-1")
    assert names(audience="other").open("task", "alice", text) is None
    assert names(audience="other").seal("task", "alice", "t-1") != text


def test_a_text_with_any_character_changed_is_not_opened() -> None:
    text = names().seal("task", "alice", "t-1")
    for place in range(len(text)):
        for other in ("A" if text[place] != "A" else "B", "", "é", "."):
            changed = text[:place] + other + text[place + 1 :]
            assert changed == text or names().open("task", "alice", changed) is None


@given(st.text())
def test_a_text_that_was_made_up_is_not_opened(text: str) -> None:
    assert names().open("task", "alice", text) is None


def test_a_text_does_not_show_the_name() -> None:
    text = names().seal("link", "alice", "a-secret-name")
    assert "a-secret-name" not in text
    assert b"a-secret-name" not in (from_base64url(text) or b"a-secret-name")


def test_every_key_of_the_ring_opens_and_the_first_seals() -> None:
    new, old = names(OTHER_KEY, KEY), names(KEY)
    assert new.open("task", "alice", old.seal("task", "alice", "t")) == "t"
    assert old.open("task", "alice", new.seal("task", "alice", "t")) is None
