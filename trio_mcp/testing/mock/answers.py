"""Turning the answers of a script into the results that a client sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pydantic_core import to_jsonable_python

from ...client import accept
from ...protocol.schema.json_schema import Schema
from ...scripts import sample_result
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
)

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
        AssertionError: the form has several fields, or the value is no JSON.
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


def mock_sample(name: str, answer: object, params: Model) -> CreateMessageResult:
    """Return the answer to a sampling request.

    Raises:
        AssertionError: it cannot be one, or it calls a tool that was not offered, or with arguments that do not fit. A
            `CreateMessageResult` and an `unchecked_tool_use` are sent as they are.
    """
    assert isinstance(params, CreateMessageRequestParams)
    try:
        return sample_result(name, answer, params, model=MODEL)
    except TypeError as error:
        raise AssertionError(str(error)) from None
