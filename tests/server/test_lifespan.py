"""A lifespan opens before the first call, and closes after the last one has cleaned up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import pytest
import trio
from connected import connected
from naming import naming, unnamed
from one_tool import success_of
from talk import talk_to
from trio.testing import MockClock

from trio_mcp import Client, Context, Disconnected, Server, ServiceOptions
from trio_mcp.server.lifespan import LIFESPAN_EXIT_SECONDS

BOUND = 20.0


class Broken(Exception):
    pass


Lifespan = Callable[[Server], AbstractAsyncContextManager[object]]


def server_with(lifespan: Lifespan) -> Server:
    server = Server("tester", lifespan=lifespan)

    @server.tool
    async def read(ctx: Context[dict[str, str]]) -> str:
        return ctx.state["key"]

    return server


def giving(value: str) -> Lifespan:
    """A lifespan whose state has this value."""

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[dict[str, str]]:
        yield {"key": value}

    return lifespan


async def test_a_lifespan_is_entered_once_and_its_value_is_the_state(mode: Any) -> None:
    events: list[object] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[dict[str, str]]:
        events.append(server)
        yield {"key": "value"}
        events.append("closed")

    server = server_with(lifespan)
    async with connected(server, mode=mode) as client:
        assert [(await client.call_tool("read")).text for _ in range(2)] == ["value", "value"]
        assert events == [server]
    assert events == [server, "closed"]


async def test_a_server_without_a_lifespan_has_no_state() -> None:
    async def state(ctx: Context) -> bool:
        return ctx.state is None

    assert await success_of(state) == "true"


async def test_options_keep_the_lifespan() -> None:
    async with server_with(giving("kept")).copy(options=ServiceOptions()).open_service() as service:
        assert service.offers.calls.state == {"key": "kept"}


async def test_a_nursery_may_stay_open_across_the_yield(autojump_clock: MockClock) -> None:
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            ticks.append(trio.current_time())
            await trio.sleep(1)

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            yield
            nursery.cancel_scope.cancel()

    async with Server("tester", lifespan=lifespan).open_service():
        await trio.sleep(2.5)
    await trio.sleep(5)
    assert ticks == [0, 1, 2]


async def test_a_failed_start_raises_the_exception_of_the_lifespan() -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        raise Broken
        yield

    server = Server("tester", lifespan=lifespan)
    with pytest.raises(Broken):
        async with server.open_service():
            raise AssertionError("it was opened")
    assert server.services == ()
    with pytest.raises(Broken), trio.fail_after(BOUND):
        async with Client.connect(server):
            raise AssertionError("it was connected")


@asynccontextmanager
async def fails_at_its_end(_server: Server) -> AsyncIterator[dict[str, str]]:
    yield {"key": "value"}
    raise Broken


async def test_the_block_of_a_client_raises_what_the_end_of_the_lifespan_raises() -> None:
    with trio.fail_after(BOUND), pytest.raises(Broken) as raised:
        async with Client.connect(server_with(fails_at_its_end)) as client:
            await client.call_tool("read")
    assert raised.value.__context__ is None


async def test_a_client_that_is_closed_without_a_block_raises_it_once() -> None:
    with trio.fail_after(BOUND):
        client = await Client.connect(server_with(fails_at_its_end)).open()
        with pytest.raises(Broken):
            await client.aclose()
        await client.aclose()


async def test_what_the_block_raised_is_not_lost_when_the_end_of_the_lifespan_fails_too() -> None:
    with trio.fail_after(BOUND), pytest.raises(ExceptionGroup) as raised:
        async with Client.connect(server_with(fails_at_its_end)):
            raise LookupError
    assert [type(error) for error in raised.value.exceptions] == [LookupError, Broken]


async def test_a_cancel_of_the_block_is_not_lost_either() -> None:
    with trio.fail_after(BOUND), pytest.raises(ExceptionGroup) as raised, trio.CancelScope() as scope:  # noqa: PT012
        async with Client.connect(server_with(fails_at_its_end)):
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert [type(error) for error in raised.value.exceptions] == [Broken]


def server_that_fails_after(event: trio.Event) -> Server:
    async def fail() -> None:
        await event.wait()
        raise Broken

    @asynccontextmanager
    async def lifespan(_server: Server) -> AsyncIterator[dict[str, str]]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            yield {"key": "value"}

    return server_with(lifespan)


async def test_a_crash_while_serving_leaves_the_block_of_the_client() -> None:
    crash = trio.Event()
    with trio.fail_after(BOUND), pytest.raises(Broken) as raised:  # noqa: PT012
        async with Client.connect(server_that_fails_after(crash)) as client:
            crash.set()
            while True:
                await client.ping()
    assert isinstance(raised.value.__context__, Disconnected)


async def test_a_lifespan_that_fails_while_serving_ends_the_service_with_its_exception() -> None:
    crash, ended = trio.Event(), trio.Event()
    server = server_that_fails_after(crash)

    @server.tool
    async def work() -> None:
        try:
            crash.set()
            await trio.sleep_forever()
        finally:
            ended.set()

    async def serve() -> None:
        async with talk_to(server) as talk:
            talk.leg("work")
            await trio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught, trio.fail_after(BOUND):
        await serve()
    assert [type(error) for error in caught.value.exceptions] == [Broken]
    assert ended.is_set()


async def test_a_lifespan_that_ends_early_ends_the_service() -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        with trio.move_on_after(0):
            yield

    with pytest.raises(RuntimeError), trio.fail_after(BOUND):
        async with Server("tester", lifespan=lifespan).open_service():
            await trio.sleep_forever()


async def test_an_exception_of_the_block_leaves_as_it_is_with_and_without_a_lifespan() -> None:
    for server in (Server("tester"), server_with(giving("value"))):
        raised = Broken()
        with pytest.raises(Broken) as caught:
            async with server.open_service():
                raise raised
        assert caught.value is raised


async def test_calls_clean_up_before_the_lifespan_closes(autojump_clock: MockClock) -> None:
    """Also after a cancel, from which the clean-up of the lifespan is shielded."""
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        yield
        await trio.sleep(1)
        events.append("closed")

    server = Server("tester", lifespan=lifespan)

    @server.tool
    async def work() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            events.append("cleaned up")

    with trio.move_on_after(5):
        async with talk_to(server) as talk:
            talk.leg("work")
            await trio.sleep_forever()
    assert events == ["cleaned up", "closed"]


async def test_the_end_of_a_lifespan_is_bounded(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        yield
        await trio.sleep_forever()

    async with Server("tester", lifespan=lifespan).open_service():
        pass
    assert trio.current_time() == LIFESPAN_EXIT_SECONDS
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_a_start_can_be_cancelled(autojump_clock: MockClock) -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        await trio.sleep_forever()
        yield

    with trio.move_on_after(3) as scope:
        async with Server("tester", lifespan=lifespan).open_service():
            raise AssertionError("it was opened")
    assert scope.cancelled_caught
    assert trio.current_time() == 3


async def test_a_cancel_that_a_start_could_not_notice_closes_it_afterwards(autojump_clock: MockClock) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        # As what runs in a thread: a cancel does not reach it.
        with trio.CancelScope(shield=True):
            await trio.sleep(2)
        try:
            yield
        finally:
            events.append("closed")

    with trio.move_on_after(1) as scope:
        async with Server("tester", lifespan=lifespan).open_service():
            events.append("served")
    assert scope.cancelled_caught
    assert events == ["closed"]
    assert trio.current_time() == 2


@asynccontextmanager  # type: ignore[arg-type]
async def yields_nothing(server: Server) -> dict[str, str]:
    return {}


@contextmanager
def plain(server: Server) -> Iterator[None]:
    yield


@asynccontextmanager
async def takes_no_server() -> AsyncIterator[None]:
    yield


async def undecorated(server: Server) -> AsyncIterator[None]:
    yield


async def coroutine(server: Server) -> None: ...


@pytest.mark.parametrize(
    ("lifespan", "names"),
    [
        *((each, ["asynccontextmanager"]) for each in (undecorated, coroutine, {"db": 1})),
        (yields_nothing, ["lifespan", "yield"]),
        (plain, ["@asynccontextmanager", "async def"]),
        (takes_no_server, ["lifespan", "server"]),
    ],
)
def test_a_lifespan_that_cannot_be_entered_is_refused(lifespan: Any, names: list[str]) -> None:
    with pytest.raises(TypeError, match=naming(*names)):
        Server("tester", lifespan=lifespan)


async def test_a_lifespan_for_asyncio_is_named_with_the_page_to_read() -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        await asyncio.sleep(1)
        yield

    with trio.fail_after(BOUND), pytest.raises(RuntimeError) as caught:
        async with Client.connect(Server("tester", lifespan=lifespan)):
            pass
    assert unnamed(" ".join(caught.value.__notes__), "lifespan", "Trio", "docs/asyncio.md") == []


async def test_a_server_may_get_another_lifespan() -> None:
    server = server_with(giving("original"))
    other = server.copy(lifespan=giving("fake"))
    texts: list[str] = []
    for each in (other, server):
        async with connected(each) as client:
            texts.append((await client.call_tool("read")).text)
    assert texts == ["fake", "original"]
    with pytest.raises(TypeError):
        server.copy(lifespan=3)  # type: ignore[arg-type]
