"""Handoff tools: which phases run, how often, and with what."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from naming import naming, unnamed
from pydantic import BaseModel
from scripted_model import answer
from talk import Json, Legacy, Modern, Round, Talk, accept, play, talk_to
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import (
    CallHandler,
    CallRequest,
    CallResult,
    Client,
    Context,
    Server,
    ServiceOptions,
    ToolError,
    accept as yes,
    tool,
)
from trio_mcp.errors import BranchElicitNotAllowed
from trio_mcp.session import KeyRing, Limits
from trio_mcp.testing import MockClient, replay_tool


class Hold(BaseModel):
    number: int
    city: str


class Trip(BaseModel):
    city: str


class Unsendable:
    """What no JSON represents."""


@dataclass
class Desk:
    """A tool with three phases, and a record of what they did. Each attribute that is a function replaces a phase."""

    log: list[str] = field(default_factory=list)
    reasons: list[object] = field(default_factory=list)
    prepare: Callable[[Context], Any] | None = None
    converse: Callable[[Hold, Context], Any] | None = None
    complete: Callable[[Hold, Context], Any] | None = None
    undo: Callable[[Hold, Context], Any] | None = None

    def server(self, *, options: ServiceOptions | None = None, **of_tool: Any) -> Server:
        server = Server("desk", options=options)
        decorate = server.handoff_tool(
            client=self.client, after=self.after, on_cancel=self.on_cancel, name="book", **of_tool
        )
        decorate(self.before)
        return server

    async def before(self, city: str, ctx: Context) -> Hold:
        self.log.append("before")
        return await self.prepare(ctx) if self.prepare else Hold(number=len(self.log), city=city)

    async def client(self, hold: Hold, ctx: Context) -> str:
        self.log.append("client")
        if self.converse:
            return await self.converse(hold, ctx)
        answer = await ctx.elicit(f"A seat to {hold.city}?", str)
        return answer.content if answer.action == "accept" else answer.action

    async def after(self, hold: Hold, answer: str, ctx: Context) -> str:
        self.log.append("after")
        if self.complete:
            await self.complete(hold, ctx)
        return f"{hold.number} {hold.city} {answer}"

    async def on_cancel(self, hold: Hold, ctx: Context) -> None:
        self.reasons.append(ctx.cancel_reason)
        if self.undo:
            await self.undo(hold, ctx)
        await trio.lowlevel.checkpoint()
        self.log.append(f"released {hold.number}")


OSLO = {"city": "Oslo"}


async def booked(server: Server, era: type[Legacy] = Modern, *answers: Json, name: str = "book") -> str:
    """Call the tool, and answer each of its questions; return the text of its result."""
    async with play(server, era) as player:
        await player.call(name, OSLO)
        for answer in answers:
            await player.question()
            await player.answer(answer)
        return await player.text()


async def failed(desk: Desk, era: type[Legacy] = Modern, **of_tool: Any) -> str:
    """Call the tool, and return the text of its error."""
    async with play(desk.server(**of_tool), era) as player:
        await player.call("book", OSLO)
        return await player.failure()


async def cancelled(desk: Desk, era: type[Legacy] = Modern, reason: str = "client") -> None:
    """Call the tool, and cancel the call where it waits."""
    async with play(desk.server(), era) as player:
        call = await player.call("book", OSLO)
        await wait_all_tasks_blocked()
        if reason == "client":
            player.talk.cancel(call)
        else:
            player.talk.session.disconnect(player.talk.listeners[call])
        await player.talk.silence()


async def asked_by(server: Server) -> Round:
    """Call the tool in a process, which ends when it has asked."""
    async with talk_to(server) as talk:
        return await talk.round(talk.leg("book", OSLO))


def answer_to(asked: Round, value: str, talk: Talk, **more: Any) -> Any:
    """Send the answer to a question, to any process; return the id of the request."""
    return asked.leg({asked.key: accept(value=value)}, talk=talk, **more)


# the phases


async def test_each_phase_runs_once_and_its_value_goes_to_the_next(era: type[Legacy]) -> None:
    desk = Desk()
    async with play(desk.server(), era) as player:
        await player.call("book", OSLO)
        assert (await player.question())["message"] == "A seat to Oslo?"
        await player.answer(accept(value="7A"))
        assert await player.text() == "1 Oslo 7A"
    assert desk.log == ["before", "client", "after"]


async def test_the_client_phase_may_sample_and_branch(era: type[Legacy]) -> None:
    async def converse(hold: Hold, ctx: Context) -> str:
        return await ctx.branch(lambda child: advice(hold, child))

    async def advice(hold: Hold, ctx: Context) -> str:
        return (await ctx.sample(f"A seat to {hold.city}?")).text

    said = answer("the aisle").wire()
    assert await booked(Desk(converse=converse).server(), era, said) == "1 Oslo the aisle"


async def test_the_phase_after_may_take_the_parameters(era: type[Legacy]) -> None:
    async def before(trip: Trip, ctx: Context) -> int:
        return len(trip.city)

    async def client(count: int, ctx: Context) -> bool:
        answer = await ctx.elicit(f"{count} letters?", bool)
        return answer.action == "accept" and answer.content

    async def after(count: int, sure: bool, ctx: Context, trip: Trip) -> str:
        return f"{trip.city} {count} {sure}"

    server = Server("desk")
    server.add_tool(tool("spell").parameters(Trip).handoff(before=before, client=client, after=after))
    assert await booked(server, era, accept(value=True), name="spell") == "Oslo 4 True"


async def test_the_listing_has_the_parameters_of_the_first_phase_and_the_result_of_the_last() -> None:
    async def before(city: str, nights: int = 1) -> int:
        """Book a room."""
        return nights

    async def client(nights: int, ctx: Context) -> None: ...

    async def after(nights: int, _answer: None, ctx: Context) -> Hold:
        return Hold(number=nights, city="")

    server = Server("desk")
    server.handoff_tool(client=client, after=after, title="Room")(before)
    (listed,) = [tool.model for tool in server.tools]
    assert (listed.name, listed.title, listed.description) == ("before", "Room", "Book a room.")
    assert set(listed.input_schema["properties"]) == {"city", "nights"}  # type: ignore[arg-type]
    assert set(listed.output_schema["properties"]) == {"number", "city"}  # type: ignore[index, arg-type]
    async with talk_to(server) as talk:
        result = await talk.result(talk.leg("before", {"city": "Oslo", "nights": 3}))
        assert result["structuredContent"] == {"number": 3, "city": ""}


# failures


async def failing(*_: object) -> Any:
    raise ToolError("no")


async def breaking(*_: object) -> Any:
    raise LookupError("hunter2")


async def answering(*_: object) -> str:
    return "7A"


@pytest.mark.parametrize(
    ("phase", "ran"),
    [("prepare", ["before"]), ("converse", ["before", "client"]), ("complete", ["before", "client", "after"])],
)
async def test_a_phase_that_raises_ends_the_call_with_an_error_result(
    phase: str, ran: list[str], era: type[Legacy]
) -> None:
    for fails, text in ((failing, "no"), (breaking, "internal error")):
        desk = Desk(**{"converse": answering, phase: fails})
        failure = await failed(desk, era)
        assert text in failure
        assert "hunter2" not in failure
        assert desk.log == ran


async def test_a_value_that_is_no_json_is_an_error_that_names_tool_phase_and_type(era: type[Legacy]) -> None:
    async def before(city: str) -> object:
        return Unsendable()

    server = Server("desk")
    server.handoff_tool(client=answering, after=answering, name="book", resume="parked")(before)
    async with play(server, era) as player:
        await player.call("book", OSLO)
        assert unnamed(await player.failure(), "book", "before", "Unsendable") == []


async def test_a_value_that_is_not_what_the_annotation_declares_is_an_error_of_the_first_phase() -> None:
    async def prepare(_ctx: Context) -> Any:
        return Unsendable()

    desk = Desk(prepare=prepare)
    assert unnamed(await failed(desk), "book", "before", "Unsendable") == []
    assert desk.log == ["before"]


async def test_the_later_phases_get_what_a_replay_would_restore(era: type[Legacy]) -> None:
    async def prepare(_ctx: Context) -> Any:
        return {"number": 3, "city": "Oslo"}

    assert await booked(Desk(prepare=prepare, converse=answering).server(), era) == "3 Oslo 7A"


# once


@pytest.fixture
def shared() -> ServiceOptions:
    """Options of servers that can carry on each other's calls."""
    return ServiceOptions(keys=KeyRing.random())


async def test_a_restart_repeats_only_the_client_phase(shared: ServiceOptions) -> None:
    async def converse(hold: Hold, ctx: Context) -> str:
        first = await ctx.elicit("Row?", str)
        second = await ctx.elicit("Seat?", str)
        return f"{first.content}{second.content}"  # type: ignore[union-attr]

    desk = Desk(converse=converse)
    server = desk.server(options=shared)
    asked = await asked_by(server)
    async with talk_to(server) as talk:
        asked = await talk.round(answer_to(asked, "7", talk))
        assert asked.message == "Seat?"
    async with talk_to(server) as talk:
        assert await talk.text(answer_to(asked, "A", talk)) == "1 Oslo 7A"
    assert desk.log == ["before", "client", "client", "client", "after"]


async def test_a_copy_of_the_last_leg_completes_nothing_twice() -> None:
    desk = Desk()
    async with talk_to(desk.server()) as talk:
        asked = await talk.round(talk.leg("book", OSLO))
        answers = {asked.key: accept(value="7A")}
        first = await talk.text(asked.leg(answers))
        assert await talk.text(asked.leg(answers)) == first
    assert desk.log == ["before", "client", "after"]


async def test_a_replay_of_every_leg_is_no_divergence_and_releases_nothing() -> None:
    desk = Desk()
    report = await replay_tool(desk.server(), "book", OSLO, on_elicit=lambda _: yes(value="7A"))
    report.check()
    assert report.result.text == "1 Oslo 7A"
    assert desk.log == ["before", "client", "client", "after"]


async def test_without_replay_a_restart_loses_the_call(shared: ServiceOptions) -> None:
    desk = Desk()
    server = desk.server(options=shared, resume="parked")
    asked = await asked_by(server)
    async with talk_to(server) as talk:
        await talk.failure(answer_to(asked, "7A", talk))
    assert desk.log == ["before", "client", "released 1"]


async def test_branches_and_steps_of_the_first_phase_do_not_move_the_keys_of_the_second(shared: ServiceOptions) -> None:
    async def prepare(ctx: Context) -> Hold:
        await ctx.step("find", dict)
        numbers = await ctx.branch_all(number, number)
        return Hold(number=sum(numbers), city="Oslo")

    async def number(child: Context) -> int:
        return await child.step("number", lambda: 2)

    async def converse(hold: Hold, ctx: Context) -> str:
        await ctx.step("find", dict)
        return await ctx.branch(ask)

    async def ask(child: Context) -> str:
        return (await child.elicit("Seat?", str)).content  # type: ignore[union-attr]

    server = Desk(prepare=prepare, converse=converse).server(options=shared)
    asked = await asked_by(server)
    async with talk_to(server) as talk:
        assert await talk.text(answer_to(asked, "7A", talk)) == "4 Oslo 7A"


async def test_the_last_phase_reports_in_a_replay(shared: ServiceOptions) -> None:
    async def prepare(ctx: Context) -> Hold:
        await ctx.progress(1)
        return Hold(number=1, city="Oslo")

    async def complete(_hold: Hold, ctx: Context) -> None:
        await ctx.progress(2)

    server = Desk(prepare=prepare, complete=complete).server(options=shared)
    token: Json = {"meta": {"progressToken": "p"}}
    async with talk_to(server) as talk:
        call = talk.leg("book", OSLO, **token)
        assert (await talk.notification("notifications/progress"))["progress"] == 1
        asked = await talk.round(call)
    async with talk_to(server) as talk:
        call = answer_to(asked, "7A", talk, **token)
        assert (await talk.notification("notifications/progress"))["progress"] == 2
        await talk.text(call)


async def test_a_mock_client_calls_the_tool_by_its_first_phase_or_as_a_value(mode: Any) -> None:
    async def before(trip: Trip, ctx: Context) -> int:
        return len(trip.city)

    async def after(count: int, answer: Any, ctx: Context) -> str:
        return f"{count} {answer.action}"

    async def confirm(_value: object, ctx: Context) -> Any:
        return await ctx.elicit("Sure?", bool)

    desk = Desk()
    server = desk.server()
    assert (await MockClient(elicits=["7A"], era=mode).call(desk.before, city="Oslo")).text == "1 Oslo 7A"
    built = tool("spell").parameters(Trip).handoff(before=before, client=confirm, after=after)
    for target in (built, server.add_tool(built), before):
        assert (await MockClient(elicits=[True], era=mode).call(target, city="Oslo")).text == "4 accept"


# only `client` asks


async def ask_form(ctx: Context) -> object:
    return await ctx.elicit("Sure?", bool)


async def ask_model(ctx: Context) -> object:
    return await ctx.sample("Sure?")


async def ask_roots(ctx: Context) -> object:
    return await ctx.roots()


async def ask_in_a_branch(ctx: Context) -> object:
    return await ctx.branch(ask_form)


@pytest.mark.parametrize("ask", [ask_form, ask_model, ask_roots, ask_in_a_branch])
async def test_the_first_and_the_last_phase_cannot_ask(ask: Callable[[Context], Any], era: type[Legacy]) -> None:
    caught: list[str] = []

    async def refused(ctx: Context) -> None:
        with pytest.raises(TypeError, match=naming("client")):
            await ask(ctx)
        caught.append("refused")

    async def prepare(ctx: Context) -> Hold:
        await refused(ctx)
        return Hold(number=1, city="Oslo")

    async def complete(_hold: Hold, ctx: Context) -> None:
        await refused(ctx)

    assert await booked(Desk(prepare=prepare, complete=complete, converse=answering).server(), era) == "1 Oslo 7A"
    assert caught == ["refused", "refused"]


async def test_a_resource_that_the_first_phase_reads_cannot_ask_the_user(era: type[Legacy]) -> None:
    async def prepare(ctx: Context) -> Hold:
        with pytest.raises(BranchElicitNotAllowed):
            await ctx.read_resource("ask://user")
        return Hold(number=1, city="Oslo")

    server = Desk(prepare=prepare, converse=answering).server()
    server.add_resource("ask://user", ask_form)
    assert await booked(server, era) == "1 Oslo 7A"


# cancels


async def waiting(*_: object) -> Any:
    await trio.sleep_forever()


@pytest.mark.parametrize("reason", ["client", "disconnect"])
async def test_a_call_that_is_cancelled_releases_and_skips_the_last_phase(era: type[Legacy], reason: str) -> None:
    desk = Desk(converse=waiting)
    await cancelled(desk, era, reason)
    assert (desk.log, desk.reasons) == (["before", "client", "released 1"], [reason])


async def test_a_timeout_releases_and_its_caller_reads_of_the_timeout(
    era: type[Legacy], autojump_clock: MockClock
) -> None:
    desk = Desk(converse=waiting)
    assert unnamed(await failed(desk, era, timeout=3), "book", "3 seconds") == []
    assert (desk.log, desk.reasons) == (["before", "client", "released 1"], ["deadline"])


async def swallowing(*_: object) -> str:
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        return "7A"


async def failing_in_clean_up(*_: object) -> Any:
    try:
        await trio.sleep_forever()
    finally:
        raise LookupError


@pytest.mark.parametrize("converse", [swallowing, failing_in_clean_up])
async def test_a_client_phase_that_swallows_the_cancel_or_fails_in_it_does_not_complete_the_call(converse: Any) -> None:

    desk = Desk(converse=converse)
    await cancelled(desk)
    assert desk.log == ["before", "client", "released 1"]


@pytest.mark.parametrize(("phase", "ran"), [("prepare", ["before"]), ("complete", ["before", "client", "after"])])
async def test_a_cancel_of_the_first_or_the_last_phase_releases_nothing(phase: str, ran: list[str]) -> None:
    desk = Desk(**{"converse": answering, phase: waiting})
    await cancelled(desk)
    assert desk.log == ran


async def test_the_time_of_the_release_is_bounded(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(converse=waiting, undo=waiting)
    async with talk_to(desk.server(options=ServiceOptions(cancel_grace=4))) as talk:
        talk.cancel(talk.leg("book", OSLO))
        await trio.sleep(3.9)
        assert talk.service.statistics().actors.running == 1
        await trio.sleep(0.2)
        assert talk.service.statistics().actors.running == 0
        assert talk.service.statistics().actors.ever_stuck == 0
    assert any(unnamed(record.getMessage(), "book", "4 seconds") == [] for record in caplog.records)


async def test_a_release_that_fails_is_logged_and_the_call_stays_cancelled(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(converse=waiting, undo=breaking)
    assert unnamed(await failed(desk, timeout=3), "book", "3 seconds") == []
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert isinstance(record.exc_info[1], LookupError)
    assert unnamed(record.getMessage(), "book", "on_cancel") == []


async def test_the_release_cannot_ask() -> None:
    refused: list[str] = []

    async def undo(_hold: Hold, ctx: Context) -> None:
        with pytest.raises(TypeError, match=naming("client")):
            await ctx.elicit("Sure?", bool)
        refused.append("refused")

    await cancelled(Desk(converse=waiting, undo=undo), Legacy)
    assert refused == ["refused"]


# a server that shuts down


async def test_a_shutdown_releases_what_no_other_process_can_continue(era: type[Legacy]) -> None:
    desk = Desk()
    async with play(desk.server(), era) as player:
        await player.call("book", OSLO)
        await player.question()
    assert (desk.log, desk.reasons) == (["before", "client", "released 1"], ["shutdown"])


async def test_a_shutdown_with_shared_keys_leaves_a_parked_call_to_the_next_process(shared: ServiceOptions) -> None:
    async def converse(_hold: Hold, ctx: Context) -> str:
        await ctx.elicit("Seat?", str)
        return await waiting()

    desk = Desk(converse=converse)
    server = desk.server(options=shared)
    asked = await asked_by(server)
    assert desk.log == ["before", "client"]
    async with talk_to(server) as talk:
        call = answer_to(asked, "7A", talk)
        await wait_all_tasks_blocked()
        talk.cancel(call)
        await talk.silence()
        assert (desk.log, desk.reasons) == (["before", "client", "client", "released 1"], ["client"])


async def test_a_shutdown_with_shared_keys_releases_what_has_not_asked_yet(shared: ServiceOptions) -> None:
    desk = Desk(converse=waiting)
    async with talk_to(desk.server(options=shared)) as talk:
        talk.leg("book", OSLO)
        await wait_all_tasks_blocked()
    assert (desk.log, desk.reasons) == (["before", "client", "released 1"], ["shutdown"])


async def test_a_call_that_another_process_has_finished_is_not_released_where_it_was_parked(
    shared: ServiceOptions, autojump_clock: MockClock
) -> None:
    desk = Desk()
    server = desk.server(options=shared)
    async with talk_to(server) as first, talk_to(server) as second:
        asked = await first.round(first.leg("book", OSLO))
        await second.text(answer_to(asked, "7A", second))
        await trio.sleep(Limits().park_ttl + 1)
        assert first.service.statistics().is_idle
    assert desk.log == ["before", "client", "client", "after"]


@pytest.mark.parametrize("resume", ["replay", "parked"])
async def test_a_call_that_is_parked_for_too_long_and_never_replayed_is_released(
    shared: ServiceOptions, resume: Any, autojump_clock: MockClock
) -> None:
    desk = Desk()
    async with talk_to(desk.server(options=shared if resume == "parked" else None, resume=resume)) as talk:
        await talk.round(talk.leg("book", OSLO))
        await trio.sleep(Limits().park_ttl + 1)
        assert (desk.log, desk.reasons) == (["before", "client", "released 1"], ["expired"])


async def test_a_process_that_another_one_has_overtaken_releases_nothing(shared: ServiceOptions) -> None:
    async def converse(hold: Hold, ctx: Context) -> str:
        for question in ("Row?", "Seat?"):
            await ctx.elicit(question, str)
        return "7A"

    desk = Desk(converse=converse)
    server = desk.server(options=shared)
    async with talk_to(server) as first, talk_to(server) as second:
        asked = await first.round(first.leg("book", OSLO))
        asked = await second.round(answer_to(asked, "7", second))
        assert await first.text(answer_to(asked, "A", first)) == "1 Oslo 7A"
        await wait_all_tasks_blocked()
        assert not [line for line in desk.log if line.startswith("released")]


# registration


async def one(value: object) -> None: ...


def plain(value: object, ctx: Context) -> None: ...


async def swapped(ctx: Context, value: object) -> None: ...


async def misplaced(value: object, answer: Context, ctx: object) -> None: ...


async def unsendable(city: str) -> Unsendable:
    return Unsendable()


@pytest.mark.parametrize(
    ("phases", "named"),
    [
        ({"client": plain}, ["client", "async"]),
        ({"client": one}, ["client", "one"]),
        ({"client": swapped}, ["client", "'ctx'", "Context"]),
        ({"after": misplaced}, ["after", "'answer'", "Context"]),
        ({"on_cancel": swapped}, ["on_cancel", "'ctx'", "Context"]),
        ({"after": one}, ["after", "one"]),
        ({"on_cancel": one}, ["on_cancel", "one"]),
        ({"before": plain}, ["before", "async"]),
        ({"before": unsendable}, ["before", "Unsendable", "pydantic"]),
    ],
    ids=lambda case: "-".join(case) if isinstance(case, dict) else "",
)
def test_a_phase_that_cannot_be_one_is_refused_where_it_is_registered(phases: dict[str, Any], named: list[str]) -> None:
    before = phases.pop("before", Desk().before)
    given = {"client": answering, "after": answering, **phases}
    server = Server("desk")
    with pytest.raises(TypeError, match=naming("book", *named)):
        server.handoff_tool(name="book", **given)(before)
    assert server.tools == ()


async def test_each_run_by_middleware_has_its_own_value_and_release(mode: Any, autojump_clock: MockClock) -> None:
    server, ran = Server("handoff"), list[str]()

    async def client(number: int, ctx: Context) -> str:
        ran.append(f"client {number}")
        if number == 1:
            await trio.sleep_forever()
        return (await ctx.elicit("Seat?", str)).action

    async def after(number: int, answer: str, ctx: Context) -> str:
        ran.append(f"book {number}")
        return answer

    async def release(number: int, ctx: Context) -> None:
        ran.append(f"release {number}")

    @server.handoff_tool(client=client, after=after, on_cancel=release)
    async def hold() -> int:
        number = 1 + sum(each.startswith("hold") for each in ran)
        ran.append(f"hold {number}")
        return number

    @server.middleware
    async def retry(call: CallRequest, handler: CallHandler) -> CallResult:
        with trio.move_on_after(1):
            return await handler()
        return await handler()

    async with Client.connect(server, mode=mode, on_elicit=lambda _asked: yes(value="12a")) as connected:
        assert (await connected.call_tool("hold")).text == "accept"
    assert ran == ["hold 1", "client 1", "release 1", "hold 2", "client 2", "book 2"]
