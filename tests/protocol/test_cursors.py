"""Cursors: what was issued for a list is read for that list, and nothing else is."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest
from hypothesis import given, strategies as st
from naming import naming

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.sealing.owned_names import Cursors
from trio_mcp.protocol.sealing.request_state import KeyRing, Sealer

KEY, OTHER_KEY = bytes(range(32)), bytes(range(32, 64))


def cursors(*keys: bytes, audience: str = "booking") -> Cursors:
    return Cursors(KeyRing(keys or (KEY,)), audience)


def refusal(cursor: str, listing: str = "tools/list", by: Cursors | None = None) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        (by or cursors()).read(listing, cursor)
    assert caught.value.code == -32602
    return str(caught.value)


@given(st.text(), st.integers(0, 2**64 - 1), st.text())
def test_what_is_issued_is_read(listing: str, position: int, audience: str) -> None:
    by = cursors(audience=audience)
    assert position == by.read(listing, by.issue(listing, position))


def test_a_cursor_is_url_safe_and_of_one_length() -> None:
    issued = {cursors().issue("tools/list", position) for position in (0, 1, 1000, 2**64 - 1)}
    assert {len(cursor) for cursor in issued} == {55}
    assert all(character.isalnum() or character in "-_" for cursor in issued for character in cursor)


@pytest.mark.parametrize("position", [-1, 2**64])
def test_a_position_that_is_none_is_not_issued(position: int) -> None:
    with pytest.raises(ValueError, match=naming(position)):
        cursors().issue("tools/list", position)


def test_a_cursor_of_another_list_is_refused() -> None:
    assert "prompts/list" in refusal(cursors().issue("tools/list", 5), "prompts/list")


def test_every_key_of_the_ring_verifies_and_the_first_signs() -> None:
    new, old = cursors(OTHER_KEY, KEY), cursors(KEY)
    assert new.read("tools/list", old.issue("tools/list", 5)) == 5
    assert new.issue("tools/list", 5) == cursors(OTHER_KEY).issue("tools/list", 5)


def test_a_cursor_with_any_bit_flipped_is_refused() -> None:
    signed = urlsafe_b64decode(cursors().issue("tools/list", 5) + "=")
    for bit in range(8 * len(signed)):
        flipped = bytearray(signed)
        flipped[bit // 8] ^= 1 << bit % 8
        refusal(urlsafe_b64encode(flipped).decode().rstrip("="))


CURSOR = cursors().issue("tools/list", 5)
OTHER_LAST_BITS = [CURSOR[:-1] + chr(ord(CURSOR[-1]) + step) for step in (-1, 1)]


@pytest.mark.parametrize(
    "cursor",
    [
        cursors(audience="billing").issue("tools/list", 5),
        cursors(OTHER_KEY).issue("tools/list", 5),
        Sealer(KeyRing([KEY]), "booking").seal(None, "tools/list", "", "call-1", 1),
        *(CURSOR + "=", CURSOR + "A", CURSOR[:-1], CURSOR + "\n", " " + CURSOR[:-1], *OTHER_LAST_BITS),
        *("", "0", "null", "é" * 55, "\ud800" * 55, "A" * 55, "x" * 1_000_000),
    ],
)
def test_any_other_string_is_refused(cursor: str) -> None:
    assert refusal(cursor).isascii()


def test_the_list_and_the_server_cannot_trade_letters() -> None:
    refusal(cursors(audience="bc").issue("a", 5), "ab", cursors(audience="c"))


def test_the_refusal_shows_the_beginning_of_the_cursor() -> None:
    assert '"page-2"' in refusal("page-2")
    shown = refusal("x" * 1000)
    assert "x" * 64 in shown
    assert "x" * 65 not in shown
