"""A context for a plain function: that of a real call, whose questions a script answers. Each rule in both eras."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
from naming import naming
from trio.testing import MockClock

from trio_mcp import CallHandler, CallRequest, CallResult, Context, Elicit, Server
from trio_mcp.errors import Disconnected
from trio_mcp.testing import Disconnect, MockClient, SecondWorker, make_context

NAME = Elicit("name", str)


async def confirm(ctx: Context, what: str) -> bool:
    """A function of a server that is no tool."""
    answer = await ctx.elicit(f"{what}?", bool)
    return answer.action == "accept" and answer.content


async def test_a_function_that_takes_a_context_is_called(mode: str) -> None:
    async with make_context(elicits=[True, False], samples=["so"], era=mode) as ctx:
        assert await confirm(ctx, "Sure")
        assert not await confirm(ctx, "Really")
        assert (await ctx.sample("?")).text == "so"
        assert [message.role for message in ctx.messages] == ["user", "assistant"]


async def test_branches_steps_and_reports_work(mode: str) -> None:
    client = MockClient(elicits=[True], era=mode)
    async with client.context() as ctx:
        assert await ctx.step("once", lambda: 3) == 3
        assert await ctx.branch(lambda child: confirm(child, "Branch"))
        await ctx.progress(1)
    assert [question.message for question in client.questions] == ["Branch?"]
    assert [report.progress for report in client.progress] == [1]


async def test_the_block_sees_the_request_of_its_era(mode: str) -> None:
    async with make_context(era=mode, principal="ann") as ctx:
        assert ctx.request.principal == "ann"
        assert (ctx.request.protocol_version == "2026-07-28") == (mode == "modern")


async def test_a_declared_question_is_asked_by_its_key(mode: str) -> None:
    client = MockClient(elicits=["Ann"], era=mode)
    async with client.context(declares=[NAME]) as ctx:
        await ctx.elicit("Who?", NAME)
    assert client.questions[0].key == "name"


async def test_an_undeclared_question_is_an_error(mode: str) -> None:
    with pytest.raises(LookupError):
        async with make_context(elicits=["Ann"], era=mode) as ctx:
            await ctx.elicit("Who?", NAME)


async def test_a_script_that_runs_out_ends_the_block_with_an_assertion_error(mode: str) -> None:
    with pytest.raises(AssertionError, match="Sure"):
        async with make_context(era=mode) as ctx:
            await confirm(ctx, "Sure")


async def test_a_script_that_was_not_used_up_is_an_assertion_error(mode: str) -> None:
    with pytest.raises(AssertionError, match="answer 1 of elicits"):
        async with make_context(elicits=[True], era=mode):
            pass


async def test_an_error_of_the_block_is_raised_as_itself(mode: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with make_context(elicits=[True], era=mode):
            raise ZeroDivisionError


async def test_a_group_of_the_block_is_raised_as_itself(mode: str) -> None:
    with pytest.raises(ExceptionGroup) as group:
        async with make_context(era=mode):
            raise ExceptionGroup("mine", [ZeroDivisionError()])
    assert group.value.message == "mine"


async def test_a_lost_connection_ends_the_block(mode: str) -> None:
    with pytest.raises(Disconnected):
        async with make_context(elicits=[Disconnect()], era=mode) as ctx:
            await confirm(ctx, "Sure")


async def test_a_cancel_ends_the_call_and_the_block(mode: str, autojump_clock: MockClock) -> None:
    with trio.move_on_after(5) as scope:
        async with make_context(era=mode):
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_context_has_one_worker() -> None:
    with pytest.raises(AssertionError, match="ended"):
        async with make_context(elicits=[SecondWorker(True)]) as ctx:
            await confirm(ctx, "Sure")


async def test_the_context_is_over_after_the_block(mode: str) -> None:
    async with make_context(era=mode) as ctx:
        pass
    with pytest.raises(Disconnected):
        await confirm(ctx, "Sure")


# state and server


@dataclass
class State:
    name: str
    events: list[str] = field(default_factory=list)


async def name_of(ctx: Context[State]) -> str:
    return ctx.state.name


def stateful(state: State) -> Server:
    """A server whose lifespan yields this state."""

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[State]:
        state.events.append("entered")
        yield state
        state.events.append("left")

    server = Server("stateful", lifespan=lifespan)

    @server.resource("test://greeting")
    def greeting() -> str:
        return "hello"

    return server


async def test_the_context_has_the_given_state(mode: str) -> None:
    async with make_context(state=State("given"), era=mode) as ctx:
        assert await name_of(ctx) == "given"
        assert await ctx.branch(name_of) == "given"


async def test_without_a_state_it_is_none(mode: str) -> None:
    async with make_context(era=mode) as ctx:
        assert ctx.state is None


async def test_the_context_of_a_server_has_its_lifespan_and_its_resources(mode: str) -> None:
    state = State("of the lifespan")
    server = stateful(state)
    async with make_context(server=server, era=mode) as ctx:
        assert ctx.state is state
        assert state.events == ["entered"]
        (contents,) = (await ctx.read_resource("test://greeting")).contents
        assert contents.uri == "test://greeting"
    assert state.events == ["entered", "left"]
    assert server.tools == (), "the server has no more tools than before"


async def test_a_state_replaces_the_lifespan_of_the_server(mode: str) -> None:
    state = State("of the lifespan")
    async with make_context(server=stateful(state), state=State("given"), era=mode) as ctx:
        assert await name_of(ctx) == "given"
        await ctx.read_resource("test://greeting")
    assert state.events == []


async def test_the_middleware_of_the_server_runs_around_the_block(mode: str) -> None:
    server, seen = Server("watched"), list[str]()

    @server.middleware
    async def watch(call: CallRequest, handler: CallHandler) -> CallResult:
        seen.append(call.kind)
        return await handler()

    async with make_context(server=server, era=mode):
        assert seen == ["tool"]


async def test_a_lifespan_that_fails_raises_its_exception(mode: str) -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        raise ZeroDivisionError
        yield

    with pytest.raises(ZeroDivisionError):
        async with make_context(server=Server("broken", lifespan=lifespan), era=mode):
            pass


async def test_a_mock_client_keeps_the_record_of_a_context_with_a_state(mode: str) -> None:
    client = MockClient(elicits=[True], era=mode)
    async with client.context(state=State("given")) as ctx:
        assert await confirm(ctx, "Sure")
        assert ctx.state.name == "given"
    assert len(client.questions) == 1


def test_something_else_than_a_server_is_an_error() -> None:
    with pytest.raises(TypeError, match=naming("server", "Server")):
        make_context(server="travel")  # type: ignore[call-overload]
