"""Completion: suggestions for an argument while it is being typed."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from .base import Integer, Model
from .messages import RequestParams, Result


class PromptReference(Model):
    """A prompt, by name."""

    type: Literal["ref/prompt"] = "ref/prompt"
    name: str
    title: str | None = None


class ResourceTemplateReference(Model):
    """A resource template, by URI or template."""

    type: Literal["ref/resource"] = "ref/resource"
    uri: str


Reference: TypeAlias = Annotated[PromptReference | ResourceTemplateReference, Field(discriminator="type")]


class CompletionArgument(Model):
    """The argument being typed, and what there is of it."""

    name: str
    value: str


class CompletionContext(Model):
    """The arguments settled before (since 2025-06-18)."""

    arguments: dict[str, str] | None = None


class CompleteRequestParams(RequestParams):
    """Suggest values for an argument."""

    ref: Reference
    argument: CompletionArgument
    context: CompletionContext | None = None


class Completion(Model):
    """At most 100 values, and whether there are more."""

    values: list[str]
    total: Integer | None = None
    has_more: bool | None = None


class CompleteResult(Result):
    """The suggestions."""

    completion: Completion
