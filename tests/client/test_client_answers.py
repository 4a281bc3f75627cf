"""What a client answers: forms with defaults, pages to open, and what it never said it could answer."""

from __future__ import annotations

from typing import Any

import eras
import pytest
from naming import naming, unnamed
from scripted import Json, conversation, said

from trio_mcp.client import Handlers, accept, accept_defaults, decline
from trio_mcp.errors import CapabilityError, LimitExceeded
from trio_mcp.protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from trio_mcp.protocol.meta import CLIENT_CAPABILITIES
from trio_mcp.types import ElicitRequestFormParams

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
FORM = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {}}}
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}


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
    async with conversation(eras.legacy, on_elicit=accept_defaults) as (_client, wire, _start):
        await wire.ask(
            "q", "elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": FIELDS}}
        )
        assert (await wire.reply("q"))["result"] == {"action": "accept", "content": DEFAULTS}


# pages to open


async def test_a_page_to_open_reaches_its_own_handler() -> None:
    seen: list[str] = []

    async def opened(params: Any) -> Any:
        seen.append(params.url)
        return accept()

    async with conversation(eras.legacy, on_elicit_url=opened, on_elicit=lambda _params: decline()) as (
        _,
        wire,
        _start,
    ):
        await wire.ask("q", "elicitation/create", URL)
        assert (await wire.reply("q"))["result"]["action"] == "accept"
        await wire.ask("r", "elicitation/create", FORM)
        assert (await wire.reply("r"))["result"]["action"] == "decline"
    assert seen == ["https://example.test/login"]


@pytest.mark.parametrize(
    ("handlers", "declared"),
    [
        ({}, {}),
        ({"on_elicit": decline}, {"elicitation": {"form": {}}}),
        ({"on_elicit_url": decline}, {"elicitation": {"url": {}}}),
        ({"on_elicit": decline, "on_elicit_url": decline}, {"elicitation": {"form": {}, "url": {}}}),
    ],
)
async def test_only_the_modes_with_a_handler_are_declared(handlers: Json, declared: Json) -> None:
    assert Handlers(**handlers).capabilities.wire() == declared
    async with conversation(eras.modern, **handlers) as (client, wire, start):
        start(client.list_tools)
        assert (await wire.request("tools/list"))["params"]["_meta"][CLIENT_CAPABILITIES] == declared


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
    async with conversation(eras.legacy, **handlers) as (_client, wire, _start):
        await wire.ask("q", method, params)
        assert (await wire.reply("q"))["error"]["code"] == INVALID_PARAMS
    async with conversation(eras.modern, **handlers) as (client, wire, start):
        call = start(client.call_tool, "book")
        question = {"q": {"method": method, "params": params}}
        await wire.respond(
            await wire.request("tools/call"), {"resultType": "input_required", "inputRequests": question}
        )
        with pytest.raises(CapabilityError):
            await call.result()
        call = start(client.call_tool, "book")
        await wire.respond(await wire.request("tools/call"), said("fine"))
        await call.result()


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
    async with conversation(eras.modern, **handlers) as (client, wire, start):
        call = start(client.call_tool, "ask")
        questions = {"k": {"method": method, "params": params}}
        await wire.respond(
            await wire.request("tools/call"), {"resultType": "input_required", "inputRequests": questions}
        )
        with pytest.raises(TypeError, match=naming(*names)):
            await call.result()


@pytest.mark.parametrize(("handler", "value", "method", "params", "names"), NO_ANSWERS)
async def test_in_the_handshake_era_the_server_hears_that_the_handler_failed_and_the_log_how(
    handler: str, value: object, method: str, params: Json, names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    handlers: dict[str, Any] = {handler: (lambda: value) if handler == "on_roots" else (lambda _params: value)}
    async with conversation(eras.legacy, **handlers) as (_client, wire, _start):
        await wire.ask("q", method, params)
        error = (await wire.reply("q"))["error"]
        assert error["code"] == INTERNAL_ERROR
        assert unnamed(error["message"], method) == []
    assert unnamed(caplog.text, *names) == []


async def test_the_reason_of_an_error_of_ours_reaches_the_server() -> None:
    def failing(_params: object) -> Any:
        raise LimitExceeded("no more than three questions")

    async with conversation(eras.legacy, on_elicit=failing) as (_client, wire, _start):
        await wire.ask("q", "elicitation/create", FORM)
        message = (await wire.reply("q"))["error"]["message"]
        assert unnamed(message, "elicitation/create", "no more than three questions") == []
