"""Functions that run on asyncio: in the loop of an asyncio program, and in a loop of their own beside Trio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated

import pytest
import trio
import trio.lowlevel
from both_loops import BOUND, Run, called, in_program, on_both_loops, talk, until
from httpx2 import ASGITransport, AsyncClient
from pydantic import BaseModel
from talk import offering

from trio_mcp import Client, Context, Provide, Server, ServiceOptions, ToolError, to_asyncio, tool
from trio_mcp.http import HttpOptions, HttpRequest, HttpResponse
from trio_mcp.types import PromptReference
from trio_mcp_transports.http import asgi_app

# to_asyncio


@on_both_loops
async def test_an_asyncio_function_is_run_from_trio() -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        assert asyncio.current_task() is not None
        return 2 * number

    async def fail() -> None:
        raise KeyError("broken")

    assert await to_asyncio.run(double, 4) == 8
    with pytest.raises(KeyError):
        await to_asyncio.run(fail)


@on_both_loops
async def test_all_asyncio_code_of_a_run_shares_one_loop() -> None:
    loops = set[asyncio.AbstractEventLoop]()

    async def find() -> None:
        loops.add(asyncio.get_running_loop())

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(to_asyncio.run, find)
    assert len(loops) == 1


@on_both_loops
async def test_a_cancel_reaches_asyncio_as_its_own_kind_and_waits_for_the_clean_up() -> None:
    events = list[object]()

    async def wait() -> None:
        try:
            await asyncio.sleep(BOUND)
        except BaseException as error:
            events.append(type(error))
            await asyncio.sleep(0.01)
            events.append("clean")
            raise

    with trio.move_on_after(0.02) as scope:
        try:
            await to_asyncio.run(wait)
        except BaseException as error:
            events.append(type(error))
            raise
    assert scope.cancelled_caught
    assert events == [asyncio.CancelledError, "clean", trio.Cancelled]


class Manager:
    """A context manager of asyncio that notes what happens to it."""

    def __init__(self, *, suppresses: bool = False) -> None:
        self.events = list[object]()
        self.tasks = set[object]()
        self._suppresses = suppresses

    async def __aenter__(self) -> str:
        self.tasks.add(asyncio.current_task())
        await asyncio.sleep(0)
        return "value"

    async def __aexit__(self, kind: type[BaseException] | None, _error: object, _traceback: object) -> bool:
        self.tasks.add(asyncio.current_task())
        self.events.append(kind)
        await asyncio.sleep(0.01)
        self.events.append("closed")
        return self._suppresses


@on_both_loops
async def test_one_asyncio_task_enters_and_leaves_a_manager() -> None:
    manager = Manager()
    async with to_asyncio.open(manager) as value:
        assert value == "value"
    assert manager.events == [None, "closed"]
    assert len(manager.tasks) == 1


@on_both_loops
async def test_a_manager_sees_the_exception_of_its_block_and_may_suppress_it() -> None:
    with pytest.raises(KeyError):
        async with to_asyncio.open(Manager):
            raise KeyError("mine")
    suppressing = Manager(suppresses=True)
    async with to_asyncio.open(suppressing):
        raise KeyError("mine")
    assert suppressing.events == [KeyError, "closed"]


@pytest.mark.parametrize("suppresses", [False, True])
@on_both_loops
async def test_a_cancel_of_its_block_cancels_the_task_of_a_manager_which_cannot_suppress_it(suppresses: bool) -> None:
    manager = Manager(suppresses=suppresses)
    with trio.move_on_after(0.02) as scope:
        async with to_asyncio.open(manager):
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert manager.events == [asyncio.CancelledError, "closed"]


@on_both_loops
async def test_a_manager_that_fails_to_open_raises_in_front_of_the_block() -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        raise KeyError("closed")
        yield

    with pytest.raises(KeyError):
        async with to_asyncio.open(broken()):
            raise AssertionError


# bodies


@asynccontextmanager
async def session(ctx: Context[str]) -> AsyncIterator[str]:
    await asyncio.sleep(0)
    yield f"a session of {ctx.state}"
    await asyncio.sleep(0)


async def name() -> str:
    await asyncio.sleep(0)
    return "a name"


def server_of(*tools: Callable[..., Awaitable[object]]) -> Server:
    """A server with these tools, which await asyncio."""
    server = Server("bodies", asyncio=True)
    for each in tools:
        server.add_tool(each)
    return server


def everything() -> Server:
    """A server all of whose async functions await asyncio."""

    @asynccontextmanager
    async def lifespan(_server: Server) -> AsyncIterator[str]:
        await asyncio.sleep(0)
        yield "a pool"
        await asyncio.sleep(0)

    server = Server("everything", asyncio=True, lifespan=lifespan)

    @server.tool
    async def add(numbers: list[int], ctx: Context[str]) -> int:
        """Add numbers."""
        await asyncio.sleep(0)
        await ctx.progress(1)
        await ctx.info("adding")
        return sum(numbers)

    @server.tool
    async def ask(ctx: Context[str]) -> int:
        first = await ctx.elicit.strict("How many?", int)
        await asyncio.sleep(0)
        second = await ctx.elicit("How many more?", int)
        assert second.action == "accept"
        return first + second.content

    @server.tool
    async def branch(ctx: Context[str]) -> list[int]:
        async def child(inner: Context[str]) -> int:
            await asyncio.sleep(0)
            assert asyncio.current_task() is not None
            return await inner.elicit.strict("How many?", int)

        async def step(number: int) -> int:
            await asyncio.sleep(0)
            return number

        both = await ctx.branch_all(child, child)
        return [*both, await ctx.branch_race(child), await ctx.branch(child), await ctx.step("one", step, 1)]

    @server.tool
    async def provided(
        its: Annotated[str, Provide(session)], named: Annotated[str, Provide(name)], ctx: Context[str]
    ) -> str:
        await asyncio.sleep(0)
        return f"{its}, {named}, {ctx.state}"

    @server.tool
    def plain() -> bool:
        return threading.current_thread() is threading.main_thread()

    @server.tool(asyncio=False)
    async def on_trio() -> str:
        await trio.lowlevel.checkpoint()
        return "on Trio"

    @server.prompt
    async def greet(name: str) -> str:
        await asyncio.sleep(0)
        return f"hello {name}"

    @server.complete(prompt="greet", argument="name")
    async def names(value: str) -> list[str]:
        await asyncio.sleep(0)
        return [f"{value}ou"]

    @server.resource("note://one")
    async def note(ctx: Context[str]) -> str:
        await asyncio.sleep(0)
        return str(ctx.state)

    return server


def test_every_function_of_an_asyncio_server_awaits_asyncio(run: Run, mode: str) -> None:
    async def test(client: Client) -> None:
        reports = list[float]()
        added = await client.call_tool("add", {"numbers": [1, 2]}, on_progress=lambda report: reports.append(1))
        assert added.data == 3
        assert reports == [1]
        assert (await client.call_tool("ask")).data == 4
        assert (await client.call_tool("branch")).data == [2, 2, 2, 2, 1]
        assert (await client.call_tool("provided")).text == "a session of a pool, a name, a pool"
        assert (await client.call_tool("plain")).data is False
        assert (await client.call_tool("on_trio")).text == "on Trio"
        assert "hello" in str((await client.get_prompt("greet", {"name": "you"})).messages[0].content)
        assert (await client.complete(PromptReference(name="greet"), "name", "y")).values == ["you"]
        assert "a pool" in str((await client.read_resource("note://one")).contents[0])
        (described, *_) = await client.list_tools()
        assert described.description == "Add numbers."
        assert [*described.input_schema["properties"]] == ["numbers"]

    run(talk(everything(), mode, test))


def test_concurrent_questions_of_a_task_group_are_answered(run: Run, mode: str) -> None:
    async def ask(ctx: Context) -> int:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ctx.elicit.strict("How many?", int)) for _ in range(3)]
        return sum(each.result() for each in asked)

    (result,) = called(run, server_of(ask), mode, "ask")
    assert result.data == 6


class Params(BaseModel):
    what: str


def test_the_three_phases_of_a_handoff_run_on_asyncio(run: Run, mode: str) -> None:
    server = Server("handoff", asyncio=True)

    async def pick(_hold: str, ctx: Context) -> int:
        await asyncio.sleep(0)
        return await ctx.elicit.strict("How many?", int)

    async def book(hold: str, answer: int, _ctx: Context) -> str:
        await asyncio.sleep(0)
        return f"{hold} {answer}"

    @server.handoff_tool(client=pick, after=book)
    async def reserve(what: str) -> str:
        await asyncio.sleep(0)
        return what

    async def before(params: Params, _ctx: Context) -> str:
        return await reserve(params.what)

    built = tool("built").parameters(Params).options(asyncio=True)
    server.add_tool(built.handoff(before=before, client=pick, after=book))

    async def test(client: Client) -> None:
        for name in ("reserve", "built"):
            assert (await client.call_tool(name, {"what": "seats"})).text == "seats 2"

    run(talk(server, mode, test))


def test_a_failing_body_fails_its_call_alone(run: Run, mode: str) -> None:
    async def refuse(ctx: Context) -> None:
        raise ToolError("no seats left")

    async def cancel_itself(ctx: Context) -> None:
        raise asyncio.CancelledError

    async def leave() -> None:
        raise SystemExit(3)

    server = server_of(refuse, cancel_itself, leave, name)
    refused, cancelled, left, fine = called(run, server, mode, "refuse", "cancel_itself", "leave", "name")
    assert refused.text == "no seats left"
    assert [each.is_error for each in (refused, cancelled, left, fine)] == [True, True, True, False]


@pytest.mark.filterwarnings("ignore:coroutine 'ctx.elicit' was never awaited")
def test_an_answer_that_the_body_drops_fails_the_call(run: Run, mode: str) -> None:
    async def drop(ctx: Context) -> str:
        _ = ctx.elicit("Delete?")
        return "deleted"

    async def use(ctx: Context) -> str:
        return "deleted" if ctx.elicit("Delete?") else "kept"

    for result in called(run, server_of(drop, use), mode, "drop", "use"):
        assert result.is_error
        assert "ctx.elicit" in result.text


def test_a_cancelled_call_cancels_its_body_which_reads_the_reason(run: Run, mode: str) -> None:
    server, events = Server("waiting"), list[object]()

    @server.tool(asyncio=True)
    async def wait(ctx: Context) -> None:
        events.append("began")
        try:
            await asyncio.sleep(BOUND)
        except asyncio.CancelledError:
            events.append(ctx.cancel_reason is not None)
            raise

    async def test(client: Client) -> None:
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                await client.call_tool("wait")

            nursery.start_soon(call)
            await until(lambda: bool(events))
            nursery.cancel_scope.cancel()
        await until(lambda: len(events) == 2)
        assert events == ["began", True]

    run(talk(server, mode, test))


def test_branches_as_a_block_are_refused_with_what_to_write(run: Run) -> None:
    async def block(ctx: Context) -> None:
        async with ctx.branches():
            pass

    (result,) = called(run, server_of(block), "modern", "block")
    assert "ctx.branch_all" in result.text


def test_asyncio_is_refused_for_what_is_not_async() -> None:
    server = Server("plain")

    def plain() -> None: ...

    with pytest.raises(TypeError, match="asyncio=True"):
        server.tool(asyncio=True)(plain)
    with pytest.raises(TypeError, match="asyncio"):
        server.tool(asyncio="yes")(plain)
    with pytest.raises(TypeError, match="asyncio"):
        Server("plain", asyncio="yes")


async def _timeout_of_asyncio() -> None:
    async with asyncio.timeout(1):
        await trio.lowlevel.checkpoint()


async def _group_of_asyncio() -> None:
    async with asyncio.TaskGroup():
        await trio.lowlevel.checkpoint()


async def _future_of_asyncio() -> None:
    await asyncio.get_event_loop().create_future()


async def _lock_of_asyncio() -> None:
    lock = asyncio.Lock()
    await lock.acquire()
    await lock.acquire()


async def _nursery() -> None:
    async with trio.open_nursery():
        pass


async def _fail_after() -> None:
    with trio.fail_after(1):
        await asyncio.sleep(0)


async def _trio_sleep() -> None:
    await trio.sleep(0.01)


MISTAKES: dict[str, tuple[bool, Callable[[], Awaitable[object]], str]] = {
    "asyncio in a Trio tool": (False, lambda: asyncio.sleep(0.01), "asyncio=True"),
    "a timeout of asyncio in a Trio tool": (False, _timeout_of_asyncio, "asyncio=True"),
    "a task group of asyncio in a Trio tool": (False, _group_of_asyncio, "asyncio=True"),
    "a future of asyncio in a Trio tool": (False, _future_of_asyncio, "asyncio=True"),
    "a lock of asyncio in a Trio tool": (False, _lock_of_asyncio, "asyncio=True"),
    "trio.sleep in an asyncio tool": (True, _trio_sleep, "runs on asyncio"),
    "a nursery in an asyncio tool": (True, _nursery, "runs on asyncio"),
    "fail_after in an asyncio tool": (True, _fail_after, "runs on asyncio"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_code_of_the_other_loop_fails_with_what_to_write(run: Run, mistake: str) -> None:
    on_asyncio, function, advice = MISTAKES[mistake]
    server = Server("mistaken", options=ServiceOptions(tell_errors=True))

    @server.tool(asyncio=on_asyncio)
    async def mistaken() -> None:
        await function()

    (result,) = called(run, server, "modern", "mistaken")
    assert advice in result.text


def test_a_trio_tool_in_an_asyncio_program_that_calls_asyncio_run_fails_with_what_to_write() -> None:
    async def mistaken() -> None:
        waiting = asyncio.sleep(0)
        try:
            asyncio.run(waiting)
        finally:
            waiting.close()

    (result,) = called(in_program, offering(mistaken), "modern", "mistaken")
    assert "to_asyncio.run" in result.text


@on_both_loops
async def test_authenticate_and_routes_of_an_asyncio_server_run_on_asyncio() -> None:
    async def authenticate(headers: object) -> str:
        await asyncio.sleep(0)
        return "me"

    server = Server("http", asyncio=True, http=HttpOptions(authenticate=authenticate))

    @server.route("/hook")
    async def hook(_request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0)
        return HttpResponse(b"done")

    app = asgi_app(server)
    async with app.lifespan(), AsyncClient(transport=ASGITransport(app), base_url="http://localhost") as http:
        assert (await http.get("/hook")).content == b"done"
        assert (await app.principal_of({})) == "me"
    given = asgi_app(Server("given", asyncio=True), authenticate=authenticate)
    assert (await given.principal_of({})) == "me"
