"""Completion: suggestions for an argument while the user types it."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from .base import Integer, Model
from .messages import RequestParams, Result


class PromptReference(Model):
    """Refers to a prompt by its name."""

    type: Literal["ref/prompt"] = "ref/prompt"
    name: str
    title: str | None = None


class ResourceTemplateReference(Model):
    """Refers to a resource template by its template, or to a resource by its URI."""

    type: Literal["ref/resource"] = "ref/resource"
    uri: str


Reference: TypeAlias = Annotated[PromptReference | ResourceTemplateReference, Field(discriminator="type")]


class CompletionArgument(Model):
    """The argument that the user types, and the text so far."""

    name: str
    value: str


class CompletionContext(Model):
    """The other arguments that already have values (since 2025-06-18)."""

    arguments: dict[str, str] | None = None


class CompleteRequestParams(RequestParams):
    """The params of `completion/complete`."""

    ref: Reference
    argument: CompletionArgument
    context: CompletionContext | None = None


class Completion(Model):
    """At most 100 suggested values, and whether there are more."""

    values: list[str]
    total: Integer | None = None
    has_more: bool | None = None


class CompleteResult(Result):
    """The result of `completion/complete`."""

    completion: Completion
