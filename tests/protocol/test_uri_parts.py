"""One normal form of a URI, and which resources a resource is a part of: rules for the server and for the client that caches."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from trio_mcp.protocol.uri.uris import MAX_LEVELS, ancestor_uris, is_part_of, normal_uri

URIS = st.text("ab:/?#", max_size=12)


@pytest.mark.parametrize(
    ("uri", "whole", "part"),
    [
        ("a://b", "a://b", True),
        ("a://b/c", "a://b", True),
        ("a://b/c", "a://b/", True),
        ("a://b?c", "a://b", True),
        ("a://b#c", "a://b", True),
        ("a://bc", "a://b", False),
        ("a://b?cd", "a://b?c", False),
        ("a://b", "a://b/c", False),
    ],
)
def test_a_part_of_a_resource_is_below_it(uri: str, whole: str, part: bool) -> None:
    assert is_part_of(uri, whole) == part
    assert (whole in ancestor_uris(uri)) == part


@given(URIS, st.integers(0, 12), URIS)
def test_both_functions_state_one_rule(uri: str, end: int, other: str) -> None:
    for whole in (uri[:end], other):
        assert is_part_of(uri, whole) == (whole in ancestor_uris(uri))


def test_a_long_uri_has_a_limited_number_of_ancestors() -> None:
    assert len(list(ancestor_uris("/" * 10_000))) == 1 + 2 * MAX_LEVELS


@pytest.mark.parametrize(
    ("uri", "normal"),
    [
        ("HTTP://Example.COM:80", "http://example.com/"),
        ("https://example.com:443?q", "https://example.com/?q"),
        ("http://User@Example.com:8080/A", "http://User@example.com:8080/A"),
        ("http://example.com/%7euser/%c3%a9", "http://example.com/~user/%C3%A9"),
        ("notes://x/é", "notes://x/%C3%A9"),
        ("http://example.com/a/./b/../c?d=/../e", "http://example.com/a/c?d=/../e"),
        ("file://localhost/a", "file:///a"),
        ("Config:App", "config:App"),
        ("Notes://My{Host}/{+Path}", "notes://my{Host}/{+Path}"),
        ("urn:ISBN:1%2f2", "urn:ISBN:1%2F2"),
        ("notes://x:/", "notes://x/"),
    ],
)
def test_a_uri_has_one_normal_form(uri: str, normal: str) -> None:
    assert normal_uri(uri) == normal
    assert normal_uri(normal) == normal


@pytest.mark.parametrize(
    ("one", "other"), [("a://x/B", "a://x/b"), ("a://x/%2F", "a://x//"), ("a:x", "a://x"), ("a://x/b", "a://x/b/")]
)
def test_what_names_another_resource_has_another_normal_form(one: str, other: str) -> None:
    assert normal_uri(one) != normal_uri(other)


def test_a_part_is_one_in_any_spelling() -> None:
    assert is_part_of("http://EXAMPLE.com/a/b", "http://example.com/a")
    assert not is_part_of("http://example.com/ab", "http://EXAMPLE.com/a")
