"""The tree of what a service does: what it shows in both eras, what it hides, and what it costs."""

from __future__ import annotations

import gc
import json

import pytest
import trio
from naming import naming
from one_tool import call_of
from peer import EVERYTHING
from talk import DISMISS, Legacy, Modern, Talk, accept, offering, play, talk_to
from task_talk import TASK_ERAS, LegacyTask
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import CancelReason
from trio_mcp.server import Context, Server
from trio_mcp.session import AwaitedAnswers, BranchTree, Call, CallState, CallTree, ServiceTree

USER = AwaitedAnswers("elicit", "user", 1)
MODEL = AwaitedAnswers("sample", "model", 1)
both_task_eras = pytest.mark.parametrize("era", TASK_ERAS, ids=lambda era: era.era)


async def flights(ctx: Context) -> str:
    return (await ctx.sample("Which flights are there to secret-place?")).text


async def hotels(ctx: Context) -> str:
    return (await ctx.elicit("Which hotel in secret-place?", bool)).action


async def book(to: str, ctx: Context) -> str:
    return " ".join(await ctx.branch_all(flights, hotels))


async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Sure about secret-place?", bool)).action


async def work(ctx: Context) -> str:
    await trio.sleep_forever()
    return ""


async def seen(talk: Talk, **options: int) -> ServiceTree:
    """The tree when nothing more happens by itself."""
    await wait_all_tasks_blocked()
    return talk.service.tree(**options)


async def the_call(talk: Talk) -> CallTree:
    (call,) = (await seen(talk)).calls
    return call


def waiting(path: str, name: str, *awaits: AwaitedAnswers) -> BranchTree:
    return BranchTree(path, name, "waiting", awaits, ())


# what a call waits for


async def test_each_branch_has_its_name_and_what_it_waits_for(era: type[Legacy]) -> None:
    call = await call_of(book, era, {"to": "secret-place"})
    assert (call.method, call.name, call.number) == ("tools/call", "book", 1)
    assert call.branches == (waiting("1", "flights", MODEL), waiting("2", "hotels", USER))
    assert call.awaits == ()


async def test_a_legacy_call_waits_in_its_request_and_a_modern_one_is_parked_without() -> None:
    async with talk_to(offering(ask)) as talk:
        await Legacy(talk, EVERYTHING).call("ask")
        await Modern(Talk(talk.service), EVERYTHING).call("ask")
        legacy, modern = (await seen(talk)).calls
    assert (legacy.state, legacy.request, legacy.awaits) == (CallState.WAITING, 2, (USER,))
    assert (modern.state, modern.request, modern.awaits) == (CallState.PARKED, None, (USER,))


async def test_a_call_that_does_something_is_running(era: type[Legacy]) -> None:
    async def half(ctx: Context) -> None:
        await ctx.branch_all(work, hotels)

    call = await call_of(half, era, settle=1000)
    assert [branch.state for branch in call.branches] == ["running", "waiting"]
    assert call.state is CallState.RUNNING


async def test_branches_of_branches_are_below_them(era: type[Legacy]) -> None:
    async def trip(ctx: Context) -> str:
        return await ctx.branch(hotels)

    async def plan(ctx: Context) -> str:
        async with ctx.branches() as group:
            group.start(trip)
        return ""

    call = await call_of(plan, era)
    below = waiting("1.1", "hotels", USER)
    assert call.branches == (BranchTree("1", "trip", "joining", (), (below,)),)


async def test_a_question_of_a_task_that_a_branch_has_started_is_of_the_branch(era: type[Legacy]) -> None:
    async def side(ctx: Context) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hotels, ctx)
            nursery.start_soon(flights, ctx)

    async def plan(ctx: Context) -> None:
        await ctx.branch(side)

    (branch,) = (await call_of(plan, era)).branches
    assert (branch.name, set(branch.awaits)) == ("side", {USER, MODEL})


async def test_questions_that_are_asked_one_after_the_other_are_counted() -> None:
    async def twice(ctx: Context) -> None:
        await ctx.branch_all(hotels, hotels, hotels)

    call = await call_of(twice, Legacy)
    assert (call.state, call.queued) == (CallState.WAITING, 2)
    assert sum(len(branch.awaits) for branch in call.branches) == 1


async def test_a_branch_is_gone_when_it_has_ended(era: type[Legacy]) -> None:
    async def then(ctx: Context) -> str:
        await ctx.branch(hotels)
        return await ask(ctx)

    async with play(offering(then), era) as player:
        await player.call("then")
        await player.question()
        await player.answer(DISMISS)
        call = await the_call(player.talk)
        assert (call.branches, call.awaits) == ((), (USER,))
        await player.question()
        await player.answer(DISMISS)
        assert await player.text() == "cancel"
        tree = await seen(player.talk)
    assert tree.clients == ()
    assert tree.running == tree.parked == tree.stuck == tree.more_calls == 0


# how a call ends


async def test_a_cancelled_call_that_cleans_up_has_its_reason(era: type[Legacy]) -> None:
    async def slow(ctx: Context) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await cleaned.wait()

    cleaned = trio.Event()
    async with play(offering(slow), era) as player:
        request = await player.call("slow")
        await wait_all_tasks_blocked()
        player.talk.cancel(request)
        call = await the_call(player.talk)
        assert (call.state, call.reason) == (CallState.CANCELLED, CancelReason.CLIENT)
        cleaned.set()
        assert (await seen(player.talk)).calls == ()


async def test_a_stuck_call_is_shown_without_its_caller(autojump_clock: MockClock) -> None:
    async def deaf(ctx: Context) -> None:
        with trio.CancelScope(shield=True):
            await released.wait()

    released = trio.Event()
    async with play(offering(deaf), Modern) as player:
        request = await player.call("deaf")
        await wait_all_tasks_blocked()
        player.talk.cancel(request)
        await trio.sleep(10)
        tree = player.talk.service.tree()
        (call,) = tree.calls
        assert (call.name, call.state, call.reason, tree.stuck) == ("deaf", CallState.STUCK, CancelReason.CLIENT, 1)
        assert "stuck (client)" in str(tree)
        released.set()
        await wait_all_tasks_blocked()


async def test_the_age_is_the_time_since_the_start(era: type[Legacy], mock_clock: MockClock) -> None:
    async with play(offering(ask), era) as player:
        await player.call("ask")
        await wait_all_tasks_blocked()
        mock_clock.jump(90)
        assert player.talk.service.tree().calls[0].age == pytest.approx(90, abs=5)


# whose calls they are


async def test_a_session_is_apart_from_others_and_what_modern_clients_send_from_sessions() -> None:
    async with talk_to(offering(ask), principal="alice") as talk:
        for connection in (talk, Talk(talk.service, principal="alice")):
            await Legacy(connection, EVERYTHING).call("ask")
        for principal in ("alice", "alice", "bob"):
            await Modern(Talk(talk.service, principal=principal), EVERYTHING).call("ask")
        clients = (await seen(talk)).clients
    assert [(each.is_session, each.principal, len(each.calls)) for each in clients] == [
        (True, "alice", 1),
        (True, "alice", 1),
        (False, "alice", 2),
        (False, "bob", 1),
    ]
    assert [each.revision for each in clients] == ["2025-11-25", "2025-11-25", "2026-07-28", "2026-07-28"]


@both_task_eras
async def test_a_task_is_marked_and_has_no_request(era: type[LegacyTask]) -> None:
    server = Server("tester", version="1")
    server.tool(ask, task=True)
    async with talk_to(server) as talk:
        task = era(talk)
        await task.open()
        await task.start("ask")
        call = await the_call(talk)
        assert (call.is_task, call.request, call.awaits) == (True, None, (USER,))
        await task.answer(True)
        assert (await seen(talk)).calls == ()


async def test_a_stream_of_changes_is_a_call() -> None:
    server = offering(ask)
    async with talk_to(server) as talk:
        talk.ask("subscriptions/listen", notifications={"toolsListChanged": True})
        tree = await seen(talk)
        assert (tree.subscribers, tree.calls[0].method) == (1, "subscriptions/listen")
        assert "subscriptions/listen #1" in str(tree)


# what it never shows


async def test_no_argument_and_no_question_is_in_it(era: type[Legacy]) -> None:
    server = offering(book)

    @server.resource("notes://{name}")
    async def note(name: str, ctx: Context) -> str:
        return await ask(ctx)

    async with play(server, era) as player:
        await player.call("book", {"to": "secret-place"})
        talk = player.talk
        if era is Legacy:
            talk.request("resources/read", {"uri": "notes://secret-place"})
        else:
            talk.ask("resources/read", uri="notes://secret-place")
        tree = await seen(talk)
    assert [call.name for call in tree.calls] == ["book", "notes:..."]
    assert "secret-place" not in f"{tree} {json.dumps(tree.to_json())}"


async def test_what_a_client_calls_itself_cannot_break_a_line() -> None:
    async with talk_to(offering(ask), principal="a\nb\x1b[31m" + "c" * 500) as talk:
        await Modern(talk, EVERYTHING).call("ask")
        text = str(await seen(talk))
    assert "\x1b" not in text
    assert len(text.splitlines()) == 3
    assert max(map(len, text.splitlines())) < 200


# how much


async def test_more_calls_than_the_limit_are_counted() -> None:
    async with talk_to(offering(ask)) as talk:
        for _ in range(120):
            await Modern(talk, EVERYTHING).call("ask")
        tree = await seen(talk)
        assert (len(tree.calls), tree.more_calls, tree.parked) == (100, 20, 120)
        assert str(tree).splitlines()[-1] == "└─ and 20 more calls"
        assert (await seen(talk, limit=120)).more_calls == 0
        assert len((await seen(talk, limit=1)).calls) == 1


async def test_the_branches_of_all_calls_are_bounded_and_calls_with_few_show_all() -> None:
    async def some(number: int, ctx: Context) -> None:
        await ctx.branch_all(*[flights] * number)

    async with talk_to(offering(some)) as talk:
        for number in (100, 2, 100, 3):
            await Modern(talk, EVERYTHING).call("some", {"number": number})
        tree = await seen(talk, max_branches=45)
        assert [(len(call.branches), call.more_branches) for call in tree.calls] == [(20, 80), (2, 0), (20, 80), (3, 0)]
        assert str(tree).count("and 80 more branches") == 2
        none = await seen(talk, max_branches=0)
        assert [call.more_branches for call in none.calls] == [100, 2, 100, 3]
        assert {call.state for call in none.calls} == {CallState.PARKED}


async def test_more_branches_than_the_limit_are_counted_and_one_that_runs_if_it_is_shown_or_not(
    era: type[Legacy],
) -> None:
    async def many(ctx: Context) -> None:
        await ctx.branch_all(*[flights] * 29, work)

    async with play(offering(many, settle=1000), era) as player:
        await player.call("many")
        for limit, more in ((10, 20), (1, 29), (100, 0)):
            (call,) = (await seen(player.talk, limit=limit)).calls
            assert call.state is CallState.RUNNING
            assert (len(call.branches), call.more_branches) == (30 - more, more)
            assert (str(call).splitlines()[-1] == f"└─ and {more} more branches") is (more > 0)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "1"])
async def test_the_limit_is_a_positive_int(limit: int) -> None:
    async with talk_to(offering(ask)) as talk:
        with pytest.raises((TypeError, ValueError), match=naming("limit")):
            talk.service.tree(limit=limit)
        with pytest.raises((TypeError, ValueError), match=naming("max_branches")):
            talk.service.tree(max_branches=limit or -1)


async def test_a_tree_keeps_no_call_alive(era: type[Legacy]) -> None:
    # Those that other tests have left to the garbage collector; kept, so that no id is used again.
    others = living_calls()
    async with play(offering(ask), era) as player:
        await player.call("ask")
        tree = await seen(player.talk)
        await player.question()
        await player.answer(accept(value=True))
        assert await player.text() == "accept"
        assert [call for call in living_calls() if call not in others] == []
        assert tree.calls[0].awaits == (USER,)


def living_calls() -> list[Call]:
    return [each for each in gc.get_objects() if isinstance(each, Call)]


# as text and JSON


async def test_the_text_is_an_indented_tree_and_the_json_has_the_names_of_the_attributes() -> None:
    async with talk_to(offering(book)) as talk:
        await Legacy(talk, EVERYTHING).call("book", {"to": "Lisbon"})
        tree = await seen(talk)
    lines = str(tree).splitlines()
    assert lines[0] == "tester 1: 1 call, 1 subscriber"
    assert lines[1] == "└─ session of tester 1, 2025-11-25"
    assert lines[2].startswith("   └─ book #1, request 2, 0.")
    assert lines[3:] == [
        "      ├─ branch 1 flights: waits for the model (sample)",
        "      └─ branch 2 hotels: waits for the user (elicit)",
    ]
    written = json.loads(json.dumps(tree.to_json()))
    assert written == tree.to_json()
    (call,) = written["clients"][0]["calls"]
    (asked,) = call["branches"][0]["awaits"]
    assert (call["state"], asked) == ("waiting", {"kind": "sample", "source": "model", "count": 1})
