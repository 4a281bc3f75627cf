"""Challenges of `WWW-Authenticate`: what is read from a header, and what is written."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, strategies as st

from trio_mcp.auth.challenges import MAX_CHALLENGES, Challenge, parse_challenges, write_challenge

NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,11}", fullmatch=True)
VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=40)
CHALLENGES = st.lists(st.tuples(NAMES, st.dictionaries(NAMES, VALUES, max_size=4)), max_size=4)


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("Bearer", [("bearer", {})]),
        ('Bearer error="invalid_token", scope="a b"', [("bearer", {"error": "invalid_token", "scope": "a b"})]),
        ("bearer ERROR = invalid_token", [("bearer", {"error": "invalid_token"})]),
        (r'Bearer realm="say \"hi\", \\ or not"', [("bearer", {"realm": r'say "hi", \ or not'})]),
        ('Basic realm="x", DPoP algs="A B", Bearer', [("basic", {"realm": "x"}), ("dpop", {"algs": "A B"}), ("bearer", {})]),
        ("Negotiate YWJj==, Bearer scope=a", [("negotiate", {}), ("bearer", {"scope": "a"})]),
        ('Bearer realm="x" scope="y"', [("bearer", {"realm": "x", "scope": "y"})]),
        (",, Bearer ,, scope=a,", [("bearer", {"scope": "a"})]),
        ("Bearer scope=first, scope=second", [("bearer", {"scope": "first"})]),
        ('Bearer scope=a, realm="never closed', [("bearer", {"scope": "a"})]),
        ("Bearer scope=a, \x00", [("bearer", {"scope": "a"})]),
        ("", []),
        ("=x", []),
        ('"quoted"', []),
    ],
)  # fmt: skip
def test_a_header_is_read_up_to_where_it_is_malformed(header: str, found: list[tuple[str, dict[str, str]]]) -> None:
    assert parse_challenges(header) == [Challenge(*each) for each in found]


def test_a_challenge_has_its_error_its_scopes_and_the_place_of_the_metadata() -> None:
    (challenge,) = parse_challenges('Bearer error=e, scope="a b", resource_metadata="https://m.example/x"')
    assert (challenge.error, challenge.scope, challenge.resource_metadata) == ("e", "a b", "https://m.example/x")
    (bare,) = parse_challenges("Bearer")
    assert (bare.error, bare.scope, bare.resource_metadata) == ("", None, None)


@given(CHALLENGES)
def test_what_is_written_is_read_as_it_was(challenges: list[tuple[str, dict[str, str]]]) -> None:
    header = ", ".join(write_challenge(scheme, parameters) for scheme, parameters in challenges)
    assert parse_challenges(header) == [Challenge(*each) for each in challenges]


@given(st.text(max_size=200))
def test_no_header_is_an_error(header: str) -> None:
    for challenge in parse_challenges(header):
        assert challenge.scheme == challenge.scheme.lower() != ""


def test_a_header_over_the_limit_has_no_challenges() -> None:
    assert parse_challenges("Bearer" + " " * MAX_CHALLENGES) == []
    assert parse_challenges("Bearer" + " " * (MAX_CHALLENGES - 6)) == [Challenge("bearer", {})]


@pytest.mark.parametrize("piece", ['a="', "a=b ", "a ", '"', "\\", 'a="\\', "a=", ", ", "a" * 60 + " ="])
def test_a_hostile_header_is_read_in_linear_time(piece: str) -> None:
    # Quadratic backtracking over 8 KiB takes over a second.
    began = time.process_time()
    parse_challenges("Bearer " + piece * ((MAX_CHALLENGES - 7) // len(piece)))
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "\x00", "\x7f", "é"])
def test_a_value_that_a_header_cannot_have_is_not_written(value: str) -> None:
    with pytest.raises(ValueError, match="scope"):
        write_challenge("Bearer", {"scope": value})
