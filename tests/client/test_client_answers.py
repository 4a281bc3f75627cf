"""What a client answers: forms with defaults, pages to open, and what it never said it could answer."""

from __future__ import annotations

from typing import Any

import pytest
from naming import naming, unnamed
from scripted import (
    FORM,
    SAMPLE,
    Json,
    as_legacy,
    as_modern,
    calling,
    conversation,
    interim,
    opening_client,
    works,
)

from trio_mcp.client import Handlers, accept, accept_defaults, decline
from trio_mcp.errors import CapabilityError, LimitExceeded
from trio_mcp.protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from trio_mcp.protocol.meta import CLIENT_CAPABILITIES
from trio_mcp.types import ElicitRequestFormParams, Root

FIELDS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
    "off": {"type": "boolean", "default": False},
    "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": ["a"]},
    "note": {"type": "string"},
}
DEFAULTS = {
    "name": "John Doe",
    "age": 30,
    "score": 95.5,
    "status": "active",
    "verified": True,
    "off": False,
    "tags": ["a"],
}
URL = {"mode": "url", "message": "Log in", "url": "https://example.test/login", "elicitationId": "e1"}


def form(required: list[str] | None = None) -> ElicitRequestFormParams:
    schema = {"type": "object", "properties": FIELDS, "required": required or []}
    return ElicitRequestFormParams.model_validate({"message": "?", "requestedSchema": schema})


# defaults


def test_every_field_with_a_default_has_it() -> None:
    assert accept_defaults(form()) == accept(**DEFAULTS)


def test_what_is_given_beside_the_defaults_fills_in_and_replaces() -> None:
    assert accept_defaults(form(["note"]), note="hi", age=7) == accept(**{**DEFAULTS, "note": "hi", "age": 7})


def test_a_required_field_without_a_value_declines_the_form() -> None:
    assert accept_defaults(form(["note"])) == decline()


async def test_the_defaults_can_stand_in_for_a_user() -> None:
    async with conversation(as_legacy, on_elicit=accept_defaults) as (_client, wire, _start):
        await wire.ask(
            "q", "elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": FIELDS}}
        )
        assert (await wire.answer("q"))["result"] == {"action": "accept", "content": DEFAULTS}


# pages to open


async def test_a_page_to_open_reaches_its_own_handler() -> None:
    seen: list[str] = []

    async def opened(params: Any) -> Any:
        seen.append(params.url)
        return accept()

    async with conversation(as_legacy, on_elicit_url=opened, on_elicit=lambda _: decline()) as (_client, wire, _start):
        assert (await wire.answer_to("elicitation/create", URL))["result"]["action"] == "accept"
        await wire.ask("r", "elicitation/create", FORM)
        assert (await wire.answer("r"))["result"]["action"] == "decline"
    assert seen == ["https://example.test/login"]


# what a client says it can answer


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
    assert Handlers(**handlers).capabilities.wire() == declared
    async with opening_client(mode="legacy", **handlers) as (_client, wire, _opened):
        assert (await wire.request("initialize"))["params"]["capabilities"] == declared
    async with conversation(as_modern, **handlers) as (client, wire, start):
        start(client.list_tools)
        modern = {name: {} if name == "roots" else value for name, value in declared.items()}
        assert (await wire.request("tools/list"))["params"]["_meta"][CLIENT_CAPABILITIES] == modern


# what was never declared


@pytest.mark.parametrize(
    ("handlers", "method", "params"),
    [
        ({"on_elicit": decline}, "elicitation/create", URL),
        ({"on_elicit_url": decline}, "elicitation/create", FORM),
        (
            {"on_sample": lambda _params: "hi"},
            "sampling/createMessage",
            {**SAMPLE, "tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
        ),
        ({"on_sample": lambda _params: "hi"}, "sampling/createMessage", {**SAMPLE, "toolChoice": {"mode": "auto"}}),
    ],
    ids=["url", "form", "tools", "tool choice"],
)
async def test_a_question_of_a_kind_that_was_not_declared_is_refused_as_the_specification_says(
    handlers: Json, method: str, params: Json
) -> None:
    async with conversation(as_legacy, **handlers) as (_client, wire, _start):
        assert (await wire.answer_to(method, params))["error"]["code"] == INVALID_PARAMS
    async with conversation(as_modern, **handlers) as (client, wire, start):
        call = start(client.call_tool, "book")
        await wire.reply("tools/call", interim({"q": {"method": method, "params": params}}))
        with pytest.raises(CapabilityError):
            await call.result()
        await works(client, wire, start)


# handlers that return the wrong thing, or fail

FORM_ANSWERS = ["on_elicit", "accept(field=value)", "decline()", "dismiss()"]
NO_ANSWERS: list[tuple[str, object, str, Json, list[str]]] = [
    ("on_elicit", {"seat": "1A"}, "elicitation/create", FORM, [*FORM_ANSWERS, "{'seat': '1A'}"]),
    ("on_elicit", True, "elicitation/create", FORM, [*FORM_ANSWERS, "True"]),
    ("on_elicit", None, "elicitation/create", FORM, [*FORM_ANSWERS, "None"]),
    ("on_elicit_url", None, "elicitation/create", URL, ["on_elicit_url", "accept()", "decline()", "dismiss()", "None"]),
    ("on_sample", 5, "sampling/createMessage", SAMPLE, ["on_sample", "CreateMessageResult", "5"]),
    ("on_roots", "/tmp", "roots/list", {}, ["on_roots", "pathlib.Path", "Root", "'/tmp'"]),
    ("on_roots", None, "roots/list", {}, ["on_roots", "pathlib.Path", "Root", "None"]),
    ("on_roots", ["/tmp"], "roots/list", {}, ["on_roots", "pathlib.Path", "Root", "'/tmp'"]),
]


@pytest.mark.parametrize(("handler", "value", "method", "params", "names"), NO_ANSWERS)
async def test_a_handler_that_returns_no_answer_is_named_with_what_it_should_return(
    handler: str, value: object, method: str, params: Json, names: list[str]
) -> None:
    handlers: dict[str, Any] = {handler: (lambda: value) if handler == "on_roots" else (lambda _params: value)}
    async with calling(as_modern, handlers) as (wire, call, request):
        await wire.respond(request, interim({"k": {"method": method, "params": params}}))
        with pytest.raises(TypeError, match=naming(*names)):
            await call.result()


@pytest.mark.parametrize(("handler", "value", "method", "params", "names"), NO_ANSWERS)
async def test_a_legacy_server_hears_that_the_handler_failed_and_the_log_how(
    handler: str, value: object, method: str, params: Json, names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    handlers: dict[str, Any] = {handler: (lambda: value) if handler == "on_roots" else (lambda _params: value)}
    async with conversation(as_legacy, **handlers) as (_client, wire, _start):
        error = (await wire.answer_to(method, params))["error"]
        assert error["code"] == INTERNAL_ERROR
        assert unnamed(error["message"], method) == []
    assert unnamed(caplog.text, *names) == []


async def test_the_reason_of_an_error_of_ours_reaches_the_server() -> None:
    def failing(_params: object) -> Any:
        raise LimitExceeded("no more than three questions")

    async with conversation(as_legacy, on_elicit=failing) as (_client, wire, _start):
        message = (await wire.answer_to("elicitation/create", FORM))["error"]["message"]
        assert unnamed(message, "elicitation/create", "no more than three questions") == []


@pytest.mark.parametrize("uri", ["https://example.com/", "/srv", "", "file:", "files:///srv"])
async def test_a_root_that_is_no_file_is_refused_before_it_is_sent(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    async with conversation(as_legacy, on_roots=lambda: [Root(uri=uri)]) as (_client, wire, _start):
        assert "error" in await wire.answer_to("roots/list", {})
    assert "file://" in caplog.text


@pytest.mark.parametrize("method", ["ping", "roots/list", "sampling/createMessage", "no/such/method"])
async def test_a_request_of_a_modern_server_is_not_answered(method: str) -> None:
    async with conversation(as_modern, on_roots=list, on_sample=lambda _params: "x") as (client, wire, start):
        await wire.ask("q", method, SAMPLE)
        await wire.silence()
        await works(client, wire, start)
