"""A caller is a value: frozen, bounded, and checked where it is made."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trio_mcp import Caller


def test_a_caller_has_a_principal_scopes_and_claims() -> None:
    caller = Caller("alice", ["read", "write", "read"], {"team": {"name": "blue"}, "roles": [1, 2]})
    assert (caller.principal, caller.scopes) == ("alice", {"read", "write"})
    assert caller.claims == {"team": {"name": "blue"}, "roles": [1, 2]}
    assert (Caller("bob").scopes, Caller("bob").claims) == (frozenset(), {})


def test_a_caller_cannot_be_changed() -> None:
    given: dict[str, Any] = {"roles": [1]}
    caller = Caller("alice", claims=given)
    given["roles"].append(2)
    caller.claims["roles"] = "all of them"
    assert caller.claims == {"roles": [1]}
    for name in ("principal", "scopes", "claims", "more"):
        with pytest.raises(AttributeError):
            setattr(caller, name, "bob")
    with pytest.raises(AttributeError):
        del caller.principal  # type: ignore[misc]


def test_equal_callers_are_equal_and_hash_alike() -> None:
    one, two = (Caller("alice", scopes, {"n": 1}) for scopes in (["a", "b"], ["b", "a"]))
    assert {one} == {two}
    assert one != Caller("alice", ["a", "b"])
    assert one != "alice"


def test_the_claims_are_not_in_the_text_for_people() -> None:
    assert "secret" not in repr(Caller("alice", claims={"token": "secret"}))


WRONG: dict[str, dict[str, Any]] = {
    "no text": {"principal": 3},
    "scopes as one text": {"principal": "a", "scopes": "read"},
    "a scope that is no text": {"principal": "a", "scopes": [1]},
    "claims that are no object": {"principal": "a", "claims": [1]},
    "empty": {"principal": ""},
    "too long": {"principal": "a" * 1025},
    "half a character": {"principal": "al\ud800ice"},
    "a scope with a space": {"principal": "a", "scopes": ["read write"]},
    "a scope with a quote": {"principal": "a", "scopes": ['read"']},
    "an empty scope": {"principal": "a", "scopes": [""]},
    "too many scopes": {"principal": "a", "scopes": [str(number) for number in range(257)]},
    "claims that are no JSON": {"principal": "a", "claims": {"n": math.nan}},
    "claims that are too large": {"principal": "a", "claims": {"text": "x" * 20_000}},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_caller_is_refused_where_it_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        Caller(**wrong)
