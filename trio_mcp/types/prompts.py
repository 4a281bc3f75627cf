"""Prompts: listing and rendering them."""

from typing import Annotated

from pydantic import BeforeValidator

from .base import Model
from .content import ContentBlock, Role, no_text
from .messages import InputResponseRequestParams, Result
from .offered import Offered
from .pages import CacheableResult, PaginatedResult


class PromptArgument(Model):
    """An argument of a prompt."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class Prompt(Offered):
    """A prompt, or a template that arguments fill."""

    arguments: list[PromptArgument] | None = None


class PromptMessage(Model):
    """One message of a prompt."""

    role: Role
    content: Annotated[ContentBlock, BeforeValidator(no_text)]


class ListPromptsResult(PaginatedResult, CacheableResult):
    """A page of prompts."""

    prompts: list[Prompt]


class GetPromptRequestParams(InputResponseRequestParams):
    """The params of `prompts/get`."""

    name: str
    arguments: dict[str, str] | None = None


class GetPromptResult(Result):
    """A rendered prompt."""

    description: str | None = None
    messages: list[PromptMessage]
