"""Parameters marked with `Provide`: made once for each call, before the body, and left with it."""

import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Annotated, Any, Protocol, TypeVar

import pytest
import trio
from connected import connected
from naming import naming
from one_tool import failure_of, success_of, talk_with
from talk import offering, talk_to
from trio.testing import MockClock

from trio_mcp import Context, Provide, Server, ServiceOptions, ToolError, accept_defaults
from trio_mcp.errors import LimitExceeded
from trio_mcp.runtime import ThreadLimiter
from trio_mcp.server import ToolKeywords
from trio_mcp.server.provide import ThreadedManager

T = TypeVar("T")

BOUND = 20.0
Events = list[str]


def recorder(events: Events, name: str = "db") -> Provide:
    @asynccontextmanager
    async def provide() -> AsyncIterator[str]:
        events.append(f"enter {name}")
        try:
            yield name
        except BaseException as error:
            events.append(f"saw {type(error).__name__}")
            raise
        finally:
            events.append(f"leave {name}")

    return Provide(provide)


# kinds


async def a_coroutine() -> str:
    return "async"


def a_function() -> str:
    assert threading.current_thread() is not threading.main_thread()
    return "plain"


@asynccontextmanager
async def an_async_manager() -> AsyncIterator[str]:
    yield "async manager"


@contextmanager
def a_manager() -> Iterator[str]:
    yield "manager"


def declared() -> AbstractAsyncContextManager[str]:
    return an_async_manager()


async def test_a_provider_is_async_or_plain_or_a_context_manager() -> None:
    async def tool(
        a: Annotated[str, Provide(a_coroutine)],
        b: Annotated[str, Provide(a_function)],
        c: Annotated[str, Provide(an_async_manager)],
        d: Annotated[str, Provide(a_manager)],
        e: Annotated[str, Provide(declared)],
    ) -> str:
        return ", ".join([a, b, c, d, e])

    def plain(number: int, a: Annotated[str, Provide(a_coroutine)]) -> str:
        return f"{a} {number}"

    assert await success_of(tool) == "async, plain, async manager, manager, async manager"
    assert await success_of(plain, {"number": 3}) == "async 3"


async def test_what_is_provided_is_no_argument() -> None:
    async def tool(number: int, db: Annotated[str, Provide(a_coroutine)]) -> str:
        return db

    server = offering(tool)

    @server.prompt
    async def prompt(subject: str, db: Annotated[str, Provide(a_coroutine)]) -> str:
        return f"{subject} {db}"

    @server.resource("users://{name}")
    async def user(name: str, db: Annotated[str, Provide(a_coroutine)]) -> str:
        return f"{name} {db}"

    assert list(server.tools[0].model.input_schema["properties"]) == ["number"]  # type: ignore[arg-type, call-overload]
    async with connected(server) as client:
        assert (await client.call_tool("tool", {"number": 1, "db": "mine"})).is_error
        (listed,) = await client.list_prompts()
        assert [argument.name for argument in listed.arguments or ()] == ["subject"]
        rendered = await client.get_prompt("prompt", {"subject": "a"})
        assert rendered.messages[0].content.text == "a async"  # type: ignore[union-attr]
        read = await client.read_resource("users://ann")
        assert read.contents[0].text == "ann async"  # type: ignore[union-attr]


async def test_a_raw_schema_leaves_what_is_provided_out() -> None:
    async def tool(arguments: dict[str, Any], db: Annotated[str, Provide(a_coroutine)]) -> str:
        return f"{arguments} {db}"

    assert await success_of(tool, {"a": 1}, input_schema={"type": "object"}) == "{'a': 1} async"


# order


async def test_providers_use_others_and_the_context_and_are_left_in_reverse_order() -> None:
    events: Events = []
    pool = recorder(events, "pool")

    @asynccontextmanager
    async def connect(ctx: Context[str], pool: Annotated[str, pool], size: int = 3) -> AsyncIterator[str]:
        events.append("enter connection")
        yield f"{pool} {ctx.request.method} {size}"
        events.append("leave connection")

    async def tool(db: Annotated[str, Provide(connect)], pool: Annotated[str, pool]) -> str:
        events.append("body")
        return f"{db}, {pool}"

    assert await success_of(tool) == "pool tools/call 3, pool"
    assert events == ["enter pool", "enter connection", "body", "leave connection", "leave pool"]


async def test_two_parameters_with_the_same_function_share_its_value() -> None:
    made: list[object] = []

    async def make() -> object:
        made.append(object())
        return made[-1]

    async def tool(a: Annotated[object, Provide(make)], b: Annotated[object, Provide(make)]) -> bool:
        return a is b

    assert await success_of(tool) in ("true", '{"result":true}')
    assert len(made) == 1


async def test_a_provider_is_entered_once_for_all_legs_of_a_call(mode: Any) -> None:
    events: Events = []

    async def tool(ctx: Context, db: Annotated[str, recorder(events)]) -> str:
        answers = [await ctx.elicit("?", bool) for _ in range(2)]
        return f"{db} {[answer.action for answer in answers]}"

    async with connected(offering(tool), mode=mode, on_elicit=accept_defaults) as client:
        assert (await client.call_tool("tool")).text.startswith("db ")
    assert events == ["enter db", "leave db"]


async def test_a_replay_enters_it_again_before_the_body() -> None:
    events: Events = []
    server = Server("tester", options=ServiceOptions(always_replay=True))

    @server.tool
    async def tool(ctx: Context, db: Annotated[str, recorder(events)]) -> str:
        events.append("body")
        return (await ctx.elicit("?", bool)).action

    async with talk_to(server) as talk:
        question = await talk.round(talk.leg("tool"))
        assert await talk.text(question.retry(True)) == "accept"
    assert events == ["enter db", "body", "saw Cancelled", "leave db", "enter db", "body", "leave db"]


async def test_a_provider_may_ask_and_step() -> None:
    async def confirmed(ctx: Context) -> str:
        return (await ctx.elicit("sure?", bool)).action

    async def tool(ctx: Context, first: Annotated[str, Provide(confirmed)]) -> str:
        return first + (await ctx.elicit("really?", bool)).action

    async with talk_with(tool, name="tool") as talk:
        first = await talk.round(talk.leg("tool"))
        second = await talk.round(first.retry(True))
        assert await talk.text(second.retry(True)) == "acceptaccept"


# failures


async def test_a_provider_sees_the_exception_of_the_body_like_a_with_block() -> None:
    events: Events = []

    async def tool(db: Annotated[str, recorder(events)]) -> None:
        raise ToolError("no")

    assert await failure_of(tool) == "no"
    assert events == ["enter db", "saw ToolError", "leave db"]


async def test_a_provider_that_raises_is_the_error_of_its_call() -> None:
    events: Events = []

    async def broken() -> None:
        raise ToolError("no database")

    async def tool(db: Annotated[str, recorder(events)], other: Annotated[None, Provide(broken)]) -> None:
        events.append("body")

    assert await failure_of(tool) == "no database"
    assert events == ["enter db", "saw ToolError", "leave db"]


@asynccontextmanager
async def with_nursery() -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        yield nursery


@asynccontextmanager
async def suppressing() -> AsyncIterator[None]:
    with suppress(ToolError):
        yield


@asynccontextmanager
async def failing_at_its_end() -> AsyncIterator[None]:
    yield
    raise ToolError("not committed")


@pytest.mark.parametrize(
    ("provide", "fails", "text"),
    [
        (with_nursery, True, "no"),
        (suppressing, True, "internal error"),
        (failing_at_its_end, False, "not committed"),
    ],
)
async def test_a_provider_does_not_wrap_or_suppress_an_error_and_may_raise_one_when_it_is_left(
    provide: Any, fails: bool, text: str
) -> None:
    async def tool(value: Annotated[object, Provide(provide)]) -> str:
        if fails:
            raise ToolError("no")
        return "done"

    said = await failure_of(tool)
    assert text in said
    assert said == "no" or text != "no"


async def test_a_cancelled_call_leaves_its_providers_shielded(autojump_clock: MockClock) -> None:
    events: Events = []

    @asynccontextmanager
    async def connect() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await trio.sleep(1)
            events.append("left")

    async def tool(db: Annotated[None, Provide(connect)]) -> None:
        await trio.sleep_forever()

    async with talk_with(tool, name="tool", timeout=2) as talk:
        assert "2 seconds" in await talk.failure(talk.leg("tool"))
    assert events == ["left"]
    assert trio.current_time() == 3


@pytest.mark.parametrize("cancelled", [True, False])
async def test_leaving_a_provider_is_bounded(
    cancelled: bool, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """By the clean-up time of the service."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await trio.sleep_forever()

    async def tool(db: Annotated[None, Provide(connect)]) -> None:
        if cancelled:
            await trio.sleep_forever()

    server = Server("tester", options=ServiceOptions(cancel_grace=3))
    options: ToolKeywords = {"name": "tool", "timeout": 2} if cancelled else {"name": "tool"}
    server.add_tool(tool, **options)
    async with talk_to(server) as talk:
        await talk.failure(talk.leg("tool"))
        assert trio.current_time() == (5 if cancelled else 3)
    assert any("not left within 3 seconds" in record.getMessage() for record in caplog.records)
    assert all(record.levelno == logging.ERROR for record in caplog.records if record.name == "trio_mcp.call")


async def test_a_manager_that_was_entered_in_an_abandoned_thread_is_left() -> None:
    entering, go_on, left = trio.Event(), threading.Event(), threading.Event()

    @contextmanager
    def slow() -> Iterator[None]:
        trio.from_thread.run_sync(entering.set)
        go_on.wait(BOUND)
        try:
            yield
        finally:
            left.set()

    async def tool(db: Annotated[None, Provide(slow)]) -> None: ...

    async with talk_with(tool, name="tool") as talk:
        request = talk.leg("tool")
        with trio.fail_after(BOUND):
            await entering.wait()
        talk.cancel(request)
        await talk.silence()
        go_on.set()
        assert await trio.to_thread.run_sync(left.wait, BOUND)


class CancelledLimiter(ThreadLimiter):
    """Cancels a scope when the first function has returned in its thread, before its value is there."""

    def __init__(self, *, has_room: bool) -> None:
        super().__init__(1)
        self.scope = trio.CancelScope()
        self.calls = 0
        self._has_room = has_room

    async def run(self, fn: Callable[[], T], caller: Hashable | None = None) -> T:
        self.calls += 1
        if self.calls > 1 and not self._has_room:
            raise LimitExceeded("no thread is free")
        value = await super().run(fn, caller)
        if self.calls == 1:
            self.scope.cancel()
            await trio.lowlevel.checkpoint()
        return value


@pytest.mark.parametrize("has_room", [True, False])
async def test_a_manager_whose_value_was_dropped_is_left_in_a_thread_of_the_server(
    has_room: bool, caplog: pytest.LogCaptureFixture
) -> None:
    events: Events = []

    @contextmanager
    def connect() -> Iterator[None]:
        events.append("entered")
        yield
        events.append("left")

    threads = CancelledLimiter(has_room=has_room)
    with threads.scope:
        await ThreadedManager(connect(), threads, None).__aenter__()
    assert threads.scope.cancelled_caught
    assert threads.calls == 2
    assert events == ["entered", "left"][: 1 + has_room]
    assert len(caplog.records) == (not has_room)


# registration


async def undecorated() -> AsyncIterator[str]:
    yield ""


async def needs_more(name: str) -> str:
    return name


async def itself(value: Annotated[str, Provide(lambda: None)]) -> str:
    return value


itself.__annotations__["value"] = Annotated[str, Provide(itself)]


async def connect() -> str:
    return "db"


@asynccontextmanager
async def opened() -> AsyncIterator[str]:
    yield "db"


def test_a_mark_that_is_given_as_a_default_is_refused_with_what_to_write() -> None:
    def tool(db: str = Provide(connect)) -> str:  # type: ignore[assignment]
        return db

    def untyped(db=Provide(connect)):  # type: ignore[no-untyped-def]  # noqa: B008
        return db

    for wrong in (tool, untyped):
        with pytest.raises(TypeError, match=naming("db", "Annotated[", "Provide(connect)")):
            Server("tester").tool(wrong)


@pytest.mark.parametrize("made", [connect, opened])
def test_a_provider_that_was_called_is_refused_with_what_to_write(made: Any) -> None:
    async def tool(db: str) -> str:
        return db

    tool.__annotations__["db"] = Annotated[str, Provide(made())]
    with pytest.raises(TypeError, match=naming("tool", f"Provide({made.__name__})", f"Provide({made.__name__}())")):
        Server("tester").tool(tool)


@pytest.mark.parametrize(
    ("provide", "said"),
    [
        (Provide(undecorated), "@asynccontextmanager"),
        (Provide(needs_more), "'name'"),
        (Provide(itself), "needs its own value"),
        (Provide(sqlite3.Connection), "function"),
        (Provide(3), "function"),  # type: ignore[arg-type]
        (Provide, "Provide(function)"),
    ],
)
def test_a_provider_that_cannot_be_called_is_refused_at_registration(provide: object, said: str) -> None:
    async def tool(db: str) -> str:
        return db

    tool.__annotations__["db"] = Annotated[str, provide]
    with pytest.raises(TypeError) as caught:
        Server("tester").tool(tool)
    assert "tool" in str(caught.value)
    assert said in str(caught.value)


class Base: ...


class Derived(Base): ...


class Sized(Protocol):
    def size(self) -> int: ...


@asynccontextmanager
async def base() -> AsyncIterator[Base]:
    yield Base()


@contextmanager
def derived() -> Iterator[Derived]:
    yield Derived()


async def number() -> int:
    return 3


def unknown() -> Any:
    return 3


def manager() -> AbstractAsyncContextManager[Base]:
    return base()


WRONG = [(int, base), (str, number), (int, derived), (str, manager), (Derived, number), (list[int], number)]
FITTING = [
    *((wanted, base) for wanted in (Base, Derived, object, Any, Base | None, Sized)),
    *((Base, derived), (float, number), (str, unknown), (Base, manager)),
]


@pytest.mark.parametrize(
    ("wanted", "provide", "fits"),
    [*((*each, False) for each in WRONG), *((*each, True) for each in FITTING)],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_a_provider_is_refused_at_registration_unless_its_type_may_fit(wanted: Any, provide: Any, fits: bool) -> None:
    def tool(value: Any) -> None: ...

    tool.__annotations__["value"] = Annotated[wanted, Provide(provide)]
    refused = pytest.raises(TypeError, match=naming("tool", "'value'", provide.__name__))
    with nullcontext() if fits else refused:
        Server("tester").add_tool(tool)
