"""The checks of the head of a POST, which remember what has passed them."""

from __future__ import annotations

import pytest

from trio_mcp_transports.asgi.access import Access, HttpRejection, PostChecks

PLAIN = {"host": "localhost", "content-type": "application/json", "accept": "*/*"}
REJECTED = {
    "host": ("evil.example", 421),
    "origin": ("https://evil.example", 403),
    "sec-fetch-site": ("cross-site", 403),
    "content-type": ("text/plain", 415),
    "content-encoding": ("gzip", 415),
    "accept": ("text/html", 406),
}


@pytest.mark.parametrize("name", REJECTED)
def test_a_head_that_differs_in_one_field_from_one_that_passed_is_checked(name: str) -> None:
    checks = PostChecks(Access((), ()))
    value, status = REJECTED[name]
    for _ in range(2):
        checks.check(PLAIN)
        with pytest.raises(HttpRejection) as caught:
            checks.check({**PLAIN, name: value})
        assert caught.value.status == status


def test_what_it_remembers_is_bounded() -> None:
    checks = PostChecks(Access((), ()))
    for number in range(1000):
        checks.check({**PLAIN, "accept": f"*/*, a/{number}"})
    assert len(checks._passed) == PostChecks.MAX_KEPT  # noqa: SLF001


def test_a_long_field_is_checked_and_not_remembered() -> None:
    checks = PostChecks(Access((), ()))
    checks.check({**PLAIN, "accept": "*/*," + "a/b," * 1000})
    assert not checks._passed  # noqa: SLF001
