"""What a client answers: each kind of question, forms with defaults, and what it never said it could answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from naming import naming, unnamed
from scripted import (
    FOLLOWS_TASKS,
    FORM_QUESTION,
    ROOTS_QUESTION,
    SAMPLE,
    SAMPLE_QUESTION,
    Json,
    as_legacy,
    as_modern,
    calling,
    conversation,
    interim,
    opening_client,
    runs_tasks,
    works,
)
from wire_terms import CLIENT_CAPABILITIES, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

from trio_mcp import Client, Context, Server
from trio_mcp.client import Handlers, accept, accept_defaults, decline, dismiss
from trio_mcp.errors import CapabilityError, LimitExceeded, PeerError
from trio_mcp.runtime import Mailbox
from trio_mcp.types import (
    CreateMessageResult,
    ElicitRequestFormParams,
    Root,
    TextContent,
)

FIELDS: Json = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
    "off": {"type": "boolean", "default": False},
    "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": ["a"]},
    "note": {"type": "string"},
}
DEFAULTS = {name: field["default"] for name, field in FIELDS.items() if "default" in field}
LOGIN = {"mode": "url", "message": "Log in", "url": "https://example.test/login", "elicitationId": "e1"}
URL_QUESTION = {"method": "elicitation/create", "params": LOGIN}


def form(required: list[str] | None = None, fields: Json = FIELDS) -> ElicitRequestFormParams:
    schema = {"type": "object", "properties": fields, "required": required or []}
    return ElicitRequestFormParams.model_validate({"message": "?", "requestedSchema": schema})


async def answer_of(question: Json, **handlers: Any) -> Json:
    """The message with which a client with these handlers answers a legacy server."""
    async with conversation(as_legacy, **handlers) as (_client, wire, _start):
        return await wire.answer_to(question)


async def later(value: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return value


MESSAGE = CreateMessageResult(role="assistant", content=TextContent(text="5 tokens"), model="m")
SAID = {"role": "assistant", "content": {"type": "text", "text": "5 tokens"}}
FOLDERS = {"roots": [{"uri": "file:///tmp/a", "name": "a"}, {"uri": "file:///b", "name": "B"}]}


@pytest.mark.parametrize(
    ("question", "name", "handler", "expected"),
    [
        (FORM_QUESTION, "on_elicit", lambda _: accept(a=1), {"action": "accept", "content": {"a": 1}}),
        (FORM_QUESTION, "on_elicit", lambda _: later(decline()), {"action": "decline"}),
        (FORM_QUESTION, "on_elicit", lambda _: dismiss(), {"action": "cancel"}),
        (
            SAMPLE_QUESTION,
            "on_sample",
            lambda params: f"{params.max_tokens} tokens",
            {**SAID, "model": "unnamed", "stopReason": "endTurn"},
        ),
        (SAMPLE_QUESTION, "on_sample", lambda _: later(MESSAGE), {**SAID, "model": "m"}),
        (ROOTS_QUESTION, "on_roots", lambda: [Path("/tmp/a"), Root(uri="file:///b", name="B")], FOLDERS),
        (ROOTS_QUESTION, "on_roots", lambda: later([]), {"roots": []}),
    ],
)
async def test_a_question_is_answered_by_its_handler(question: Json, name: str, handler: Any, expected: Json) -> None:
    assert (await answer_of(question, **{name: handler}))["result"] == expected


async def test_a_page_to_open_reaches_its_own_handler() -> None:
    opened: list[str] = []

    async def open_page(params: Any) -> Any:
        opened.append(params.url)
        return accept()

    handlers = {"on_elicit_url": open_page, "on_elicit": lambda _: decline()}
    assert (await answer_of(URL_QUESTION, **handlers))["result"]["action"] == "accept"
    assert (await answer_of(FORM_QUESTION, **handlers))["result"]["action"] == "decline"
    assert opened == ["https://example.test/login"]


async def test_an_answer_with_a_number_that_the_server_would_reject_is_an_error_that_names_it() -> None:
    answer = await answer_of(FORM_QUESTION, on_elicit=lambda _: accept(a=10**320))
    assert unnamed(answer["error"]["message"], "result.content.a", "320 characters") == []


@pytest.mark.parametrize("question", [FORM_QUESTION, ROOTS_QUESTION, {"method": "no/such", "params": {}}])
async def test_a_question_without_a_handler_is_refused(question: Json) -> None:
    error = (await answer_of(question))["error"]
    assert error["code"] == METHOD_NOT_FOUND
    assert question["method"] in error["message"]


@pytest.mark.parametrize(
    ("form", "given", "answer"),
    [
        (form(), {}, accept(**DEFAULTS)),
        (form(["note"]), {"note": "hi", "age": 7}, accept(**{**DEFAULTS, "note": "hi", "age": 7})),
        (form(["note"]), {}, decline()),
        (form(fields={"a": {"type": "string"}}), {}, accept()),
        (form(fields={}), {}, decline()),
    ],
    ids=["each", "filled in and replaced", "a required field without", "only optional ones", "no fields are a consent"],
)
def test_the_fields_of_a_form_have_their_defaults(form: ElicitRequestFormParams, given: Json, answer: object) -> None:
    assert accept_defaults(form, **given) == answer


@pytest.mark.parametrize(
    ("handlers", "declared"),
    [
        ({}, {}),
        ({"on_elicit": decline}, {"elicitation": {"form": {}}}),
        ({"on_elicit_url": decline}, {"elicitation": {"url": {}}}),
        ({"on_elicit": decline, "on_elicit_url": decline}, {"elicitation": {"form": {}, "url": {}}}),
        ({"on_sample": lambda _params: "x"}, {"sampling": {}}),
        ({"on_roots": list}, {"roots": {"listChanged": True}}),
    ],
    ids=["nothing", "forms", "pages", "both", "samples", "roots"],
)
async def test_only_what_has_a_handler_is_declared(handlers: Json, declared: Json) -> None:
    assert Handlers(**handlers).capabilities.wire() == {**declared, **runs_tasks(declared), **FOLLOWS_TASKS}
    async with opening_client(mode="legacy", **handlers) as (_client, wire, _opened):
        assert (await wire.request("initialize"))["params"]["capabilities"] == {**declared, **runs_tasks(declared)}
    async with conversation(as_modern, **handlers) as (client, wire, start):
        start(client.list_tools)
        modern = {name: {} if name == "roots" else value for name, value in declared.items()} | FOLLOWS_TASKS
        assert (await wire.request("tools/list"))["params"]["_meta"][CLIENT_CAPABILITIES] == modern


@pytest.mark.parametrize(
    ("handlers", "question"),
    [
        ({"on_elicit": decline}, URL_QUESTION),
        ({"on_elicit_url": decline}, FORM_QUESTION),
        ({"on_sample": str}, {**SAMPLE_QUESTION, "params": {**SAMPLE, "tools": [{"name": "t", "inputSchema": {}}]}}),
        ({"on_sample": str}, {**SAMPLE_QUESTION, "params": {**SAMPLE, "tools": []}}),
        ({"on_sample": str}, {**SAMPLE_QUESTION, "params": {**SAMPLE, "toolChoice": {"mode": "auto"}}}),
    ],
    ids=["url", "form", "tools", "no tools in a list", "tool choice"],
)
async def test_a_question_of_a_kind_that_was_not_declared_is_refused(handlers: Json, question: Json) -> None:
    assert (await answer_of(question, **handlers))["error"]["code"] == INVALID_PARAMS
    async with calling(as_modern, handlers) as (wire, call, request):
        await wire.respond(request, interim({"q": question}))
        await call.fails(CapabilityError)


# handlers that return the wrong thing, or fail

FORM_ANSWERS = ["on_elicit", "accept(field=value)", "decline()", "dismiss()"]
URL_ANSWERS = ["on_elicit_url", "accept()", "decline()", "dismiss()"]
ROOTS = ["on_roots", "pathlib.Path", "Root"]
NO_ANSWERS: list[tuple[str, object, Json, list[str]]] = [
    ("on_elicit", {"seat": "1A"}, FORM_QUESTION, [*FORM_ANSWERS, "{'seat': '1A'}"]),
    ("on_elicit", True, FORM_QUESTION, [*FORM_ANSWERS, "True"]),
    ("on_elicit", None, FORM_QUESTION, [*FORM_ANSWERS, "None"]),
    ("on_elicit_url", None, URL_QUESTION, [*URL_ANSWERS, "None"]),
    ("on_sample", 5, SAMPLE_QUESTION, ["on_sample", "CreateMessageResult", "5"]),
    ("on_roots", "/tmp", ROOTS_QUESTION, [*ROOTS, "'/tmp'"]),
    ("on_roots", None, ROOTS_QUESTION, [*ROOTS, "None"]),
    ("on_roots", ["/tmp"], ROOTS_QUESTION, [*ROOTS, "'/tmp'"]),
]


@pytest.mark.parametrize(("handler", "value", "question", "names"), NO_ANSWERS)
async def test_a_handler_that_returns_no_answer_is_named_with_what_it_should_return(
    handler: str, value: object, question: Json, names: list[str]
) -> None:
    async with calling(as_modern, {handler: lambda *_: value}) as (wire, call, request):
        await wire.respond(request, interim({"k": question}))
        await call.fails(TypeError, naming(*names))


@pytest.mark.parametrize(("handler", "value", "question", "names"), NO_ANSWERS)
async def test_a_legacy_server_hears_that_the_handler_failed_and_the_log_how(
    handler: str, value: object, question: Json, names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    error = (await answer_of(question, **{handler: lambda *_: value}))["error"]
    assert error["code"] == INTERNAL_ERROR
    assert unnamed(error["message"], question["method"]) == []
    assert unnamed(caplog.text, *names) == []


async def test_a_handler_that_fails_is_an_error_for_the_server_without_internals() -> None:
    def broken(_params: object) -> None:
        raise LookupError("hunter2")

    async with conversation(as_legacy, on_elicit=broken) as (client, wire, start):
        error = (await wire.answer_to(FORM_QUESTION))["error"]
        assert error["code"] == INTERNAL_ERROR
        assert "hunter2" not in error["message"]
        await works(client, wire, start)


async def test_a_handler_that_fails_often_shows_one_traceback_for_each_kind(caplog: pytest.LogCaptureFixture) -> None:
    errors = [LookupError("hunter2"), ValueError("hunter2")]

    def broken(_params: object) -> None:
        raise errors[0]

    async with conversation(as_legacy, on_elicit=broken, on_sample=broken) as (_client, wire, _start):
        for _ in range(50):
            assert (await wire.answer_to(FORM_QUESTION))["error"]["code"] == INTERNAL_ERROR
        assert [record.exc_info is not None for record in caplog.records] == [True]
        await wire.answer_to(SAMPLE_QUESTION)
        errors.reverse()
        await wire.answer_to(FORM_QUESTION)
    assert len([record for record in caplog.records if record.exc_info is not None]) == 3
    assert len(caplog.records) == 4, "and the end of the session logs how many were only counted"


async def test_the_reason_of_an_error_of_ours_reaches_the_server() -> None:
    def failing(_params: object) -> Any:
        raise LimitExceeded("no more than three questions")

    message = (await answer_of(FORM_QUESTION, on_elicit=failing))["error"]["message"]
    assert unnamed(message, "elicitation/create", "no more than three questions") == []


async def test_a_handler_may_refuse_with_an_error_that_it_chooses() -> None:
    def refuses(_params: object) -> None:
        raise PeerError(-1, "User rejected sampling", {"a": 1})

    error = (await answer_of(SAMPLE_QUESTION, on_sample=refuses))["error"]
    assert error == {"code": -1, "message": "User rejected sampling", "data": {"a": 1}}


@pytest.mark.parametrize("uri", ["https://example.com/", "/srv", "", "file:", "files:///srv"])
async def test_a_root_that_is_no_file_is_refused_before_it_is_sent(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    assert "error" in await answer_of(ROOTS_QUESTION, on_roots=lambda: [Root(uri=uri)])
    assert "file://" in caplog.text


@pytest.mark.parametrize("method", ["ping", "roots/list", "sampling/createMessage", "no/such/method"])
async def test_a_request_of_a_modern_server_is_not_answered(method: str) -> None:
    async with conversation(as_modern, on_roots=list, on_sample=lambda _params: "x") as (client, wire, start):
        await wire.ask("q", method, SAMPLE)
        await wire.silence()
        await works(client, wire, start)


async def test_as_many_questions_as_a_call_may_have_open_are_answered_in_one_round() -> None:
    server = Server("curious")
    most = Mailbox().limit

    @server.tool
    async def ask_all(ctx: Context) -> int:
        answers = list[object]()

        async def one(number: int) -> None:
            answers.append(await ctx.elicit(f"{number}?", bool))

        async with trio.open_nursery() as nursery:
            for number in range(most):
                nursery.start_soon(one, number)
        return len(answers)

    async with Client.connect(server, mode="modern", on_elicit=lambda _question: decline()) as client:
        with trio.fail_after(30):
            assert (await client.call_tool("ask_all")).data == most
