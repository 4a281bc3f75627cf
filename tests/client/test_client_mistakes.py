"""Mistakes in what a program passes to a client are refused at once, in its own words, and nothing was started."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import trio
from naming import naming
from trio.testing import wait_all_tasks_blocked
from wire_terms import MODERN, NEWEST_LEGACY

from trio_mcp import Client, Disconnected, PeerError, Server
from trio_mcp.client import Changes, ClientKeywords, ResponseCache
from trio_mcp.session import find_transport

BOUND = 10
URL = "http://localhost:8000/mcp"
WS = "ws://localhost:8000/mcp"
COMMAND = ["no-such-command"]


async def nobody_awaits_this(_value: object) -> None: ...


class AsyncCallable:
    async def __call__(self, _value: object) -> None: ...


def offering() -> Server:
    server = Server("offering", version="1")

    @server.tool
    async def greet(name: str) -> str:
        return f"Hello {name}"

    return server


@pytest.fixture(params=["modern", "legacy"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with Client.connect(offering(), mode=request.param) as client:
        yield client


# connecting

TARGETS: list[tuple[object, list[str]]] = [
    ("python notes.py", ["['python', 'notes.py']"]),
    ("python 'my notes.py'", ["['python', 'my notes.py']"]),
    ("it's", ["list of arguments"]),
    ("no-such-program", ["list of arguments", "['python', 'server.py']"]),
    ("", ["['python', 'server.py']"]),
    ("localhost:8000/mcp", ["'http://localhost:8000/mcp'"]),
    ("gopher://localhost", ["URL"]),
    (Path("serve"), ["['serve']"]),
    ([], ["empty"]),
    (["python", 3], ["3", "int"]),
    (b"http://localhost", ["bytes"]),
    (Server, ["class", "Server(...)"]),
    (None, ["NoneType"]),
]


@pytest.mark.parametrize("target", ["notes.py", "notes.py:server", Path("folder/notes.py")], ids=str)
def test_a_python_file_that_is_not_there_is_refused_before_anything_is_started(target: str | Path) -> None:
    with pytest.raises(ValueError, match=r"there is no file '\S*notes\.py'"):
        Client.connect(target)


@pytest.mark.parametrize(("target", "names"), TARGETS, ids=str)
def test_what_cannot_be_connected_to_is_refused_with_what_can(target: Any, names: list[str]) -> None:
    with pytest.raises(TypeError, match=naming(*names)):
        Client.connect(target)


OPTIONS: list[tuple[object, dict[str, Any], type[Exception], list[str]]] = [
    (URL, {"mode": "newest"}, ValueError, ["mode", "'newest'", "auto", "modern", "legacy", "2026-07-28"]),
    (URL, {"mode": None}, ValueError, ["mode", "None", "auto"]),
    (URL, {"log_level": "warn"}, ValueError, ["log_level", "debug", "info", "notice", "warning"]),
    (URL, {"cache": True}, TypeError, ["cache", "cache=ResponseCache()", "True"]),
    (URL, {"cache": ResponseCache}, TypeError, ["cache", "cache=ResponseCache()"]),
    (URL, {"probe_timeout": -1}, ValueError, ["probe_timeout", "-1"]),
    (URL, {"probe_timeout": None}, TypeError, ["probe_timeout", "None"]),
    (URL, {"connect_timeout": -1}, ValueError, ["connect_timeout", "-1"]),
    (URL, {"headers": "authorization"}, TypeError, ["headers"]),
    (URL, {"headers": {"x": 1}}, TypeError, ["headers", "'x'", "int"]),
    (URL, {"env": {}}, TypeError, ["env=", "stdio", "http", "headers"]),
    (COMMAND, {"headers": {}}, TypeError, ["headers=", "http", "websocket", "stdio", "env"]),
    (URL, {"headers": {"a b": "c"}}, ValueError, ["headers", "'a b'"]),
    (WS, {"headers": {"a": "b\nc"}}, ValueError, ["headers", "'a'"]),
    (URL, {"max_message": -1}, ValueError, ["max_message", "-1"]),
    (WS, {"max_message": "3"}, TypeError, ["max_message", "'3'"]),
    (COMMAND, {"max_line": 0}, ValueError, ["max_line", "0"]),
    (WS, {"ping_interval": 0}, ValueError, ["ping_interval", "math.inf"]),
    (WS, {"tls": True}, TypeError, ["tls", "ssl.SSLContext", "None", "True"]),
    ("http://", {}, ValueError, ["'http://'", "'http://127.0.0.1:8000/mcp'"]),
    ("wss://:80/mcp", {}, ValueError, ["'wss://127.0.0.1:8000/mcp'"]),
    ("http://localhost:0/mcp", {}, ValueError, ["http://localhost:0/mcp", "port"]),
    ("http://localhost:99999/mcp", {}, ValueError, ["0-65535"]),
    ("ws://localhost:http/mcp", {}, ValueError, ["'ws://localhost:http/mcp'", "URL"]),
    (COMMAND, {"env": {"HOME": Path()}}, TypeError, ["env", "'HOME'", "PosixPath"]),
    (COMMAND, {"shutdown_grace": -1}, ValueError, ["shutdown_grace", "-1"]),
    (offering(), {"hedaers": {}}, TypeError, ["hedaers=", "memory"]),
    (URL, {"hedaers": {}}, TypeError, ["hedaers=", "'headers'"]),
    (URL, {"on_elict": len}, TypeError, ["on_elict=", "'on_elicit'"]),
    (offering(), {"raise_exception": True}, TypeError, ["raise_exception=", "'raise_exceptions'"]),
    (URL, {"on_log": nobody_awaits_this}, TypeError, ["on_log", "async"]),
    (URL, {"on_log": functools.partial(nobody_awaits_this)}, TypeError, ["on_log", "async"]),
    (URL, {"on_change": AsyncCallable()}, TypeError, ["on_change", "async"]),
    (URL, {"on_change": 5}, TypeError, ["on_change", "5"]),
    (URL, {"on_elicit": "yes"}, TypeError, ["on_elicit", "'yes'"]),
]


@pytest.mark.parametrize(("target", "options", "kind", "names"), OPTIONS)
def test_a_wrong_option_is_named(target: Any, options: dict[str, Any], kind: type[Exception], names: list[str]) -> None:
    with pytest.raises(kind, match=naming(*names)):
        Client.connect(target, **options)


@pytest.mark.parametrize("arguments", [(), (URL,), (offering(),), (offering(), 3)], ids=str)
def test_a_client_is_made_by_connect(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=naming("Client.connect")):
        Client(*arguments)
    with pytest.raises(TypeError, match=naming("Client.connect")):
        Client(*arguments, on_elicit=len)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["call_tool", "get_prompt", "read_resource"])
async def test_a_misspelt_option_of_a_call_is_named_with_the_nearest(client: Client, method: str) -> None:
    options: Any = {"timout": 3}
    with pytest.raises(TypeError, match=naming(f"{method}()", "'timout'", "'timeout'")):
        await getattr(client, method)("greet", **options)


async def test_the_options_that_only_call_tool_has_are_suggested_for_it(client: Client) -> None:
    options: Any = {"return": int}
    with pytest.raises(TypeError, match=naming("'return'", "'returns'")):
        await client.call_tool("greet", {"name": "Ann"}, **options)


@pytest.mark.parametrize("method", ["call_tool", "get_prompt", "start_tool"])
async def test_arguments_as_keywords_are_answered_with_the_mapping_to_write(client: Client, method: str) -> None:
    arguments: Any = {"subject": "x", "body": "y"}
    with pytest.raises(TypeError, match=naming("'subject'", f"{method}('greet', {{'subject': ..., 'body': ...}})")):
        await getattr(client, method)("greet", **arguments)


async def test_an_argument_that_is_called_nearly_as_an_option_is_both(client: Client) -> None:
    arguments: Any = {"time": "12:00"}
    with pytest.raises(TypeError, match=naming("'time'", "'timeout'", "call_tool('greet', {'time': ...})")):
        await client.call_tool("greet", **arguments)


def test_a_header_that_is_refused_is_not_shown() -> None:
    headers: Any = {"authorization": b"Bearer secret"}
    with pytest.raises(TypeError) as caught:
        Client.connect(URL, headers=headers)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("mode", "version"), [("modern", MODERN), ("legacy", NEWEST_LEGACY)])
async def test_a_mode_may_be_an_era_and_means_its_newest_revision(mode: str, version: str) -> None:
    async with Client.connect(offering(), mode=mode) as client:
        assert client.protocol_version == version


async def test_an_option_of_serving_that_another_transport_has_is_refused_with_how_to_choose_that() -> None:
    with pytest.raises(TypeError, match=naming("port=", "websocket", 'run("http", port=...)')):
        await offering().serve(port=8000)
    with pytest.raises(TypeError, match=naming("prot=", "http", "host, port")):
        await offering().serve("http", prot=8000)


async def test_a_client_is_opened_once() -> None:
    client = Client.connect(offering())
    async with client:
        with pytest.raises(RuntimeError, match=naming("client", "once")):
            await client.open()
        await client.ping()
    with pytest.raises(RuntimeError, match=naming("client", "once")):
        await client.open()


async def test_the_error_of_a_client_that_is_not_open_shows_how_to_open_it() -> None:
    with pytest.raises(Disconnected, match=naming("`async with Client.connect(...)")):
        await Client.connect(offering()).call_tool("greet", {"name": "A"})


def test_the_scheme_of_a_url_is_the_same_in_capitals() -> None:
    Client.connect("HTTP://localhost:8000/mcp")
    Client.connect("WSS://localhost:8000/mcp", ping_interval=3)


# calling


Fails = Callable[[Any], Awaitable[object]]
CALLS: list[tuple[Fails, type[Exception], list[str]]] = [
    (lambda client: client.call_tool("greet", ["a"]), TypeError, ["arguments", "tool", "['a']"]),
    (lambda client: client.call_tool(5), TypeError, ["name", "tool", "5"]),
    (lambda client: client.call_tool("greet", meta="x"), TypeError, ["meta", "'x'"]),
    (lambda client: client.call_tool("greet", max_rounds=-1), ValueError, ["max_rounds", "-1"]),
    (lambda client: client.call_tool("greet", max_rounds="3"), TypeError, ["max_rounds", "'3'"]),
    (lambda client: client.call_tool("greet", idle_timeout=0), ValueError, ["idle_timeout", "0"]),
    (lambda client: client.call_tool("greet", idle_timeout=-1), ValueError, ["idle_timeout", "-1"]),
    (lambda client: client.call_tool("greet", idle_timeout=math.nan), ValueError, ["idle_timeout", "nan"]),
    (lambda client: client.call_tool("greet", idle_timeout="5"), TypeError, ["idle_timeout", "'5'"]),
    (lambda client: client.call_tool("greet", idle_timeout=None), TypeError, ["idle_timeout", "None"]),
    (lambda client: client.call_tool("greet", timeout=-1), ValueError, ["timeout", "-1"]),
    (lambda client: client.call_tool("greet", timeout=None), TypeError, ["timeout", "math.inf"]),
    (lambda client: client.call_tool("greet", on_progress=nobody_awaits_this), TypeError, ["on_progress", "async"]),
    (lambda client: client.get_prompt("poem", on_progress=nobody_awaits_this), TypeError, ["on_progress", "async"]),
    (lambda client: client.read_resource("a://b", on_progress=AsyncCallable()), TypeError, ["on_progress", "async"]),
    (lambda client: client.get_prompt("poem", {"topic": 5}), TypeError, ["prompt", "'topic'", "int"]),
    (lambda client: client.get_prompt("poem", "x"), TypeError, ["arguments", "prompt", "str"]),
    (lambda client: client.read_resource(Path("a")), TypeError, ["URI", "PosixPath"]),
    (lambda client: client.complete("poem", "topic", ""), TypeError, ["PromptReference(name=...)"]),
    (lambda client: client.ping(timeout=-1), ValueError, ["timeout", "-1"]),
    (lambda client: client.list_tools(timeout="3"), TypeError, ["timeout", "'3'"]),
    (lambda client: client.set_log_level("warn"), ValueError, ["level", "debug", "info"]),
    (lambda client: client.iter_tools(timeout=-1), ValueError, ["timeout", "-1"]),
    (lambda client: client.listen(), ValueError, ["listen"]),
    (lambda client: client.listen(uris="notes://index"), TypeError, ["uris", "a list", "'notes://index'"]),
    (lambda client: client.listen(uris=[5]), TypeError, ["uris", "5"]),
]


@pytest.mark.parametrize(("call", "kind", "names"), CALLS)
async def test_a_wrong_argument_is_named_where_it_comes(call: Fails, kind: type[Exception], names: list[str]) -> None:
    async with Client.connect(offering()) as client:
        with pytest.raises(kind, match=naming(*names)):
            await call(client)


async def test_a_list_of_what_the_server_does_not_offer_is_an_error(client: Client) -> None:
    with pytest.raises(PeerError) as caught:
        await client.list_resources()
    assert caught.value.code == -32601


async def test_a_listener_that_is_not_open_says_how_to_open_it(client: Client) -> None:
    changes = client.listen(tools=True)
    assert repr(changes) == "<Changes unopened pending=0>"
    with pytest.raises(RuntimeError, match=naming("`async with`")):
        await anext(changes)
    with pytest.raises(RuntimeError, match=naming("`async with`")):
        _ = changes.honoured


async def test_a_listener_that_was_left_neither_goes_on_nor_opens_again(client: Client) -> None:
    async with client.listen(tools=True) as changes:
        assert changes.honoured.tools_list_changed
    with pytest.raises(RuntimeError, match=naming("ended")):
        async for _ in changes:
            pass
    with pytest.raises(RuntimeError, match=naming("client.listen(...)")):
        await changes.__aenter__()


async def test_who_iterates_when_another_task_leaves_sees_the_end(client: Client) -> None:
    async def iterate(changes: Changes) -> None:
        assert [change async for change in changes] == []

    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery, client.listen(tools=True) as changes:
            nursery.start_soon(iterate, changes)
            await wait_all_tasks_blocked()


@pytest.mark.trio(run=trio.run)
async def test_the_error_omits_the_exit_of_a_process_while_it_is_unknown() -> None:
    command = [sys.executable, "-S", "-c", "import os, time; os.close(1); time.sleep(60)"]
    with trio.fail_after(BOUND), pytest.raises(Disconnected) as caught:
        await Client.connect(command, mode="legacy", shutdown_grace=0.1).open()
    assert "process" not in str(caught.value)


@pytest.mark.parametrize(
    ("gates", "named"),
    [
        ({"sampling.tools"}, ["sample_tools=True", "sampling=provider"]),
        ({"elicitation"}, ["on_elicit="]),
        ({"roots", "elicitation.url"}, ["on_roots=", "on_elicit_url="]),
    ],
)
async def test_a_missing_capability_is_noted_with_the_option_declaring_it(gates: set[str], named: list[str]) -> None:
    server = Server("s")

    @server.tool(requires=gates)
    async def ask() -> str:
        return ""

    async with Client.connect(server, mode="modern") as client:
        with pytest.raises(PeerError) as caught:
            await client.call_tool("ask")
    (note,) = caught.value.__notes__
    assert [name for name in named if name not in note] == []


@pytest.mark.parametrize(
    ("option", "ours"),
    [("elicitation_handler", "on_elicit"), ("sampling_callback", "on_sample"), ("progress_handler", "on_progress")],
)
def test_the_name_of_another_library_is_answered_with_ours(option: str, ours: str) -> None:
    options: dict[str, Any] = {option: print}
    with pytest.raises(TypeError, match=naming(option, ours)):
        Client.connect(Server("s"), **options)


@pytest.mark.parametrize("transport", ["stdio", "http", "sse", "websocket", "memory"])
def test_the_typed_options_are_those_of_each_transport(transport: str) -> None:
    typed = get_type_hints(ClientKeywords)
    taken = get_type_hints(find_transport(transport).connect)
    options = [*signature(find_transport(transport).connect).parameters][1:]
    assert {option: typed[option] for option in options} == {option: taken[option] for option in options}
