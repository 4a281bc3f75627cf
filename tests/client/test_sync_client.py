"""The client for code without `async`."""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest
import trio
import trio.lowlevel

from trio_mcp import Client, Context, Disconnected, PeerError, RequestTimeout, Server, SyncClient, accept
from trio_mcp.types import ElicitRequestFormParams, ElicitResult, PromptReference

VISITOR: ContextVar[str] = ContextVar("VISITOR", default="nobody")
BOUND = 20.0

NOT_SYNC = {"listen", "subscribe", "unsubscribe", "roots_changed", "start_tool", "task", "tasks", "new_channel"}
"""What is only useful beside something else that runs."""
OF_CLIENT_ONLY = {"capabilities", "target", "transport_options", "open", "aclose", "connect"}


def shop() -> Server:
    server = Server("shop", instructions="Ask")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Which seat?", str)
        return f"{answer.content}"

    @server.tool
    async def wait() -> None:
        await trio.sleep_forever()

    @server.prompt
    async def greet(name: str) -> str:
        return f"hello {name}"

    @server.complete(prompt="greet", argument="name")
    async def names(value: str) -> list[str]:
        return [f"{value}ou"]

    @server.resource("note://one")
    async def note() -> str:
        return "a note"

    return server


def open_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if "SyncClient" in thread.name}


def test_requests_block_until_they_have_their_results(mode: str) -> None:
    with SyncClient.connect(shop(), mode=mode) as client:
        assert client.call_tool("echo", {"text": "hi"}).text == "hi"
        assert client.call_tool("echo", {"text": "hi"}, returns=str) == "hi"
        assert len(client.get_prompt("greet", {"name": "you"}).messages) == 1
        assert len(client.read_resource("note://one").contents) == 1
        assert client.complete(PromptReference(name="greet"), "name", "y").values == ["you"]
        assert [tool.name for tool in client.list_tools()] == ["echo", "ask", "wait"]
        assert [prompt.name for prompt in client.list_prompts()] == ["greet"]
        assert [resource.name for resource in client.list_resources()] == ["note"]
        assert client.list_resource_templates() == []
        client.ping()
        assert client.is_open
        assert client.instructions == "Ask"
        assert client.server_info is not None
        assert client.server_capabilities.tools is not None
        assert client.protocol_version in repr(client)
    assert not client.is_open
    assert open_threads() == set()


def test_a_handler_is_called_in_the_thread_of_the_client_and_sees_the_context_of_the_caller() -> None:
    seen = list[object]()

    async def on_elicit(_asked: ElicitRequestFormParams) -> ElicitResult:
        await trio.lowlevel.checkpoint()
        seen.append((VISITOR.get(), threading.current_thread().name))
        return accept(value="12A")

    token = VISITOR.set("me")
    with SyncClient.connect(shop(), mode="modern", on_elicit=on_elicit) as client:
        assert client.call_tool("ask").text == "12A"
    VISITOR.reset(token)
    assert seen == [("me", "trio_mcp SyncClient")]


def test_errors_and_timeouts_are_those_of_the_client(mode: str) -> None:
    with SyncClient.connect(shop(), mode=mode) as client:
        with pytest.raises(PeerError):
            client.read_resource("note://none")
        with pytest.raises(RequestTimeout):
            client.call_tool("wait", timeout=0.05)
        with pytest.raises(TypeError):
            client.call_tool("echo", {"text": "x"}, nonsense=1)  # type: ignore[call-overload]
        assert client.call_tool("echo", {"text": "on"}).text == "on"


def test_several_threads_may_call_at_once() -> None:
    results = list[str]()

    def call(number: int) -> None:
        results.append(client.call_tool("echo", {"text": str(number)}).text)

    with SyncClient.connect(shop()) as client:
        threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND)
    assert sorted(results) == [str(number) for number in range(8)]


def test_an_interrupt_cancels_the_call_that_waits() -> None:
    server, cancelled = shop(), threading.Event()

    @server.tool
    async def interrupt() -> None:
        # As a terminal does: to the main thread, which waits for a lock.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with SyncClient.connect(server) as client:
            with pytest.raises(KeyboardInterrupt):
                client.call_tool("interrupt")
            assert cancelled.wait(BOUND)
            assert client.call_tool("echo", {"text": "on"}).text == "on"
    finally:
        signal.signal(signal.SIGINT, earlier)


def test_an_interrupt_before_the_call_has_reached_the_thread_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    with SyncClient.connect(shop()) as client, ThreadPoolExecutor(1) as threads:
        with monkeypatch.context() as patch:
            patch.setattr(trio.from_thread, "run", interrupted)
            call = threads.submit(client.list_tools)
            assert isinstance(call.exception(timeout=BOUND / 4), KeyboardInterrupt)
        assert client.list_tools()


def test_a_server_that_cannot_be_reached_leaves_no_thread() -> None:
    with pytest.raises(Disconnected):
        SyncClient.connect("http://127.0.0.1:9/mcp").open()
    assert open_threads() == set()


def test_what_the_block_raises_leaves_it_and_closes_the_client() -> None:
    with pytest.raises(KeyError), SyncClient.connect(shop()) as client:
        raise KeyError("mine")
    with pytest.raises(Disconnected):
        client.ping()
    client.close()
    with pytest.raises(RuntimeError):
        client.open()


def test_a_client_that_is_not_open_is_disconnected() -> None:
    client = SyncClient.connect(shop())
    client.close()
    with pytest.raises(Disconnected):
        client.ping()


async def test_on_trio_the_error_names_client() -> None:
    with pytest.raises(RuntimeError, match="use Client"):
        SyncClient.connect(shop()).open()


def test_in_an_asyncio_loop_it_blocks_and_works() -> None:
    async def main() -> str:
        async with Client.connect(shop()):
            with SyncClient.connect(shop()) as client:
                return client.call_tool("echo", {"text": "hi"}).text

    assert asyncio.run(main()) == "hi"


def test_its_methods_are_those_of_the_client_with_the_same_parameters() -> None:
    def public(owner: type) -> set[str]:
        return {name for name in dir(owner) if not name.startswith("_")}

    iterators = {name for name in public(Client) if name.startswith("iter_")}
    assert public(SyncClient) - {"open", "close", "connect"} == public(Client) - NOT_SYNC - OF_CLIENT_ONLY - iterators
    for name in public(SyncClient) & public(Client) - {"open", "connect"}:
        ours, theirs = inspect.getattr_static(SyncClient, name), inspect.getattr_static(Client, name)
        assert isinstance(ours, property) == isinstance(theirs, property)
        if not isinstance(ours, property):
            assert inspect.signature(ours) == inspect.signature(theirs)
