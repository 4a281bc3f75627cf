"""A handler that returns an unserializable value: its caller gets an error with the reason, and the log names the handler."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from naming import naming, unnamed
from one_tool import failure_of, success_of
from talk import Json, talk_to

from trio_mcp import Context, Server

COMPLETE: Json = {"ref": {"type": "ref/prompt", "name": "say"}, "argument": {"name": "taste", "value": ""}}


def returning(value: object) -> Callable[[], Any]:
    return lambda: value


async def error_text(server: Server, method: str, **params: Any) -> str:
    """The text of the error that answers this request."""
    async with talk_to(server) as talk:
        error = await talk.error(talk.ask(method, **params))
    assert error["code"] == -32603
    return error["message"]


@pytest.mark.parametrize("value", [object(), float("nan"), {"a": object()}, [float("inf")], 10**320])
async def test_a_resource_that_json_cannot_represent_is_reported(value: object) -> None:
    server = Server("wrong")
    server.add_resource("a://b", returning(value))
    assert unnamed(await error_text(server, "resources/read", uri="a://b"), "JSON") == []


@pytest.mark.parametrize("value", [object(), float("nan"), {"a": object()}])
@pytest.mark.parametrize("options", [{}, {"output_schema": {}}], ids=["no schema", "a schema"])
async def test_a_tool_result_that_json_cannot_represent_is_reported(value: object, options: Json) -> None:
    text = await failure_of(returning(value), name="plain", **options)
    assert unnamed(text, "plain", "JSON") == []
    assert "object at 0x" not in text


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (None, ["prompt", "None"]),
        (5, ["prompt", "int"]),
        (True, ["prompt", "bool"]),
        (b"x", ["prompt", "bytes"]),
        (["x", None], ["prompt", "None"]),
        ({"a": object()}, ["JSON"]),
    ],
)
async def test_a_prompt_says_text_blocks_or_messages(value: object, names: list[str]) -> None:
    server = Server("wrong")
    server.add_prompt(returning(value), name="say")
    assert unnamed(await error_text(server, "prompts/get", name="say"), *names) == []


@pytest.mark.parametrize(
    ("value", "named"),
    [("short", "str"), (b"short", "bytes"), ({"a": 1}, "dict"), (None, "None"), (3, "int"), ([1], "int")],
)
async def test_a_completion_suggests_a_list_of_strings(value: object, named: str) -> None:
    server = Server("wrong")
    server.add_prompt(lambda taste: taste, name="say")
    returned = value
    server.complete(prompt="say", argument="taste")(lambda value: returned)
    assert unnamed(await error_text(server, "completion/complete", **COMPLETE), "completion", named) == []


@pytest.mark.parametrize("annotation", [int, str, None, dict])
def test_a_completion_that_declares_no_suggestions_is_refused(annotation: object) -> None:
    server = Server("wrong")
    server.add_prompt(lambda taste: taste, name="say")

    def tastes(value: str) -> Any:
        return []

    tastes.__annotations__["return"] = annotation
    with pytest.raises(TypeError, match=naming("tastes", "list[str]", "Completion")):
        server.complete(prompt="say", argument="taste")(tastes)


@pytest.fixture
def failing() -> Server:
    server = Server("failing")

    def fail() -> str:
        raise RuntimeError("boom")

    server.add_prompt(lambda taste="": fail(), name="say")
    server.add_resource("a://b", fail)
    server.complete(prompt="say", argument="taste")(lambda value: fail())
    server.add_resource("a://none", returning(object()))
    return server


@pytest.mark.parametrize(
    ("method", "params", "logged"),
    [
        ("prompts/get", {"name": "say"}, ["prompts/get", "'say'"]),
        ("resources/read", {"uri": "a://b"}, ["resources/read", "'a://b'"]),
        ("completion/complete", COMPLETE, ["completion/complete", "'say'"]),
        ("resources/read", {"uri": "a://none"}, ["resources/read", "'a://none'"]),
    ],
)
async def test_the_log_of_a_failure_names_what_failed(
    failing: Server, method: str, params: Json, logged: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "trio_mcp"):
        await error_text(failing, method, **params)
    assert [unnamed(record.getMessage(), *logged) for record in caplog.records] == [[]]


@pytest.mark.parametrize("legacy", [False, True], ids=["modern", "legacy"])
@pytest.mark.parametrize("level", ["warn", 3, None])
async def test_an_invalid_level_is_rejected_in_both_eras(legacy: bool, level: Any) -> None:
    async def speak(ctx: Context) -> None:
        with pytest.raises(ValueError, match=naming("level", "debug", "warning", repr(level))):
            await ctx.log(level, "x")

    await success_of(speak, legacy=legacy)


@pytest.mark.parametrize(("schema", "text"), [({"type": "object"}, naming("elicit()", "str")), (5, naming(5))])
async def test_a_form_is_asked_for_by_a_type(schema: Any, text: str) -> None:
    async def ask(ctx: Context) -> None:
        with pytest.raises(TypeError, match=text):
            await ctx.elicit("?", schema)

    await success_of(ask)


@pytest.mark.parametrize("returns", [str, None, int])
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
async def test_a_coroutine_that_was_returned_is_named_as_not_awaited(returns: Any) -> None:
    async def later() -> str:
        return "x"

    async def hasty() -> Any:
        return later()

    hasty.__annotations__["return"] = returns or Any
    assert unnamed(await failure_of(hasty), "later()", "awaited") == []
