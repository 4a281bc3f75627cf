"""The mock client: what it calls, what it answers, what it remembers, and scripts that do not fit. Each rule in both eras."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
import trio
from naming import naming
from pydantic import BaseModel
from trio.testing import MockClock
from wire_terms import MISSING_CAPABILITY

from trio_mcp import (
    Caller,
    Context,
    Elicit,
    ElicitRouter,
    HttpOptions,
    Server,
    ServiceOptions,
    accept,
    decline,
    dismiss,
)
from trio_mcp.auth import CredentialsRejected, ProtectedResource, jwt
from trio_mcp.errors import Disconnected, PeerError, RemoteProtocolError, RequestTimeout
from trio_mcp.testing import (
    Delay,
    Disconnect,
    MockClient,
    Never,
    SecondWorker,
    TestIssuer,
    tool_use,
    unchecked_tool_use,
)
from trio_mcp.types import (
    ClientCapabilities,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    TextContent,
    ToolUseContent,
)

BOUND = 20.0


class Seat(BaseModel):
    flight: str
    seat: Literal["window", "aisle"]


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Trip:
    city: str


SEAT = Elicit("seat", Seat)


@pytest.fixture(params=["modern", "legacy", "2025-06-18"])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


async def book(trip: Trip, ctx: Context) -> str:
    """Ask the user, then the model."""
    choice = await ctx.elicit("Which seat?", Seat)
    if choice.action != "accept":
        return f"{choice.action}: nothing was booked"
    summary = await ctx.sample(f"A line about {trip.city}")
    return f"{choice.content.flight} {choice.content.seat}: {summary.text}"


async def ask_thrice(ctx: Context) -> str:
    """Ask three questions, one after the other."""
    return " ".join([(await ctx.elicit(f"Question {number}?", bool)).action for number in (1, 2, 3)])


async def ask_size(ctx: Context) -> str:
    """Ask for a choice."""
    answer = await ctx.elicit("Size?", Size)
    return str(answer.content) if answer.action == "accept" else answer.action


# what is called


async def test_a_function_is_a_tool_without_a_server(era: str) -> None:
    client = MockClient(elicits=[{"flight": "TP1", "seat": "aisle"}], samples=["A short hop."], era=era)
    assert (await client.call(book, trip=Trip("Lisbon"))).text == "TP1 aisle: A short hop."


async def test_a_registered_function_is_called_with_its_options(era: str) -> None:
    server = Server("travel")

    @server.tool(name="reserve", elicits=[SEAT])
    async def reserve_seat(ctx: Context) -> str:
        return (await ctx.elicit("Which?", SEAT)).action

    client = MockClient(elicits=[decline()], era=era)
    assert (await client.call(reserve_seat)).text == "decline"
    assert client.questions[0].key == "seat"


def test_a_server_as_argument_is_refused_with_how_to_call_its_tools() -> None:
    with pytest.raises(TypeError, match=naming("MockClient(elicits=", "client.call(tool")):
        MockClient(Server("travel"))  # type: ignore[arg-type]


def test_a_test_on_asyncio_calls_a_tool_too() -> None:
    result = asyncio.run(MockClient(elicits=["s"]).call(ask_size))
    assert result.text == "Size.SMALL"


def test_several_calls_over_one_connection_are_refused_on_asyncio_with_what_to_write() -> None:
    async def test() -> None:
        async with MockClient():
            raise AssertionError("it was opened")

    with pytest.raises(RuntimeError, match=naming("trio.run", "async with")):
        asyncio.run(test())


async def test_a_tool_is_called_by_itself_or_by_its_name_also_if_no_server_has_it(era: str) -> None:
    server = Server("travel")
    tool = server.add_tool(ask_size, name="size")
    for target in (tool, (server, "size")):
        assert (await MockClient(elicits=["s"], era=era).call(target)).text == "Size.SMALL"
    server.remove_tool("size")
    assert (await MockClient(elicits=["s"], era=era).call(tool)).text == "Size.SMALL"


async def test_a_function_of_several_servers_is_called_at_the_last_one(era: str) -> None:
    async def where(ctx: Context) -> str:
        return "everywhere"

    first, last = Server("first"), Server("last")
    first.add_tool(where, requires={"sampling"})
    last.add_tool(where)
    client = MockClient(capabilities=ClientCapabilities(), era=era)
    assert (await client.call(where)).text == "everywhere"


async def test_a_function_whose_server_is_gone_is_called_alone(era: str) -> None:
    async def where(ctx: Context) -> str:
        return "alone"

    def register() -> None:
        Server("first").add_tool(where, requires={"sampling"})

    register()
    gc.collect()
    client = MockClient(capabilities=ClientCapabilities(), era=era)
    assert (await client.call(where)).text == "alone"


async def test_a_plain_function_is_called(era: str) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    assert "3" in (await MockClient(era=era).call(add, a=1, b=2)).text


@pytest.mark.parametrize("target", ["add", 3, Seat, (Server("x"), 3), None])
async def test_anything_else_is_a_type_error(target: object) -> None:
    with pytest.raises(TypeError, match=r"call a function|class"):
        await MockClient().call(target)


async def test_an_unknown_tool_is_an_error_that_names_those_there_are() -> None:
    server = Server("travel")
    server.add_tool(ask_size)
    with pytest.raises(LookupError, match="ask_size"):
        await MockClient().call((server, "other"))


async def test_an_argument_without_json_is_a_type_error_that_names_it() -> None:
    with pytest.raises(TypeError, match="trip"):
        await MockClient().call(book, trip=object())


# answers


@pytest.mark.parametrize("answer", [{"value": "l"}, "l", Size.LARGE, lambda _asked: "l", accept(value="l")])
async def test_a_value_accepts_the_form(era: str, answer: object) -> None:
    assert (await MockClient(elicits=[answer], era=era).call(ask_size)).text == "Size.LARGE"


@pytest.mark.parametrize(("answer", "action"), [(decline(), "decline"), (dismiss(), "cancel")])
async def test_a_result_is_sent_as_it_is(era: str, answer: ElicitResult, action: str) -> None:
    assert (await MockClient(elicits=[answer], era=era).call(ask_size)).text == action


async def test_a_result_that_does_not_fit_is_sent_too_and_asked_again(era: str) -> None:
    client = MockClient(elicits=[accept(value="huge"), "s"], era=era)
    assert (await client.call(ask_size)).text == "Size.SMALL"
    assert "could not be used" in client.questions[1].message


async def test_a_function_gets_the_params_and_may_be_async(era: str) -> None:
    async def choose(asked: ElicitRequestFormParams) -> object:
        await trio.lowlevel.checkpoint()
        return {"flight": asked.message, "seat": "aisle"}

    def complete(asked: CreateMessageRequestParams) -> str:
        return f"at most {asked.max_tokens}"

    client = MockClient(elicits=[choose], samples=[complete], era=era)
    assert (await client.call(book, trip=Trip("Faro"))).text == "Which seat? aisle: at most 1024"


async def test_one_function_answers_every_question(era: str) -> None:
    client = MockClient(elicits=lambda asked: asked.message != "Question 2?", era=era)
    assert (await client.call(ask_thrice)).text == "accept accept accept"
    assert len(client.questions) == 3


async def test_a_router_answers_every_question(era: str) -> None:
    router = ElicitRouter()

    @router.on("pick", "seat")
    def pick_seat(_asked: ElicitRequestFormParams) -> ElicitResult:
        return accept(flight="TP1", seat="aisle")

    server = Server("travel")

    @server.tool(elicits=[SEAT])
    async def pick(ctx: Context) -> str:
        return (await ctx.elicit("Which?", SEAT)).action

    assert (await MockClient(elicits=router, era=era).call(pick)).text == "accept"


async def test_a_sample_is_answered_with_a_whole_result(era: str) -> None:
    async def think(ctx: Context) -> str:
        answer = await ctx.sample("?")
        return f"{answer.model} {answer.stop_reason}"

    content = TextContent(text="so")
    result = CreateMessageResult(role="assistant", content=content, model="m1", stop_reason="maxTokens")
    assert (await MockClient(samples=[result], era=era).call(think)).text == "m1 maxTokens"


async def test_the_roots_are_paths(era: str, tmp_path: Path) -> None:
    client = MockClient(roots=[tmp_path], era=era)
    assert (await client.call(list_roots)).text == tmp_path.as_uri()
    assert client.questions[0].kind == "roots"


async def test_the_server_sees_the_scopes_and_claims_of_the_caller(era: str) -> None:
    server = Server("library")

    @server.tool(scopes=["write"])
    async def whoami(ctx: Context) -> str:
        assert ctx.caller is not None
        return f"{ctx.caller.principal} {ctx.caller.claims['team']}"

    writer = Caller("ann", ["write"], {"team": "blue"})
    assert (await MockClient(caller=writer, era=era).call((server, "whoami"))).text == "ann blue"
    refused = await MockClient(caller=Caller("ben", ["read"]), era=era).call((server, "whoami"))
    assert refused.is_error
    assert "write" in refused.text


async def test_required_and_implied_scopes_count_without_http_too(era: str) -> None:
    issuer = TestIssuer()
    hook = ProtectedResource(
        "http://127.0.0.1:8000/mcp",
        jwt(issuer.url, keys=issuer.jwks),
        required=["read"],
        implied={"admin": ["read", "write"]},
    )
    server = Server("library", http=HttpOptions(authenticate=hook))

    @server.tool(scopes=["write"])
    async def scopes(ctx: Context) -> str:
        assert ctx.caller is not None
        return " ".join(sorted(ctx.caller.scopes))

    admin = MockClient(caller=Caller("ann", ["admin"]), era=era)
    assert (await admin.call((server, "scopes"))).text == "admin read write"
    assert (await MockClient(caller=Caller("ben", ["read"]), era=era).call((server, "scopes"))).is_error
    with pytest.raises(CredentialsRejected) as caught:
        await MockClient(caller=Caller("cat", ["write"]), era=era).call((server, "scopes"))
    assert caught.value.scopes == {"read"}


async def test_the_server_sees_the_principal_and_the_capabilities(era: str) -> None:
    async def who(ctx: Context) -> str:
        return f"{ctx.request.principal} {ctx.request.client_capabilities.sampling}"

    client = MockClient(principal="ann", capabilities=ClientCapabilities(), era=era)
    assert (await client.call(who)).text == "ann None"


async def test_a_capability_that_is_not_declared_cannot_be_asked(era: str) -> None:
    client = MockClient(capabilities=ClientCapabilities(), era=era)
    if era == "modern":
        with pytest.raises(PeerError) as missing:
            await client.call(ask_size)
        assert missing.value.code == MISSING_CAPABILITY
    else:
        assert (await client.call(ask_size)).is_error
    assert client.questions == []


# steps


async def test_a_delay_passes_on_the_clock(era: str, autojump_clock: MockClock) -> None:
    start = trio.current_time()
    assert (await MockClient(elicits=[Delay(500, "s")], era=era).call(ask_size)).text == "Size.SMALL"
    assert trio.current_time() - start == pytest.approx(500, abs=5)


async def test_a_question_that_is_never_answered_times_out(era: str, autojump_clock: MockClock) -> None:
    async def patient(ctx: Context) -> str:
        try:
            await ctx.elicit("Anyone?", bool, timeout=30)
        except RequestTimeout:
            second = await ctx.elicit("Still not?", bool)
            return f"then {second.action}"
        return "?"

    client = MockClient(elicits=[Never(), True], era=era)
    assert (await client.call(patient)).text == "then accept"
    assert [question.message for question in client.questions] == ["Anyone?", "Still not?"]


async def test_a_sample_that_is_never_answered_times_out(era: str, autojump_clock: MockClock) -> None:
    async def impatient(ctx: Context) -> str:
        with trio.move_on_after(10):
            return (await ctx.sample("?")).text
        return "no answer"

    assert (await MockClient(samples=[Never()], era=era).call(impatient)).text == "no answer"


async def test_an_answer_waits_for_a_question_of_its_round_that_is_never_answered(
    era: str, autojump_clock: MockClock
) -> None:
    async def impatient(ctx: Context) -> str:
        try:
            return (await ctx.sample("?", timeout=10)).text
        except RequestTimeout:
            return "nothing"

    async def ask_both(ctx: Context) -> str:
        text, answer = await ctx.branch_all(impatient, lambda child: child.elicit("Sure?", bool))
        return f"{text}, {answer.action}"

    client = MockClient(samples=[Never()], elicits=[True], era=era)
    assert (await client.call(ask_both)).text == "nothing, accept"
    assert len(client.questions) == 2


async def test_a_lost_connection_cancels_the_tool_and_raises(era: str) -> None:
    ended: list[str] = []

    async def buy(ctx: Context) -> str:
        try:
            return (await ctx.elicit("Sure?", bool)).action
        finally:
            ended.append(str(ctx.cancel_reason))

    client = MockClient(elicits=[Disconnect()], era=era)
    with pytest.raises(Disconnected):
        await client.call(buy)
    # A modern call that waits between two requests belongs to no connection; here its server ends with the test.
    assert ended == ["shutdown" if era == "modern" else "disconnect"]


async def test_an_exception_is_the_failure_of_the_client(era: str) -> None:
    async def stubborn(ctx: Context) -> str:
        try:
            return (await ctx.elicit("Sure?", bool)).action
        except PeerError as error:
            return f"code {error.code}"

    client = MockClient(elicits=[PeerError(-1, "the user is away")], era=era)
    if era == "modern":
        with pytest.raises(PeerError):
            await client.call(stubborn)
    else:
        assert (await client.call(stubborn)).text == "code -1"


async def test_a_second_worker_replays_the_call_in_the_modern_era(era: str) -> None:
    server, runs, effects = Server("shop"), list[str](), list[str]()

    @server.tool(resume="replay")
    async def buy(ctx: Context) -> str:
        runs.append("run")
        await ctx.step("charge", lambda: effects.append("charged"))
        first = await ctx.elicit("Sure?", bool)
        second = await ctx.elicit("Really?", bool)
        return f"{first.action} {second.action}"

    client = MockClient(elicits=[SecondWorker(True), Delay(0, SecondWorker(lambda _asked: decline()))], era=era)
    assert (await client.call(buy)).text == "accept decline"
    assert effects == ["charged"]
    assert len(runs) == (3 if era == "modern" else 1)


async def test_a_call_that_may_not_be_replayed_is_lost_at_a_second_worker() -> None:
    result = await MockClient(elicits=[SecondWorker("s")]).call(ask_size)
    assert result.is_error


def test_none_is_refused_with_how_to_confirm() -> None:
    with pytest.raises(TypeError, match=naming("answer 1 of elicits", "None", "{}")):
        MockClient(elicits=[None])


@pytest.mark.parametrize("step", [Disconnect(), Never()], ids=["disconnect", "timeout"])
async def test_a_call_that_no_other_process_can_continue_is_released(
    step: object, era: str, autojump_clock: MockClock
) -> None:
    released = list[str]()
    client = MockClient(elicits=[step], era=era)
    hold = handoff_with(released)
    with trio.fail_after(BOUND):
        if isinstance(step, Disconnect):
            with pytest.raises(Disconnected):
                await client.call(hold)
        else:
            assert (await client.call(hold)).is_error
    assert released == ["7A"]


@pytest.mark.parametrize(
    "script",
    [[SecondWorker(True), Never()], [lambda _asked: True, Never()], [Delay(0, SecondWorker(True)), Never()]],
    ids=["step", "function", "delay"],
)
async def test_a_script_that_may_use_a_second_worker_shares_the_keys(
    script: list[object], autojump_clock: MockClock
) -> None:
    released = list[str]()
    with trio.fail_after(BOUND):
        assert (await MockClient(elicits=script).call(handoff_with(released))).is_error
    assert released == [], "another process may have gone on with the call"


def handoff_with(released: list[str]) -> Callable[[], object]:
    """Return a handoff tool that asks twice and records what it released."""
    server = Server("desk")

    async def confirm(_seat: str, ctx: Context) -> None:
        await ctx.elicit("Take it?", bool)
        await ctx.elicit("Really?", bool)

    async def book(_seat: str, _sure: None, ctx: Context) -> str:
        return "booked"

    async def release(seat: str, ctx: Context) -> None:
        released.append(seat)

    @server.handoff_tool(client=confirm, after=book, on_cancel=release, timeout=5)
    async def hold() -> str:
        return "7A"

    return hold


@pytest.mark.parametrize("seconds", [-1, float("inf"), "5"])
def test_a_delay_is_a_finite_number_of_seconds(seconds: object) -> None:
    with pytest.raises((TypeError, ValueError), match="seconds"):
        Delay(seconds, True)


# the record


async def test_the_questions_are_remembered(era: str) -> None:
    client = MockClient(elicits=[Seat(flight="TP1", seat="aisle")], samples=["!"], era=era)
    await client.call(book, trip=Trip("Faro"))
    form, sample = client.questions
    assert (form.kind, form.message, form.key, form.leg) == ("elicit", "Which seat?", None, 1)
    assert form.schema is not None
    assert form.schema["required"] == ["flight", "seat"]
    assert (sample.kind, sample.message, sample.schema) == ("sample", "A line about Faro", None)
    assert sample.leg == (2 if era == "modern" else 1)
    assert isinstance(sample.params, CreateMessageRequestParams)


async def test_progress_logs_and_the_result_are_remembered(era: str) -> None:
    async def report(ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        await ctx.log("debug", {"at": 1})
        return "done"

    client = MockClient(era=era)
    assert client.result is None
    result = await client.call(report)
    assert [(each.progress, each.total, each.message) for each in client.progress] == [(1, 2, "half")]
    assert [(each.level, each.data) for each in client.logs] == [("debug", {"at": 1})]
    assert client.result is result


async def test_questions_of_one_round_take_their_answers_in_the_order_of_the_round() -> None:
    async def ask_both(ctx: Context) -> str:
        a, b = await ctx.branch_all(lambda c: c.elicit("A?", int), lambda c: c.elicit("B?", int))
        assert a.action == b.action == "accept"
        return f"{a.content} {b.content}"

    for _ in range(10):  # the order of tasks is random
        assert (await MockClient(elicits=[1, 2]).call(ask_both)).text == "1 2"


# scripts that do not fit


async def careless(ctx: Context) -> str:
    """Hide that the script ran out."""
    try:
        await ctx.sample("?")
    except Exception:  # noqa: BLE001
        return "all is well"
    return "?"


async def list_roots(ctx: Context) -> str:
    """Ask for the roots."""
    return (await ctx.roots())[0].uri


FARO = {"trip": Trip("Faro")}
WRONG_SEATS: list[tuple[object, str]] = [
    ({"flight": 3, "seat": "aisle"}, "flight"),
    ({"flight": "TP1"}, "seat"),
    ({"flight": "TP1", "seat": "roof"}, "roof"),
    ({"flight": "TP1", "seat": "aisle", "nope": 1}, "no field nope"),
    ("TP1", "flight, seat"),
    (lambda _asked: {"flight": 3}, "flight"),
    ({"flight": object()}, "cannot be sent"),
]


@pytest.mark.parametrize(
    ("script", "tool", "arguments", "names"),
    [
        ({"elicits": [True, False]}, ask_thrice, {}, ["Question 3?", "elicits has 2 answers", "Question 1?"]),
        ({}, careless, {}, ["sample"]),
        ({}, list_roots, {}, ["roots"]),
        (
            {"elicits": [decline(), "unused"], "samples": ["also"]},
            book,
            FARO,
            ["answer 2 of elicits", "unused", "answer 1 of samples", "Which seat?", "with client:"],
        ),
        ({"elicits": [True]}, book, {}, ["Invalid arguments"]),
        ({"elicits": [Seat(flight="TP1", seat="aisle")], "samples": [3]}, book, FARO, ["answer 1 of samples"]),
        *(({"elicits": [answer]}, book, FARO, ["answer 1 of elicits", why]) for answer, why in WRONG_SEATS),
    ],
    ids=[
        "ran out",
        "hidden",
        "roots",
        "unused",
        "tool failed",
        "no model",
        *(f"form{n}" for n in range(len(WRONG_SEATS))),
    ],
)
async def test_a_script_that_does_not_fit_fails_the_test_with_what_is_wrong(
    era: str, script: dict[str, Any], tool: Callable[..., Any], arguments: dict[str, Any], names: list[str]
) -> None:
    with pytest.raises(AssertionError, match=naming(*names)):
        await MockClient(era=era, **script).call(tool, **arguments)


async def test_a_function_that_no_question_called_fails_by_name(era: str) -> None:
    async def ask_twice(ctx: Context) -> None:
        await ctx.elicit("First?", bool)
        await ctx.elicit("Second?", bool)

    async def ask_nothing() -> None: ...

    with pytest.raises(AssertionError, match="samples"):
        await MockClient(elicits=lambda asked: True, samples=lambda asked: "", era=era).call(ask_twice)
    await MockClient(elicits=lambda asked: True, era=era).call(ask_twice)
    with MockClient(elicits=lambda asked: True, era=era) as client:
        await client.call(ask_twice)
        await client.call(ask_nothing)


# over one connection


def counted(entered: list[str]) -> Server:
    """A server whose lifespan counts its entries, with a tool that asks and one that does not."""

    @asynccontextmanager
    async def lifespan(_server: Server) -> AsyncIterator[list[str]]:
        entered.append("in")
        yield []
        entered.append("out")

    server = Server("counted", lifespan=lifespan)

    @server.tool
    async def add(item: str, ctx: Context[list[str]]) -> list[str]:
        if await ctx.elicit.strict(f"Add {item}?", bool):
            ctx.state.append(item)
        return ctx.state

    return server


async def test_a_client_keeps_one_connection_and_one_script_in_an_async_block(era: str) -> None:
    entered: list[str] = []
    server = counted(entered)
    async with MockClient(elicits=[True, False, True], era=era) as client:
        assert (await client.call((server, "add"), item="a")).data == ["a"]
        assert (await client.call((server, "add"), item="b")).data == ["a"]
        assert (await client.call((server, "add"), item="c")).data == ["a", "c"]
        assert [question.leg for question in client.questions] == [1, 1, 1]
        assert entered == ["in"]
    assert entered == ["in", "out"]


async def test_calls_of_one_connection_may_run_together(era: str) -> None:
    server = counted([])
    async with MockClient(elicits=lambda _asked: True, era=era) as client:
        async with trio.open_nursery() as nursery:
            for item in "ab":
                nursery.start_soon(partial(client.call, (server, "add"), item=item))
        assert sorted((await client.call((server, "add"), item="c")).data) == ["a", "b", "c"]  # type: ignore[type-var, arg-type]


async def test_a_script_that_does_not_fit_fails_in_an_async_block_as_elsewhere(era: str) -> None:
    entered: list[str] = []
    server = counted(entered)
    with pytest.raises(AssertionError, match="Add b"):  # noqa: PT012  the block is the client's
        async with MockClient(elicits=[True], era=era) as client:
            await client.call((server, "add"), item="a")
            await client.call((server, "add"), item="b")
    assert entered == ["in", "out"]
    with pytest.raises(AssertionError, match="answer 2 of elicits"):
        async with MockClient(elicits=[True, True], era=era) as client:
            await client.call((server, "add"), item="a")
    with pytest.raises(KeyError):  # noqa: PT012  the same
        async with MockClient(elicits=[True, True], era=era) as client:
            await client.call((server, "add"), item="a")
            raise KeyError


async def test_a_connection_that_the_script_lost_stays_lost(era: str) -> None:
    server = counted([])
    async with MockClient(elicits=[Disconnect()], era=era) as client:
        for _ in range(2):
            with pytest.raises(Disconnected):
                await client.call((server, "add"), item="a")


def test_a_misspelt_option_is_named_with_the_nearest() -> None:
    options: dict[str, Any] = {"elicit": [True]}
    with pytest.raises(TypeError, match=naming("MockClient()", "'elicit'", "'elicits'")):
        MockClient(**options)


async def test_what_a_function_raises_fails_the_test(era: str) -> None:
    class Broken(Exception):
        pass

    def broken(_asked: object) -> object:
        raise Broken

    with pytest.raises(Broken):
        await MockClient(elicits=[broken], era=era).call(ask_size)


async def test_a_form_without_fields_is_confirmed_by_an_empty_dict(era: str) -> None:
    async def confirm(ctx: Context) -> str:
        return (await ctx.elicit("Sure?")).action

    assert (await MockClient(elicits=[{}], era=era).call(confirm)).text == "accept"
    with pytest.raises(AssertionError, match="no fields"):
        await MockClient(elicits=[True], era=era).call(confirm)


async def test_a_block_checks_the_script_at_its_end(era: str) -> None:
    with MockClient(elicits=["s", "l"], era=era) as client:
        assert (await client.call(ask_size)).text == "Size.SMALL"
        assert (await client.call(ask_size)).text == "Size.LARGE"
    with pytest.raises(AssertionError, match="answer 1 of elicits"):
        with MockClient(elicits=["s"], era=era):
            pass


async def test_a_block_that_fails_keeps_its_own_error() -> None:
    with pytest.raises(ZeroDivisionError):
        with MockClient(elicits=["s"]):
            raise ZeroDivisionError


async def test_a_call_that_is_cancelled_cancels_the_tool(era: str, autojump_clock: MockClock) -> None:
    cancelled = trio.Event()

    async def slow(ctx: Context) -> None:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    with trio.move_on_after(3):
        await MockClient(era=era).call(slow)
    with trio.fail_after(BOUND):
        await cancelled.wait()


@pytest.mark.parametrize(
    "options",
    [
        {"elicits": "yes"},
        {"elicits": {"value": 1}},
        {"elicits": 3},
        {"elicits": [Never]},
        {"samples": [object()]},
        {"era": "auto"},
        {"era": "newest"},
        {"capabilities": {"sampling": {}}},
        {"principal": 3},
        {"caller": "ann"},
        {"caller": Caller("ann"), "principal": "ann"},
        {"roots": ["/tmp"]},
    ],
)
def test_a_wrong_option_is_refused_at_once(options: dict[str, object]) -> None:
    with pytest.raises((TypeError, ValueError)):
        MockClient(**options)


async def test_an_error_response_to_the_call_is_raised(era: str) -> None:
    async def rejecting(ctx: Context) -> str:
        raise RemoteProtocolError("no such thing")

    with pytest.raises(PeerError):
        await MockClient(era=era).call(rejecting)


# calls of tools that a model makes


async def count_books(topic: str, limit: int = 3) -> str:
    """Count books."""
    return f"{limit} about {topic}"


async def lead(ctx: Context) -> str:
    """Let the model count."""
    return (await ctx.run_tool_loop("How many?", [count_books])).text


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (tool_use("count_boks", topic="a"), ["answer 1 of samples", "'count_boks'", "count_books"]),
        (tool_use("count_books", tpic="a"), ["answer 1 of samples", "count_books", "topic"]),
        ([tool_use("count_books", topic="a"), tool_use("count_books", topic=1)], ["answer 1 of samples", "topic"]),
        (Delay(0, tool_use("other")), ["answer 1 of samples", "'other'"]),
        (lambda asked: tool_use("other"), ["answer 1 of samples", "'other'"]),
    ],
    ids=["name", "argument", "second", "delayed", "function"],
)
async def test_a_call_that_does_not_fit_the_offered_tools_fails(era: str, call: object, named: list[str]) -> None:
    mode = "2025-11-25" if era != "modern" else era
    client = MockClient(samples=[call, "done"], era=mode)
    with pytest.raises(AssertionError, match=naming(*named, "How many")):
        await client.call(lead)
    assert len(client.questions) == 1


async def test_a_call_of_a_model_that_was_offered_no_tools_fails() -> None:
    async def think(ctx: Context) -> str:
        return (await ctx.sample("Think.")).text

    with pytest.raises(AssertionError, match="no tools were offered"):
        await MockClient(samples=[tool_use("count_books", topic="a")]).call(think)


async def test_an_unchecked_call_and_a_whole_result_are_sent_as_they_are() -> None:
    whole = CreateMessageResult(
        role="assistant", content=[ToolUseContent(id="1", name="other", input={})], model="m", stop_reason="toolUse"
    )
    wrong = [unchecked_tool_use("count_boks"), unchecked_tool_use("count_books", tpic="a"), unchecked_tool_use("x")]
    with MockClient(samples=[wrong, whole, "done"]) as client:
        assert (await client.call(lead)).text == "done"
    first = client.questions[1].params
    assert isinstance(first, CreateMessageRequestParams)
    assert first.messages[1].content == [
        ToolUseContent(id=f"{name}_{number}", name=name, input=given)
        for number, (name, given) in enumerate([("count_boks", {}), ("count_books", {"tpic": "a"}), ("x", {})], start=1)
    ]


# structured answers


async def guess(ctx: Context) -> int:
    """Ask the model for a number."""
    return (await ctx.sample("How many?", returns=int)).data


@pytest.mark.parametrize("mode", ["modern", "2025-11-25", "2025-06-18"])
@pytest.mark.parametrize("samples", [["many"], ["many", {"result": "three"}]])
async def test_a_structured_answer_that_does_not_fit_fails_with_its_number(mode: str, samples: list[object]) -> None:
    with pytest.raises(AssertionError, match=naming(f"answer {len(samples)} of samples does not fit")) as caught:
        await MockClient(samples=samples, era=mode).call(guess)
    assert ".." not in str(caught.value)


@pytest.mark.parametrize("mode", ["modern", "2025-11-25"])
async def test_a_further_answer_is_given_to_the_next_attempt(mode: str) -> None:
    client = MockClient(samples=["many", {"result": 3}], era=mode)
    assert (await client.call(guess)).structured_content == {"result": 3}
    first, second = client.questions
    assert second.message.splitlines()[-1].startswith("Your last answer could not be used")
    assert second.message.startswith(first.message)


async def test_a_question_after_results_is_named_by_what_it_follows() -> None:
    with pytest.raises(AssertionError, match=naming("no answer left", "sample after tool_result")):
        await MockClient(samples=[tool_use("count_books", topic="a")]).call(lead)


async def test_an_argument_without_its_name_is_a_type_error() -> None:
    call: Any = MockClient().call
    with pytest.raises(TypeError, match="by keyword"):
        await call(count_books, {"topic": "a"})


@pytest.mark.parametrize(
    "use", [bool, str, lambda call: call.text, lambda call: call == "3"], ids=["bool", "str", "text", "equal"]
)
def test_a_call_that_was_not_awaited_cannot_be_used(use: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match=re.escape("write `await client.call(...)`")):
        use(MockClient().call(count_books, topic="a"))


def test_an_awaited_call_runs_outside_of_a_test_function() -> None:
    assert trio.run(partial(MockClient().call, count_books, topic="a")).text == "3 about a"


@pytest.mark.parametrize("is_named", [True, False], ids=["by its server", "by the environment"])
async def test_a_store_in_a_file_is_not_opened(
    era: str, tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    monkeypatch.delenv("TRIO_MCP_KEYS", raising=False)
    file = tmp_path / "state.db"
    if not is_named:
        monkeypatch.setenv("TRIO_MCP_STORE", str(file))
    server = Server("reports", options=ServiceOptions(store=str(file) if is_named else None))

    @server.tool(task=True, resume="replay")
    async def report(ctx: Context) -> str:
        await ctx.step("read", partial(trio.sleep, 60))
        await trio.sleep(60)
        return (await ctx.elicit("Publish?", bool)).action

    assert (await MockClient(elicits=[True], era=era).call(report)).text == "accept"
    assert not file.exists()


async def test_heartbeats_are_not_among_the_progress(era: str, autojump_clock: MockClock) -> None:
    server = Server("slow")

    @server.tool(heartbeat=15)
    async def works(ctx: Context) -> str:
        await trio.sleep(7200)
        await ctx.progress(1, 2, "half")
        await trio.sleep(7200)
        return "done"

    client = MockClient(era=era)
    assert (await client.call(works)).text == "done"
    assert [report.message for report in client.progress] == ["half"]
