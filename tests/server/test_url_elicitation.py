"""`ctx.elicit_url` and `UrlElicitationRequired`: pages that a user is asked to open, in both eras."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
from connected import connected
from naming import unnamed
from talk import (
    DECLINE,
    DISMISS,
    Json,
    Legacy,
    Talk,
    offering,
    play as play_as,
    session_with as session_as,
    talk_to,
)
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Context, RequestTimeout, Server, UrlElicitationRequired, accept
from trio_mcp.errors import CapabilityError
from trio_mcp.server.options import ResumePolicy
from trio_mcp.testing import make_context
from trio_mcp.types import ElicitRequestURLParams

URL = "https://example.com/connect"
ACCEPT: Json = {"action": "accept"}
URL_REQUIRED = -32042
COMPLETE = "notifications/elicitation/complete"
PAGES: Json = {"elicitation": {"form": {}, "url": {}}}
FORMS_ONLY: Json = {"elicitation": {"form": {}}}


def play(server: Server, era: type[Legacy], capabilities: Json = PAGES) -> AbstractAsyncContextManager[Legacy]:
    """A call of a client that can open pages."""
    return play_as(server, era, capabilities)


def session_with(
    server: Server, version: str = "2025-11-25", capabilities: Json = PAGES
) -> AbstractAsyncContextManager[Talk]:
    """A legacy session of such a client."""
    return session_as(server, version, capabilities)


async def connect(ctx: Context) -> str:
    result = await ctx.elicit_url("Connect your account", URL, elicitation_id="visit-1")
    return f"{result.action} at {trio.current_time():g}"


@asynccontextmanager
async def at_the_page(server: Server, era: type[Legacy]) -> AsyncIterator[Legacy]:
    """A call of the tool `connect` or `tool`, whose user has opened the page."""
    async with play(server, era) as player:
        await player.call(server.tools[0].name)
        await player.question()
        await player.answer(ACCEPT)
        await wait_all_tasks_blocked()
        yield player


async def is_notified(talk: Talk) -> None:
    """Wait for the notice that the page `visit-1` is complete."""
    assert await talk.notification(COMPLETE) == {"elicitationId": "visit-1"}


def ended(player: Legacy) -> bool:
    """Whether the call was answered by now."""
    return any("result" in message for message in player.talk.waiting())


# asking


async def test_the_user_is_asked_to_open_the_page_and_the_call_waits_until_it_is_completed(
    era: type[Legacy], autojump_clock: MockClock
) -> None:
    server = offering(connect)
    async with play(server, era) as player:
        await player.call("connect")
        asked = await player.question()
        assert (asked["mode"], asked["message"], asked["url"]) == ("url", "Connect your account", URL)
        assert asked.get("elicitationId") == ("visit-1" if era is Legacy else None)
        await player.answer(ACCEPT)
        await trio.sleep(40)
        assert not ended(player)
        assert server.complete_elicitation("visit-1")
        if era is Legacy:
            await is_notified(player.talk)
        assert await player.text() == "accept at 40"
        assert not server.complete_elicitation("visit-1")


async def test_a_user_who_finished_before_the_answer_came_is_not_waited_for(era: type[Legacy]) -> None:
    server = offering(connect)
    async with play(server, era) as player:
        await player.call("connect")
        await player.question()
        assert server.complete_elicitation("visit-1")
        await wait_all_tasks_blocked()
        if era is Legacy:
            await is_notified(player.talk)
        await player.answer(ACCEPT)
        assert (await player.text()).startswith("accept")


@pytest.mark.parametrize(("answer", "action"), [(DECLINE, "decline"), (DISMISS, "cancel")])
async def test_a_user_may_refuse_and_the_elicitation_is_over(era: type[Legacy], answer: Json, action: str) -> None:
    server = offering(connect)
    async with play(server, era) as player:
        await player.call("connect")
        await player.question()
        await player.answer(answer)
        assert (await player.text()).startswith(action)
        assert not server.complete_elicitation("visit-1")


async def test_the_url_may_be_made_for_a_random_id(era: type[Legacy]) -> None:
    async def tool(ctx: Context) -> str:
        result = await ctx.elicit_url("Connect", lambda name: f"{URL}?state={name}", wait=False)
        assert result.action == "accept"
        return result.elicitation_id

    names: set[str] = set()
    for _ in range(2):
        async with play(offering(tool), era) as player:
            await player.call("tool")
            url = (await player.question())["url"]
            await player.answer(ACCEPT)
            names.add(await player.text())
            assert url == f"{URL}?state={max(names, key=url.endswith)}"
    assert len(names) == 2
    assert all(len(name) >= 20 for name in names)


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_function_may_find_out_that_the_user_has_finished(
    era: type[Legacy], kind: str, autojump_clock: MockClock
) -> None:
    def finished() -> bool:
        return trio.current_time() >= 3

    async def looked_up() -> bool:
        await trio.lowlevel.checkpoint()
        return finished()

    async def tool(ctx: Context) -> str:
        result = await ctx.elicit_url("Connect", URL, done=finished if kind == "plain" else looked_up)
        return f"{result.action} at {trio.current_time():g}"

    async with at_the_page(offering(tool), era) as player:
        assert await player.text() == "accept at 3"


async def test_a_completion_ends_the_wait_between_two_looks(era: type[Legacy], autojump_clock: MockClock) -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit_url("Connect", URL, elicitation_id="visit-1", done=lambda: False)
        return f"at {trio.current_time():g}"

    server = offering(tool)
    async with at_the_page(server, era) as player:
        await trio.sleep(2.5)
        server.complete_elicitation("visit-1")
        if era is Legacy:
            await is_notified(player.talk)
        assert await player.text() == "at 2.5"


@pytest.mark.parametrize("answered", [True, False])
async def test_the_timeout_is_for_the_answer_and_the_visit_together(
    era: type[Legacy], answered: bool, autojump_clock: MockClock
) -> None:
    async def tool(ctx: Context) -> str:
        try:
            await ctx.elicit_url("Connect", URL, timeout=30, elicitation_id="visit-1")
        except RequestTimeout as error:
            return f"{trio.current_time():g}: {error}"
        return "finished"

    server = offering(tool)
    async with play(server, era) as player:
        await player.call("tool")
        await player.question()
        await trio.sleep(10 if answered else 31)
        await player.answer(ACCEPT)
        if era is Legacy and not answered:
            await player.talk.notification("notifications/cancelled")
        text = await player.text()
        assert unnamed(text, "30 seconds") == []
        assert text.startswith("30: ")
        assert not server.complete_elicitation("visit-1")


async def test_a_cancelled_call_forgets_its_page(era: type[Legacy]) -> None:
    server = offering(connect)
    async with at_the_page(server, era) as player:
        player.talk.cancel(player._id)  # noqa: SLF001
        await wait_all_tasks_blocked()
        assert not server.complete_elicitation("visit-1")
        assert len(player.talk.service.calls.url_elicitations) == 0


# capabilities


@pytest.mark.parametrize("capabilities", [FORMS_ONLY, {"elicitation": {}}, {}])
async def test_a_client_that_cannot_open_pages_is_not_asked(era: type[Legacy], capabilities: Json) -> None:
    async def tool(ctx: Context) -> str:
        with pytest.raises(CapabilityError) as raised:
            await ctx.elicit_url("Connect", URL)
        return str(raised.value)

    async with play(offering(tool), era, capabilities) as player:
        await player.call("tool")
        assert unnamed(await player.text(), "elicitation.url", "form", "modelcontextprotocol.io") == []


async def test_2025_06_18_has_no_pages_whatever_its_client_declares() -> None:
    async with session_with(offering(connect), "2025-06-18") as talk:
        assert unnamed(await talk.failure(talk.call("connect")), "elicitation.url") == []


# wrong calls


@pytest.mark.parametrize(
    ("url", "options", "error"),
    [
        ("connect", {}, ValueError),
        ("ftp://example.com/", {}, ValueError),
        ("javascript:alert(1)", {}, ValueError),
        ("https:///nowhere", {}, ValueError),
        ("https://user:secret@example.com/", {}, ValueError),
        (3, {}, TypeError),
        (URL, {"elicitation_id": ""}, ValueError),
        (URL, {"elicitation_id": "x" * 300}, ValueError),
        (URL, {"elicitation_id": 3}, TypeError),
        (URL, {"done": True}, TypeError),
        (URL, {"done": lambda: True, "wait": False}, TypeError),
        (URL, {"timeout": -1}, ValueError),
    ],
)
async def test_a_wrong_call_is_an_error_at_once(url: Any, options: Any, error: type[Exception]) -> None:
    async with make_context() as ctx:
        with pytest.raises(error) as raised:
            _ = ctx.elicit_url("Connect", url, **options)
    assert "secret" not in str(raised.value)


async def test_an_id_belongs_to_one_elicitation_at_a_time() -> None:
    async with session_with(offering(connect)) as talk:
        first = talk.call("connect")
        await talk.question()
        assert "internal error" in await talk.failure(talk.call("connect"))
        talk.cancel(first)


async def test_a_url_without_tls_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def tool(ctx: Context) -> None:
        for url in ("http://localhost:8000/", "http://127.0.0.1/", "http://plain.example.com/"):
            with pytest.raises(CapabilityError):
                await ctx.elicit_url("Connect", url)

    async with session_with(offering(tool), capabilities={}) as talk:
        await talk.result(talk.call("tool"))
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [unnamed(text, "plain.example.com", "https") for text in warned] == [[]]


# replays


@pytest.mark.parametrize("resume", ["replay", "parked"])
async def test_a_replay_asks_for_the_same_page(resume: ResumePolicy) -> None:
    names: list[str] = []
    server = Server("pages")

    @server.tool(resume=resume)
    async def visit(ctx: Context) -> str:
        await ctx.elicit_url("Connect", lambda name: f"{URL}/{name}", done=lambda: True)
        return (await ctx.elicit("And now?", str)).action

    def open_page(asked: ElicitRequestURLParams) -> object:
        names.append(asked.url)
        return accept()

    divergences: list[str] = []
    replaying = replace(server.options, always_replay=True, on_divergence=divergences.append)
    target = server.copy(options=replaying)
    async with connected(target, on_elicit_url=open_page, on_elicit=lambda _: accept(value="x")) as client:
        assert (await client.call_tool("visit")).text
    assert (divergences, len(set(names))) == ([], 1)


# UrlElicitationRequired


async def needs_page() -> str:
    raise UrlElicitationRequired("Connect your account", URL, elicitation_id="visit-1")


async def test_a_client_that_can_open_pages_gets_the_error_of_its_revision() -> None:
    async def tool() -> None:
        other = UrlElicitationRequired("And the calendar", f"{URL}/calendar")
        raise UrlElicitationRequired("Connect your account", URL, elicitation_id="visit-1", also=[other])

    server = offering(tool)
    async with session_with(server) as talk:
        error = await talk.error(talk.call("tool"))
        assert error["code"] == URL_REQUIRED
        first, second = error["data"]["elicitations"]
        assert first == {"mode": "url", "message": "Connect your account", "url": URL, "elicitationId": "visit-1"}
        assert (second["url"], second["elicitationId"] != "visit-1") == (f"{URL}/calendar", True)
        assert server.complete_elicitation("visit-1")
        await is_notified(talk)
        assert not server.complete_elicitation("visit-1")


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2026-07-28"])
async def test_another_client_reads_which_page_to_open(version: str) -> None:
    server = offering(needs_page)
    async with talk_to(server) as talk:
        if version == "2026-07-28":
            call = talk.leg("needs_page")
        else:
            await talk.initialize(version, PAGES if version == "2025-06-18" else FORMS_ONLY)
            call = talk.call("needs_page")
        assert unnamed(await talk.failure(call), URL, "Connect your account") == []
        assert not server.complete_elicitation("visit-1")


async def test_a_prompt_may_need_a_page_too() -> None:
    server = offering()
    server.prompt(needs_page)
    async with session_with(server) as talk:
        assert (await talk.error(talk.request("prompts/get", {"name": "needs_page"})))["code"] == URL_REQUIRED


async def test_only_the_client_that_was_asked_is_notified() -> None:
    server = offering(needs_page)
    async with session_with(server) as talk:
        other = Talk(talk.service)
        with other.outbox:
            await other.initialize(capabilities=PAGES)
            await talk.error(talk.call("needs_page"))
            server.complete_elicitation("visit-1")
            await is_notified(talk)
            await other.silence()


async def test_the_notice_of_a_session_that_has_ended_is_dropped() -> None:
    server = offering(needs_page)
    async with server.open_service() as service:
        talk = Talk(service)
        with talk.outbox:
            await talk.initialize(capabilities=PAGES)
            await talk.error(talk.call("needs_page"))
            talk.session.attach(None)
            server.complete_elicitation("visit-1")
            await talk.silence()
        assert len(service.calls.url_elicitations) == 0


async def test_a_call_that_does_not_wait_notifies_its_client_later() -> None:
    async def tool(ctx: Context) -> str:
        return (await ctx.elicit_url("Look at this", URL, elicitation_id="visit-1", wait=False)).action

    server = offering(tool)
    async with session_with(server) as talk:
        call = talk.call("tool")
        talk.answer(await talk.question(), ACCEPT)
        assert await talk.text(call) == "accept"
        assert server.complete_elicitation("visit-1")
        await is_notified(talk)


async def test_an_elicitation_is_completed_from_any_thread_once() -> None:
    server = offering(connect)
    async with at_the_page(server, Legacy) as player:
        assert await trio.to_thread.run_sync(server.complete_elicitation, "visit-1")
        await is_notified(player.talk)
        assert (await player.text()).startswith("accept")
