"""What cannot be offered is refused where it is written, in words that say what to write instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from naming import naming, unnamed
from one_tool import failure_of
from pydantic import BeforeValidator
from serving import ROOT

from trio_mcp import CallHandler, CallRequest, CallResult, Context, Elicit, Server, ServiceOptions
from trio_mcp.server import PromptKeywords, ResourceKeywords, ToolKeywords
from trio_mcp.session import MessageFacts
from trio_mcp.testing import MockClient, make_context


def function() -> str:
    return ""


def tool(**options: Any) -> None:
    Server("wrong").add_tool(function, **options)


def prompt(**options: Any) -> None:
    Server("wrong").add_prompt(function, **options)


def resource(**options: Any) -> None:
    Server("wrong").add_resource("a://b", function, **options)


def server(**options: Any) -> None:
    Server("wrong", **options)


COMMON: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"timeout": "30"}, TypeError),
    ({"timeout": 0}, ValueError),
    ({"name": 3}, TypeError),
    ({"resume": "reply"}, ValueError),
    ({"elicits": "seat"}, TypeError),
]
WRONG = [
    *((offer, options, kind) for offer in (tool, prompt, resource) for options, kind in COMMON),
    (resource, {"ttl": -1}, ValueError),
    (resource, {"ttl": "60"}, TypeError),
    (resource, {"ttl": float("inf")}, ValueError),
    (resource, {"cache_scope": "all"}, ValueError),
    (server, {"list_scope": "everyone"}, ValueError),
    (server, {"list_ttl": "60"}, TypeError),
    (server, {"list_ttl": -1}, ValueError),
    (server, {"list_ttl": float("nan")}, ValueError),
    (server, {"options": {"max_seconds": 3}}, TypeError),
    (server, {"page_size": "9"}, TypeError),
    (server, {"page_size": 0}, ValueError),
    (tool, {"requires": "sampling"}, TypeError),
    (tool, {"max_depth": "3"}, TypeError),
    (tool, {"token_budget": -1}, ValueError),
    (tool, {"output_schema": 5}, TypeError),
    (ServiceOptions, {"max_seconds": "3"}, TypeError),
    (ServiceOptions, {"tell_errors": "yes"}, TypeError),
    (ServiceOptions, {"watchdog": None}, TypeError),
    (ServiceOptions, {"settle": -1}, ValueError),
    (ServiceOptions, {"outcome_grace": float("nan")}, ValueError),
    (ServiceOptions, {"outbox": 0}, ValueError),
    (ServiceOptions, {"max_depth": -1}, ValueError),
    (ServiceOptions, {"max_state": 1.5}, TypeError),
    (ServiceOptions, {"watched": True}, TypeError),
    (ServiceOptions, {"actors": 100}, TypeError),
    (ServiceOptions, {"estimate_tokens": 3}, TypeError),
]


@pytest.mark.parametrize(("offer", "options", "kind"), WRONG)
def test_an_option_is_rejected_by_name_and_value(
    offer: Callable[..., None], options: dict[str, Any], kind: type[Exception]
) -> None:
    ((name, value),) = options.items()
    with pytest.raises(kind, match=naming(name, repr(value))):
        offer(**options)


@pytest.mark.parametrize("offer", [tool, prompt, resource])
def test_a_wrong_question_is_named_with_how_to_write_one(offer: Callable[..., None]) -> None:
    with pytest.raises(TypeError, match=naming("elicits", "'seat'", "Elicit('seat', Seat)")):
        offer(elicits=["seat"])


@pytest.mark.parametrize(
    ("offer", "options", "names"),
    [
        (tool, {"titel": "x"}, ["tool()", "'titel'", "'title'"]),
        (prompt, {"titel": "x"}, ["prompt()", "'titel'", "'title'"]),
        (resource, {"mime": "x"}, ["resource()", "'mime'", "'mime_type'"]),
        (server, {"lifspan": None}, ["Server()", "'lifspan'", "'lifespan'"]),
        (lambda **wrong: Server("tester").run("http", **wrong), {"prot": 8000}, ["prot=", "'port'"]),
        (tool, {"zzz": 1}, ["tool()", "'zzz'", "annotations", "title"]),
    ],
)
def test_an_unknown_option_is_rejected_with_the_nearest_one_or_all(
    offer: Callable[..., None], options: dict[str, Any], names: list[str]
) -> None:
    with pytest.raises(TypeError, match=naming(*names)):
        offer(**options)


@pytest.mark.parametrize(("schema", "found"), [({"type": "objekt"}, ["'objekt'"]), ({"properties": {}}, ["missing"])])
def test_an_input_schema_says_that_arguments_are_an_object(schema: dict[str, Any], found: list[str]) -> None:
    with pytest.raises(ValueError, match=naming("input_schema", '"type"', '"object"', *found)):
        Server("wrong").add_tool(lambda arguments: "", name="raw", input_schema=schema)


COMPLETE = "@server.complete(prompt='review', argument='language')"
MISPLACED: list[tuple[Callable[[Any], object], type[Exception], list[object]]] = [
    (lambda server: server.tool("x"), TypeError, ["tool(name='x')"]),
    (lambda server: server.prompt("x"), TypeError, ["prompt(name='x')"]),
    (lambda server: server.tool(5), TypeError, ["tool", "function", 5]),
    (lambda server: server.prompt(5), TypeError, ["prompt", "function", 5]),
    (lambda server: server.resource(function), TypeError, ["URI", "resource('config://app')"]),
    (lambda server: server.add_resource(function, "b://x"), TypeError, ["URI"]),
    (lambda server: server.add_resource("b://x", "c"), TypeError, ["b://x", "function", "'c'"]),
    (lambda server: server.complete(function), TypeError, [COMPLETE]),
    (lambda server: server.complete("review", "language"), TypeError, [COMPLETE]),
    (lambda server: server.complete(), TypeError, [COMPLETE]),
    (lambda server: server.complete(prompt="review"), TypeError, [COMPLETE]),
    (lambda server: server.complete("x", prompt="review", argument="language"), TypeError, [COMPLETE]),
    (lambda server: server.resource_updated("zz"), ValueError, ["resource_updated", "'zz'", "URI"]),
    (lambda _server: Elicit(str, "seat"), TypeError, ["key"]),  # type: ignore[arg-type, type-var]
]


@pytest.mark.parametrize(("offer", "kind", "names"), MISPLACED)
def test_a_misplaced_argument_is_rejected_with_what_to_write(
    offer: Callable[[Any], object], kind: type[Exception], names: list[object]
) -> None:
    with pytest.raises(kind, match=naming(*names)):
        offer(Server("wrong"))


class Opaque:
    """A class that no JSON can be made into."""


def test_a_parameter_that_json_cannot_be_made_into_is_named() -> None:
    def book(flight: str, seat: Opaque) -> str:
        return ""

    for offer in (Server("wrong").add_tool, Server("wrong").add_prompt):
        with pytest.raises(TypeError, match=naming("book", "'seat'", "Opaque")):
            offer(book)


@pytest.mark.parametrize("kind", [list[int], list, dict[str, str], tuple[int, ...]])
def test_a_prompt_takes_what_a_string_can_become(kind: Any) -> None:
    def say(numbers: str) -> str:
        return ""

    say.__annotations__["numbers"] = kind
    with pytest.raises(TypeError, match=naming("say", "'numbers'", "strings")):
        Server("wrong").add_prompt(say)
    say.__annotations__["numbers"] = Annotated[kind, BeforeValidator(str.split)]
    Server("right").add_prompt(say)


RULE = re.compile(r"\b[LMS]-[A-Z]+-\d|\brow \d|\bSEP-\d")


def said(node: ast.AST) -> list[str]:
    texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return [text for text in texts if isinstance(text, str)]


def test_no_error_speaks_of_the_numbers_of_rules() -> None:
    for path in (ROOT / "trio_mcp" / "server").glob("*.py"):
        raised = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Raise)]
        assert [text for node in raised for text in said(node) if RULE.search(text)] == []


def test_a_context_may_be_optional() -> None:
    async def book(flight: str, ctx: Context | None = None) -> str:
        return flight

    offered = Server("right").add_tool(book)
    assert list(offered.model.input_schema["properties"]) == ["flight"]


@pytest.mark.parametrize(
    ("offer", "keywords"),
    [(Server.tool, ToolKeywords), (Server.prompt, PromptKeywords), (Server.resource, ResourceKeywords)],
)
def test_the_help_names_every_option(offer: Callable[..., object], keywords: type) -> None:
    assert offer.__doc__ is not None
    assert [name for name in keywords.__annotations__ if f"`{name}`" not in offer.__doc__] == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [("streamable-http", "'http'"), ("ws", "'websocket'"), ("htpp", "'http'"), ("in-memory", "'memory'")],
)
async def test_a_transport_of_another_name_is_answered_with_ours(name: str, meant: str) -> None:
    with pytest.raises(LookupError, match=f"do you mean {meant}"):
        await Server("s").serve(name)


# the methods of a context

CALLS: dict[str, Callable[..., Any]] = {
    "ctx.elicit()": lambda ctx, **options: ctx.elicit("Sure?", bool, **options),
    "ctx.elicit.strict()": lambda ctx, **options: ctx.elicit.strict("Sure?", bool, **options),
    "ctx.elicit.with_retry()": lambda ctx, **options: ctx.elicit.with_retry("Sure?", bool, **options),
    "ctx.elicit_url()": lambda ctx, **options: ctx.elicit_url("Open", "https://example.com", **options),
    "ctx.sample()": lambda ctx, **options: ctx.sample("Hello", **options),
    "ctx.sample_schema()": lambda ctx, **options: ctx.sample_schema("Hello", int, **options),
    "ctx.sample_tools()": lambda ctx, **options: ctx.sample_tools("Hello", [len_of], **options),
    "ctx.run_tool_loop()": lambda ctx, **options: ctx.run_tool_loop("Hello", [len_of], **options),
}


def len_of(text: str) -> int:
    return len(text)


@pytest.mark.parametrize(
    ("method", "wrong", "names"),
    [
        ("ctx.elicit()", "timout", ["do you mean 'timeout'"]),
        ("ctx.elicit.strict()", "re_ask", ["do you mean 'reask'"]),
        ("ctx.elicit.with_retry()", "attempts", ["do you mean 'max_attempts'"]),
        ("ctx.elicit_url()", "time_out", ["do you mean 'timeout'"]),
        ("ctx.sample()", "return_type", ["do you mean 'returns'"]),
        ("ctx.sample()", "max_token", ["do you mean 'max_tokens'"]),
        ("ctx.sample_schema()", "retrie", ["do you mean 'retries'"]),
        ("ctx.sample_tools()", "tool_choices", ["do you mean 'tool_choice'"]),
        ("ctx.run_tool_loop()", "iterations", ["do you mean 'max_iterations'"]),
        ("ctx.elicit()", "zzz", ["context", "reask", "timeout"]),
        ("ctx.elicit.with_retry()", "zzz", ["max_attempts", "on_decline", "timeout"]),
        ("ctx.elicit_url()", "zzz", ["done", "elicitation_id", "timeout", "wait"]),
        ("ctx.sample()", "zzz", ["max_tokens", "messages", "returns", "retries", "tool_choice", "tools"]),
        ("ctx.sample_tools()", "zzz", ["max_tokens", "retries", "tool_choice", "tools"]),
        ("ctx.run_tool_loop()", "zzz", ["max_iterations", "max_tokens", "progress", "tool_choice", "tools"]),
    ],
)
async def test_an_unknown_option_of_a_question_is_rejected_with_the_nearest_one_or_all(
    method: str, wrong: str, names: list[str]
) -> None:
    async with make_context() as ctx:
        with pytest.raises(TypeError, match=naming(method, wrong, *names)):
            CALLS[method](ctx, **{wrong: 1})


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda ctx: ctx.sample("?", result_type=int), ["ctx.sample()", "'result_type'", "returns="]),
        (lambda ctx: ctx.elicit.strict("?", response_type=int), ["ctx.elicit.strict()", "'response_type'", "second"]),
        (lambda ctx: ctx.info("x", logger_name="y"), ["ctx.info()", "'logger_name'", "'logger'"]),
        (lambda ctx: ctx.log("info", "x", zzz="y"), ["ctx.log()", "'zzz'", "data, level, logger"]),
        (lambda ctx: ctx.progress(2, 3, 4, 5), ["ctx.progress()", "(progress, total=None, message=None)"]),
        (lambda ctx: ctx.progress(), ["ctx.progress()", "'progress'"]),
    ],
)
async def test_an_argument_that_a_method_of_the_context_does_not_take_is_answered_in_the_words_of_its_author(
    call: Callable[[Any], object], names: list[str]
) -> None:
    async with make_context() as ctx:
        with pytest.raises(TypeError, match=naming(*names)) as caught:
            call(ctx)
    assert "Reporter" not in str(caught.value)


# capabilities


ALL = ["elicitation.form", "elicitation.url", "roots", "sampling.context", "sampling.tools"]


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ("sample", ["do you mean 'sampling'"]),
        ("sampling.tool", ["do you mean 'sampling.tools'"]),
        ("elicitation.urls", ["do you mean 'elicitation.url'"]),
        ("zzz", ALL),
    ],
)
def test_an_unknown_capability_is_rejected_with_the_nearest_one_or_all(wrong: str, names: list[str]) -> None:
    with pytest.raises(ValueError, match=naming(wrong, *names)):
        Server("wrong").add_tool(len_of, requires={wrong})


@pytest.mark.parametrize("capability", ["experimental.x", "extensions.com.example/x", "roots.listChanged"])
def test_a_capability_that_clients_may_declare_is_allowed(capability: str) -> None:
    assert Server("right").add_tool(len_of, requires={capability}).requires == (capability,)


# `ctx.state` without a lifespan


async def read_state(ctx: Context) -> str:
    state: Any = ctx.state
    return str(state.database)


async def read_caller(ctx: Context) -> str:
    caller: Any = ctx.caller
    return str(caller.principal)


@pytest.mark.parametrize(
    ("read", "names"),
    [(read_state, ["ctx.state", "Server(lifespan=...)", "state="]), (read_caller, ["ctx.caller", "principal="])],
)
async def test_a_member_of_the_context_that_is_not_there_is_an_error_for_the_author(
    read: Any, names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert unnamed((await MockClient().call(read)).text, *names) == []
    assert names[0] not in await failure_of(read), "a peer learns nothing"
    assert f"{names[0]} is None" in caplog.text


async def read_none() -> str:
    value: Any = None
    return str(value.database)


async def test_a_caller_that_is_there_is_read_and_another_none_gets_no_such_advice() -> None:
    assert (await MockClient(principal="ann").call(read_caller)).text == "ann"
    assert "ctx.state" not in (await MockClient().call(read_none)).text


async def test_a_context_without_state_says_where_to_pass_it() -> None:
    with pytest.raises(AttributeError) as caught:
        async with make_context() as ctx:
            await read_state(ctx)
    assert unnamed(" ".join(caught.value.__notes__), "ctx.state", "state=") == []


# decorators


@pytest.mark.parametrize("decorate", ["middleware", "message_middleware"])
def test_a_decorator_of_middleware_may_be_written_with_a_call(decorate: str) -> None:
    async def around(_call: CallRequest, handler: CallHandler) -> CallResult:
        return await handler()

    def see(_message: MessageFacts) -> None: ...

    function: Any = around if decorate == "middleware" else see
    assert getattr(Server("notes"), decorate)()(function) is function
    with pytest.raises(TypeError):
        getattr(Server("notes"), decorate)()(5)
