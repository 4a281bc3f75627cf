"""Answering forms by the question that is asked: a handler for each key that a tool has declared.

A tool, prompt or resource publishes the questions that it may ask in its `_meta`, and each form that it sends names the tool
and the key (`trio-mcp/elicit`). In a round of another server, the question's key in the round counts as its key, and the tool is
the one that was called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from ..base.checks import check_callable, check_str
from ..base.logs import peer_logger
from ..protocol.revisions import ELICIT, ELICITS
from ..types import ElicitRequestFormParams, ElicitResult, JsonValue, Prompt, Resource, ResourceTemplate, Tool
from .handlers import ChoosesByKey, OnElicit, decline
from .sampling import maybe_await

H = TypeVar("H", bound=OnElicit)


class Named(Protocol):
    """A tool, prompt or resource, listed or registered."""

    @property
    def name(self) -> str:
        """Its name."""
        ...


class Keyed(Protocol):
    """A question that a tool declares, such as `trio_mcp.Elicit`."""

    @property
    def key(self) -> str:
        """Its key."""
        ...


logger = peer_logger("trio_mcp.client")


class ElicitRouter(ChoosesByKey):
    """Chooses the handler of a form by the tool that asks and the key of its question; pass it as `on_elicit`.

        router = ElicitRouter()

        @router.on("book_flight", "seat")
        async def choose_seat(asked: ElicitRequestFormParams) -> ElicitResult:
            return accept(seat="aisle")

        async with Client.connect(url, on_elicit=router) as client:
            router.check(await client.list_tools())

    A form without a handler goes to `default`, and is declined if there is none. An exception of a handler does not count as a
    decline: a legacy server receives an error, and a call to a modern server raises the exception.

    Args:
        default: answers the forms that have no handler, and those that name no key.
    """

    def __init__(self, *, default: OnElicit | None = None) -> None:
        if default is not None:
            check_callable("default", default)
        self._default = default
        self._handlers: dict[tuple[str, str], OnElicit] = {}

    def on(self, tool: str | Named, key: str | Keyed) -> Callable[[H], H]:
        """Register a function, plain or async, that answers one question of a tool, prompt or resource.

        Args:
            tool: its name, or an object that has it: a `Tool` that was listed or registered. The function of a tool does not do,
                since it may be registered with another name.
            key: the key of the question, or its `Elicit`.

        Raises:
            ValueError: the question has a handler.
            TypeError: `tool` or `key` is something else, or what is registered cannot be called.
        """
        tool = check_str("tool", tool if isinstance(tool, str) else getattr(tool, "name", tool))
        key = check_str("key", key if isinstance(key, str) else getattr(key, "key", key))

        def add(handler: H) -> H:
            check_callable(f"the handler of {tool}.{key}", handler)
            if (tool, key) in self._handlers:
                raise ValueError(f"{tool}.{key} has a handler already")
            self._handlers[tool, key] = handler
            return handler

        return add

    def missing(self, listed: Iterable[Tool | Prompt | Resource | ResourceTemplate]) -> list[tuple[str, str]]:
        """Return the name and the key of each question that was declared in a listing and has no handler, in its order."""
        return [asked for asked in declared(listed) if asked not in self._handlers]

    def check(self, listed: Iterable[Tool | Prompt | Resource | ResourceTemplate]) -> None:
        """Check that every question of a listing has a handler, and that every handler of a listed tool has a question.

        Raises:
            LookupError: it is not so; the message names each of them.
        """
        offers = list(listed)
        questions, names = set(declared(offers)), {offer.name for offer in offers}
        problems = [f"no handler for {tool}.{key}" for tool, key in self.missing(offers)]
        # A handler for another server's tool, or for a tool that this client cannot see, may be there all the same.
        problems += [
            f"{tool} does not declare {key}"
            for tool, key in self._handlers
            if tool in names and (tool, key) not in questions
        ]
        if problems:
            raise LookupError(f"the handlers do not match the questions: {'; '.join(problems)}")

    async def __call__(self, params: ElicitRequestFormParams) -> ElicitResult:
        """Answer a form with the handler of its question. Raises what the handler raises."""
        question = question_of(params)
        handler = self._handlers.get(question, self._default) if question is not None else self._default
        if handler is None:
            logger.warning("no handler for the question %s: it was declined", question or "without a key")
            return decline()
        return await maybe_await(handler(params))

    def __repr__(self) -> str:
        return f"<ElicitRouter {', '.join('.'.join(question) for question in self._handlers) or 'without handlers'}>"


def question_of(params: ElicitRequestFormParams) -> tuple[str, str] | None:
    """Return the tool and the key that a form names, or None."""
    match (params.meta or {}).get(ELICIT):
        case {"tool": str() as tool, "key": str() as key}:
            return tool, key
        case _:
            return None


def declared(listed: Iterable[Tool | Prompt | Resource | ResourceTemplate]) -> list[tuple[str, str]]:
    """Return the name and the key of each question that a listing declares."""
    return [(offer.name, key) for offer in listed for key in keys_of((offer.meta or {}).get(ELICITS))]


def keys_of(published: JsonValue) -> list[str]:
    # Another server may use the member for something else.
    return list(published) if isinstance(published, Mapping) else []
