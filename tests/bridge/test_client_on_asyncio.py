"""The client in asyncio programs: the same names, the same results, and nothing left of it."""

from __future__ import annotations

import asyncio
import random
import signal
import threading
from contextvars import ContextVar

import pytest
import trio
from on_asyncio import BOUND, descriptors, on_asyncio, run, threads, until
from scripted_model import answer, use
from serving import free_port

from trio_mcp import (
    Client,
    ClientGroup,
    Context,
    Disconnected,
    ElicitRouter,
    Server,
    ServerStatus,
    accept,
    list_model_tools,
    run_agent,
)
from trio_mcp.client import Change
from trio_mcp.providers import ScriptedProvider
from trio_mcp.testing import tool_use
from trio_mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    LoggingMessageNotificationParams,
    PromptReference,
)

VISITOR: ContextVar[str] = ContextVar("VISITOR", default="nobody")


class Shop(Server):
    """Has a tool of each kind, and notes which calls were cancelled."""

    def __init__(self) -> None:
        super().__init__("shop")
        self.began = 0
        self.ended = list[str]()

        @self.tool
        async def echo(text: str) -> str:
            return text

        @self.tool
        async def ask(ctx: Context) -> str:
            answer = await ctx.elicit("Which seat?", str)
            return f"{answer.action} {answer.content}"

        @self.tool
        async def sample(ctx: Context) -> str:
            return (await ctx.sample("Say it", max_tokens=10)).text

        @self.tool
        async def wait() -> None:
            self.began += 1
            try:
                await trio.sleep_forever()
            finally:
                self.ended.append("wait")

        @self.tool
        async def report(ctx: Context) -> None:
            await ctx.progress(1, total=2)
            await ctx.info("half")

        @self.prompt
        async def greet(name: str) -> str:
            return f"hello {name}"

        @self.complete(prompt="greet", argument="name")
        async def names(value: str) -> list[str]:
            return ["you"]

        @self.resource("note://one")
        async def note() -> str:
            return "a note"


@on_asyncio
async def test_requests_have_the_results_that_they_have_on_trio(mode: str) -> None:
    async with Client.connect(Shop(), mode=mode) as client:
        assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"
        assert await client.call_tool("echo", {"text": "hi"}, returns=str) == "hi"
        assert len((await client.get_prompt("greet", {"name": "you"})).messages) == 1
        assert len((await client.read_resource("note://one")).contents) == 1
        assert [tool.name for tool in await client.list_tools()] == ["echo", "ask", "sample", "wait", "report"]
        assert [prompt.name async for prompt in client.iter_prompts()] == ["greet"]
        assert [str(resource.uri) for resource in await client.list_resources()] == ["note://one"]
        assert await client.list_resource_templates() == []
        assert (await client.complete(PromptReference(name="greet"), "name", "y")).values == ["you"]
        await client.ping()


def test_concurrent_calls_of_a_task_group_are_answered(mode: str) -> None:
    async def main() -> list[str]:
        async with Client.connect(Shop(), mode=mode) as client, asyncio.TaskGroup() as group:
            calls = [group.create_task(client.call_tool("echo", {"text": str(number)})) for number in range(20)]
        return [call.result().text for call in calls]

    assert run(main) == [str(number) for number in range(20)]


def test_a_handler_is_a_task_of_the_loop_and_sees_the_context_of_the_program(mode: str) -> None:
    seen = list[object]()

    async def on_elicit(_asked: ElicitRequestFormParams) -> ElicitResult:
        await asyncio.sleep(0)
        seen.append((asyncio.get_running_loop(), VISITOR.get(), trio.lowlevel.in_trio_task()))
        return accept(value="12A")

    async def main() -> str:
        VISITOR.set("me")
        async with Client.connect(Shop(), mode=mode, on_elicit=on_elicit) as client:
            text = (await client.call_tool("ask")).text
        assert seen == [(asyncio.get_running_loop(), "me", False)]
        return text

    assert run(main) == "accept 12A"


@on_asyncio
async def test_a_router_and_the_consent_to_a_sample_may_await_asyncio(mode: str) -> None:
    options = {
        "on_elicit": ElicitRouter(default=choose),
        "sampling": ScriptedProvider(["said"]),
        "approve_sample": approve,
    }
    async with Client.connect(Shop(), mode=mode, **options) as client:
        assert (await client.call_tool("ask")).text == "accept 12A"
        assert (await client.call_tool("sample")).text == "said"


class OwnProvider:
    """A provider that awaits asyncio."""

    async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        await asyncio.sleep(0)
        return answer("mine")


@on_asyncio
async def test_a_provider_of_the_program_runs_on_asyncio(mode: str) -> None:
    async with Client.connect(Shop(), mode=mode, sampling=OwnProvider()) as client:
        assert (await client.call_tool("sample")).text == "mine"
        assert (await run_agent(OwnProvider(), "hello", client)).text == "mine"


@on_asyncio
async def test_plain_callbacks_are_called_in_the_thread_of_the_loop(mode: str) -> None:
    threads = set[threading.Thread]()
    logs = list[LoggingMessageNotificationParams]()

    def on_log(message: LoggingMessageNotificationParams) -> None:
        threads.add(threading.current_thread())
        logs.append(message)

    async with Client.connect(Shop(), mode=mode, on_log=on_log) as client:
        await client.call_tool("report", on_progress=lambda _report: threads.add(threading.current_thread()))
    assert threads == {threading.current_thread()}
    assert [log.data for log in logs] == ["half"]


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
@on_asyncio
async def test_what_a_handler_raises_reaches_the_call_and_not_the_loop(kind: type[BaseException]) -> None:
    async def on_elicit(_asked: ElicitRequestFormParams) -> ElicitResult:
        raise kind("broken")

    async with Client.connect(Shop(), mode="modern", on_elicit=on_elicit) as client:
        with pytest.raises(kind, match="broken"):
            await client.call_tool("ask")
        assert (await client.call_tool("echo", {"text": "on"})).text == "on"


@on_asyncio
async def test_a_handler_that_raises_a_cancel_without_being_cancelled_fails_its_call() -> None:
    async def on_elicit(_asked: ElicitRequestFormParams) -> ElicitResult:
        raise asyncio.CancelledError

    async with Client.connect(Shop(), mode="modern", on_elicit=on_elicit) as client:
        with pytest.raises(RuntimeError, match="cancelled by asyncio"):
            await client.call_tool("ask")


async def choose(_asked: ElicitRequestFormParams) -> ElicitResult:
    """Choose a seat, after a turn of asyncio."""
    await asyncio.sleep(0)
    return accept(value="12A")


async def approve(*_asked: object) -> bool:
    await asyncio.sleep(0)
    return True


# cancels
@on_asyncio
async def test_a_timeout_of_asyncio_cancels_the_call_on_the_server(mode: str) -> None:
    shop = Shop()

    async with Client.connect(shop, mode=mode) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.call_tool("wait")
        assert (await client.call_tool("echo", {"text": "on"})).text == "on"
        await until(lambda: shop.ended == ["wait"])


@on_asyncio
async def test_a_cancelled_call_raises_the_cancel_and_ends_its_handler(mode: str) -> None:
    events = list[str]()

    async def on_elicit(_asked: ElicitRequestFormParams) -> ElicitResult:
        asking.set()
        try:
            await asyncio.sleep(BOUND)
        except asyncio.CancelledError:
            events.append("handler")
            raise
        raise AssertionError

    asking = asyncio.Event()

    async with Client.connect(Shop(), mode=mode, on_elicit=on_elicit) as client:
        call = asyncio.create_task(client.call_tool("ask"))
        await asking.wait()
        call.cancel("enough")
        with pytest.raises(asyncio.CancelledError) as caught:
            await call
        assert caught.value.args == ("enough",)
    assert events == ["handler"]


@on_asyncio
async def test_a_client_whose_opening_is_cancelled_is_closed() -> None:
    class Silent:
        async def serve_channel(self, _channel: object) -> None:
            opening.set()
            await trio.sleep_forever()

    opening = asyncio.Event()

    client = Client.connect(Silent())
    task = asyncio.create_task(client.open())
    await opening.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not client.is_open


@on_asyncio
async def test_a_client_opened_in_one_task_may_be_closed_in_another() -> None:
    client = await asyncio.create_task(Client.connect(Shop()).open())
    assert client.is_open
    await asyncio.create_task(client.aclose())
    await client.aclose()
    with pytest.raises(Disconnected):
        await client.ping()


def test_a_program_that_ends_with_an_open_client_leaves_nothing() -> None:
    shop = Shop()

    async def main() -> None:
        client = await Client.connect(shop).open()
        task = asyncio.create_task(client.call_tool("wait"))
        await until(lambda: shop.began > 0)
        del task

    async def without_check() -> None:
        await asyncio.wait_for(main(), BOUND)

    before = descriptors()
    asyncio.run(without_check())
    assert shop.ended == ["wait"]
    assert descriptors() == before
    assert threads() == []


@on_asyncio
async def test_a_client_that_was_never_opened_is_disconnected() -> None:
    with pytest.raises(Disconnected):
        await Client.connect(Shop()).ping()


async def cancelled_after(client: Client, name: str, delay: float) -> None:
    """Call a tool, and cancel the call after a time."""
    call = asyncio.create_task(client.call_tool(name, {"text": "x"} if name == "echo" else None))
    asyncio.get_running_loop().call_later(delay, call.cancel)
    try:
        await call
    except asyncio.CancelledError:
        assert not asyncio.current_task().cancelling()


async def cancel_a_thousand(client: Client, tools: list[str], seed: str) -> None:
    """Cancel calls of these tools at random moments; the client is usable afterwards."""
    chance = random.Random(seed)
    for _ in range(50):
        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                delay = chance.choice([0, chance.random() / 50])
                group.create_task(cancelled_after(client, chance.choice(tools), delay))
    assert (await client.call_tool("echo", {"text": "on"})).text == "on"


@on_asyncio
async def test_a_thousand_cancels_at_random_moments_leave_no_running_call_and_no_task(mode: str) -> None:
    shop = Shop()

    async with Client.connect(shop, mode=mode, on_elicit=choose) as client:
        await cancel_a_thousand(client, ["echo", "ask", "wait"], f"cancels {mode}")
        await until(lambda: len(shop.ended) == shop.began)
    assert len(shop.ended) == shop.began > 0


@on_asyncio
async def test_a_thousand_cancels_of_bodies_on_asyncio_leave_no_body_and_no_task(mode: str) -> None:
    server, running = Server("bodies", asyncio=True), list[str]()

    @server.tool
    async def wait(ctx: Context) -> None:
        running.append("wait")
        try:
            await ctx.info("waiting")
            await asyncio.sleep(BOUND)
        finally:
            running.remove("wait")

    @server.tool
    async def echo(text: str) -> str:
        await asyncio.sleep(0)
        return text

    async with Client.connect(server, mode=mode) as client:
        await cancel_a_thousand(client, ["echo", "wait"], f"bodies {mode}")
        await until(lambda: not running)


# the rest of the API


def test_changes_are_iterated_over_on_asyncio(mode: str) -> None:
    shop = Shop()

    async def main() -> Change:
        async with Client.connect(shop, mode=mode) as client, client.listen(tools=True) as changes:
            assert changes.honoured.tools_list_changed
            waiting = asyncio.create_task(anext(aiter(changes)))
            await asyncio.sleep(0)

            @shop.tool
            async def another() -> None: ...

            return await waiting

    assert run(main).kind == "tools"


@on_asyncio
async def test_a_task_is_started_and_followed_on_asyncio() -> None:
    server = Server("slow")

    @server.tool(task=True)
    async def slow() -> str:
        return "done"

    async with Client.connect(server, mode="modern") as client:
        task = await client.start_tool("slow", returns=str)
        assert await task.result() == "done"
        assert [change.status async for change in task][-1:] == ["completed"]
        assert (await task.status()).status == "completed"


@on_asyncio
async def test_a_group_calls_its_servers_and_its_handlers_run_on_asyncio(mode: str) -> None:
    async with ClientGroup({"a": Shop(), "b": Shop()}, mode=mode, on_elicit=choose) as group:
        assert len(await group.list_tools()) == 10
        assert (await group.call_tool("a_echo", {"text": "hi"})).text == "hi"
        assert (await group.call_tool("b_ask")).text == "accept 12A"
        assert (await group["a"].call_tool("ask")).text == "accept 12A"
        assert group.states["a"].status is ServerStatus.CONNECTED
        assert (await group.wait_connected("b")).is_open


@on_asyncio
async def test_an_agent_asks_its_approval_on_asyncio() -> None:
    async with Client.connect(Shop()) as client:
        provider = ScriptedProvider([tool_use("echo", text="hi"), "done"])
        result = await run_agent(provider, "go", client, approve=approve)
        assert result.text == "done"
        tools = await list_model_tools(client, approve=approve)
        (found,) = await tools.run([use("echo", text="hi")])
        assert not found.is_error


# wrong use


@on_asyncio
async def test_a_client_used_in_another_loop_is_refused_by_name() -> None:
    async with Client.connect(Shop()) as client:
        group = await ClientGroup({"a": Shop()}).open()

        async def elsewhere(call: object) -> str:
            with pytest.raises(RuntimeError) as caught:
                await call()
            return str(caught.value)

        for call in (client.ping, client.list_tools, client.aclose, group.list_tools, group.aclose):
            text = await asyncio.to_thread(asyncio.run, elsewhere(call))
            assert "was opened in another event loop" in text
        await group.aclose()
        assert (await client.call_tool("echo", {"text": "on"})).text == "on"


@on_asyncio
async def test_trio_run_beside_a_guest_is_refused_by_trio() -> None:
    async with Client.connect(Shop()):
        with pytest.raises(RuntimeError, match="run\\(\\) from inside a run"):
            trio.run(trio.sleep, 0)


# serving


@on_asyncio
async def test_a_server_is_served_beside_an_asyncio_program_whose_signals_stay_its_own() -> None:
    asked = list[str]()

    async def headers() -> dict[str, str]:
        await asyncio.sleep(0)
        asked.append("headers")
        return {"x-name": "value"}

    interrupt = signal.getsignal(signal.SIGINT)
    port = free_port()
    serving = asyncio.create_task(Shop().serve("http", port=port))
    async with Client.connect(f"http://127.0.0.1:{port}/mcp", headers=headers) as client:
        assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"
        assert signal.getsignal(signal.SIGINT) is interrupt
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert asked
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
