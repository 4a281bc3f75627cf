"""Turning the answers of a script into the results that a client sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from pydantic_core import to_jsonable_python

from ...client import accept
from ...protocol.schema.json_schema import Schema
from ...sampling import SCHEMA_TOOL
from ...scripts import UncheckedToolUse, sample_result
from ...types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    JsonObject,
    JsonValue,
    Model,
    RequestedSchema,
    Tool,
    ToolUseContent,
)
from .questions import Question

MODEL = "mock"
"""The name of the model that a script stands for."""


def elicit_result(name: str, answer: object, params: Model) -> ElicitResult:
    """Return the answer to a form or a URL.

    Args:
        name: names the answer in errors.

    Raises:
        AssertionError: it does not fit. An `ElicitResult` is sent as it is: so a test can send what a faulty client would.
    """
    if isinstance(answer, ElicitResult):
        return answer
    if not isinstance(params, ElicitRequestFormParams):
        assert isinstance(params, ElicitRequestURLParams)
        raise AssertionError(
            f"{name}: a page is answered with accept(), decline() or dismiss(), not with {answer!r:.200}"
        )
    form = params.requested_schema
    content = form_content(name, answer, form)
    unknown = [field for field in content if field not in form.properties]
    problem = Schema.compile(form.wire(), "requestedSchema").check(content)
    if unknown:
        problem = f"the form has no field {', '.join(unknown)}; it has {', '.join(form.properties) or 'none'}"
    if problem is not None:
        raise AssertionError(f"{name} does not fit the form {params.message!r}: {problem}; it is {content}")
    return accept(**content)


def form_content(name: str, answer: object, form: RequestedSchema) -> JsonObject:
    """Return what a form is filled in with: a model or a mapping as it is, any other value as the only field.

    Raises:
        AssertionError: the form has several fields, or the value is not JSON.
    """
    try:
        value = cast("JsonValue", to_jsonable_python(answer, by_alias=True))
    except ValueError as error:
        raise AssertionError(f"{name} cannot be sent: {error}") from None
    if isinstance(value, Mapping):
        return dict(value)
    if not form.properties:
        raise AssertionError(
            f"{name} is one value, {value!r:.200}, and the form has no fields: use {{}}, an empty dict"
        )
    if len(form.properties) != 1:
        fields = ", ".join(form.properties)
        raise AssertionError(f"{name} is one value, {value!r:.200}, and the form has the fields {fields}: use a dict")
    return {next(iter(form.properties)): value}


def mock_sample(name: str, answer: object, question: Question) -> CreateMessageResult:
    """Return the answer to a sampling request.

    Raises:
        AssertionError: it cannot be one, or it calls a tool that was not offered, or with arguments that do not fit. A
            `CreateMessageResult` and an `unchecked_tool_use` are sent as they are.
    """
    params = question.params
    assert isinstance(params, CreateMessageRequestParams)
    try:
        result = sample_result(name, answer, params, model=MODEL)
    except TypeError as error:
        raise AssertionError(str(error)) from None
    if result is not answer:
        for block in result.content if isinstance(result.content, list) else [result.content]:
            # Data is checked by what asked for it, which may ask again.
            if isinstance(block, ToolUseContent) and block.name != SCHEMA_TOOL:
                check_call(name, block, params.tools or [], question)
    return result


def check_call(name: str, call: ToolUseContent, tools: Sequence[Tool], question: Question) -> None:
    """Raise `AssertionError` if a call of a script fits none of the tools that were offered, and should."""
    if isinstance(call, UncheckedToolUse):
        return
    advice = f"asked: {question}; to send it all the same, write unchecked_tool_use(...)"
    offered = {tool.name: tool for tool in tools}
    tool = offered.get(call.name)
    if tool is None:
        there = f"the tools are {', '.join(offered)}" if offered else "no tools were offered"
        raise AssertionError(f"{name} calls the tool {call.name!r}, which was not offered; {there}; {advice}")
    problem = Schema.compile(tool.input_schema, "inputSchema").check(call.input)
    if problem is not None:
        raise AssertionError(f"{name} calls {call.name} with arguments that do not fit: {problem}; {advice}")
