"""The pages that users were asked to open, as a service keeps them."""

from __future__ import annotations

import pytest
from naming import unnamed
from talk import Json, Talk, offering

from trio_mcp import CancelReason, UrlElicitationRequired
from trio_mcp.errors import LimitExceeded
from trio_mcp.session import MemoryBudget
from trio_mcp.session.calls import url_elicitations
from trio_mcp.session.calls.url_elicitations import MAX_SESSION_PAGES, SessionPages, UrlElicitations
from trio_mcp.session.envelope import PAGE_SIZE

PAGES: Json = {"elicitation": {"form": {}, "url": {}}}


async def needs_page() -> str:
    raise UrlElicitationRequired("Connect your account", "https://example.com/connect", elicitation_id="visit-1")


def expect(pages: UrlElicitations, *names: str) -> None:
    """Let a session expect pages for which nothing waits."""
    session = SessionPages(pages, None, str)
    for name in names:
        session.add(name)


async def test_a_page_that_a_call_waits_for_is_never_forgotten_and_one_too_many_is_rejected() -> None:
    pages = UrlElicitations()
    for number in range(url_elicitations.AWAITED_PAGES.limit):
        pages.add(str(number), lambda: None)
    with pytest.raises(LimitExceeded) as raised:
        pages.add("one more", lambda: None)
    assert unnamed(str(raised.value), str(url_elicitations.AWAITED_PAGES.limit)) == []
    for number in range(MAX_SESSION_PAGES):
        expect(pages, f"expected-{number}")
    assert pages.complete("0")
    assert not pages.complete("one more")


async def test_pages_that_nothing_waits_for_are_bounded_and_the_oldest_is_forgotten() -> None:
    pages = UrlElicitations()
    most = url_elicitations.LEFT_PAGES.limit
    account = MemoryBudget(most * PAGE_SIZE * 4).open()
    for number in range(most + 1):
        SessionPages(pages, account, str).add(str(number))
    assert (len(pages), account.drawn) == (most, most * PAGE_SIZE)
    assert (pages.complete("0"), pages.complete("1")) == (False, True)


async def test_a_session_that_expects_too_many_pages_forgets_its_own() -> None:
    pages = UrlElicitations()
    expect(pages, "of another session")
    expect(pages, *map(str, range(MAX_SESSION_PAGES + 1)))
    assert (pages.complete("0"), pages.complete("1"), pages.complete("of another session")) == (False, True, True)


async def test_a_page_that_nothing_waits_for_draws_from_the_memory_budget_until_its_session_ends() -> None:
    server = offering(needs_page)
    async with server.open_service() as service:
        with service.options.memory.open() as account:
            talk = Talk(service, account=account)
            with talk.outbox:
                await talk.initialize(capabilities=PAGES)
                before = account.drawn
                await talk.error(talk.call("needs_page"))
                assert account.drawn == before + PAGE_SIZE
                talk.session.close(CancelReason.DISCONNECT)
                assert account.drawn == before
        assert not server.complete_elicitation("visit-1")
        assert len(service.calls.url_elicitations) == 0


async def test_a_page_for_which_the_memory_budget_has_no_room_is_an_error() -> None:
    full = MemoryBudget(2).open()
    full.draw(2)
    pages = UrlElicitations()
    with pytest.raises(LimitExceeded):
        SessionPages(pages, full, str).add("visit-1")
    assert len(pages) == 0
