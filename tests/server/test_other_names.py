"""Names that other libraries have are answered with the one to write here."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
from naming import unnamed

from trio_mcp import Accepted, Client, Server
from trio_mcp.client.options import OF_CLIENT
from trio_mcp.server import ElicitExchange, other_names
from trio_mcp.server.context import Context
from trio_mcp.testing import make_context

OWNERS: dict[str, tuple[Callable[[], Any], str, dict[str, str]]] = {
    "server": (lambda: Server("x"), "Server", other_names.OF_SERVER),
    "class": (lambda: Server, "Server", other_names.OF_SERVER),
    "client": (lambda: Client.connect(Server("x")), "Client", OF_CLIENT),
}
OF_THE_CLASS = ["from_openapi", "from_fastapi", "as_proxy"]
OF_ANY_CLIENT = ["close", "is_connected", "call_tool_mcp", "session", "initialize_result", "transport", *OF_CLIENT]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        *(("server", name) for name in other_names.OF_SERVER),
        *(("class", name) for name in OF_THE_CLASS),
        *(("client", name) for name in OF_ANY_CLIENT),
    ],
)
def test_a_name_that_another_library_has_is_answered_with_ours(owner: str, name: str) -> None:
    make, shown, answers = OWNERS[owner]
    with pytest.raises(AttributeError) as caught:
        getattr(make(), name)
    assert unnamed(str(caught.value), shown, name, answers[name]) == []


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("Server", "completion"),
        *(("Context", name) for name in ("request_id", "close_sse_stream", "enable_components", "input_responses")),
        *(("Context", name) for name in ("get_http_request", "server")),
    ],
)
def test_these_names_have_an_answer_too(owner: str, name: str) -> None:
    assert name in {"Server": other_names.OF_SERVER, "Context": other_names.OF_CONTEXT}[owner]


async def test_an_attribute_of_the_context_is_answered_in_the_error_of_the_call() -> None:
    async with make_context() as made:
        ctx: Any = made
        with pytest.raises(AttributeError, match=r"'Context'.*'report_progress': .*ctx\.progress"):
            await ctx.report_progress(1)
    assert [name for name in other_names.OF_CONTEXT if hasattr(Context, name)] == []


def test_an_attribute_of_an_answer_is_answered_too() -> None:
    answer: Any = Accepted(3, ElicitExchange("elicit_1_1", "elicit", "How many?", {"value": 3}, None))
    with pytest.raises(AttributeError, match=r"'Accepted'.*'data': .*\.content"):
        _ = answer.data
    assert copy.copy(answer).content == 3


@pytest.mark.parametrize("name", other_names.OPTIONS)
def test_an_option_that_another_library_has_is_answered_with_what_to_do(name: str) -> None:
    given: Any = {name: True}
    with pytest.raises(TypeError) as caught:
        Server("x").tool(**given)(print_nothing)
    assert unnamed(str(caught.value), "tool()", repr(name), other_names.OPTIONS[name]) == []


def test_an_option_of_a_server_is_too() -> None:
    given: Any = {"on_duplicate": "replace"}
    with pytest.raises(TypeError, match=r"Server\(\) has no option 'on_duplicate': remove_tool"):
        Server("x", **given)


async def test_an_option_of_a_question_is_too() -> None:
    async with make_context() as made:
        ctx: Any = made
        with pytest.raises(TypeError, match=r"ctx\.elicit\(\).*'response_type': the type is the second argument"):
            await ctx.elicit("?", str, response_type=str)


@pytest.mark.parametrize("text", OF_CLIENT.values())
def test_what_is_written_instead_exists(text: str) -> None:
    for name in re.findall(r"client\.(\w+)", text):
        assert hasattr(Client, name)


async def test_an_option_of_a_call_or_of_a_connection_is_too() -> None:
    given: Any = {"timeout": 5}
    with pytest.raises(TypeError, match=r"Client\.connect\(\).*'timeout': it is timeout= of each call"):
        Client.connect(Server("x"), **given)
    async with Client.connect(Server("x")) as client:
        with pytest.raises(TypeError, match=r"call_tool\(\).*'progress_handler': it is on_progress="):
            await client.call_tool("t", {}, progress_handler=print)


def print_nothing() -> None:
    """Do nothing."""


def test_any_other_attribute_is_missing_as_ever() -> None:
    server: Any = Server("x")
    for owner in (server, Client.connect(server)):
        with pytest.raises(AttributeError, match=rf"'{type(owner).__name__}' object has no attribute 'none'$"):
            _ = owner.none
    assert copy.copy(server).tools == ()
    assert not inspect.isawaitable(server)
