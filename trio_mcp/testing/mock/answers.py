"""Turning the answers of a script into the results that a client sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pydantic_core import to_jsonable_python

from ...client import accept
from ...protocol.schema.json_schema import Schema
from ...types import (
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    JsonObject,
    JsonValue,
    Model,
    RequestedSchema,
    TextContent,
)

MODEL = "mock"
"""The name of the model that answers with a text."""


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


def sample_result(name: str, answer: object) -> CreateMessageResult:
    """Return the answer to a sampling request: a text becomes a whole result.

    Raises:
        AssertionError: it is neither a string nor a `CreateMessageResult`.
    """
    if isinstance(answer, CreateMessageResult):
        return answer
    if not isinstance(answer, str):
        raise AssertionError(
            f"{name}: a sample is answered with a string or a CreateMessageResult, not {answer!r:.200}"
        )
    content = TextContent(text=answer)
    return CreateMessageResult(role="assistant", content=content, model=MODEL, stop_reason="endTurn")
