"""What a client answers: the user's and the model's side of a server's questions.

A handler is a function of the question's params, plain or async; what it returns may be as short as it can be:
`accept(seat="aisle")`, `decline()`, a string for a sample, a list of folders for the roots.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

from ..session import Answerer
from ..types import (
    ClientCapabilities,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitationCapability,
    ElicitRequestFormParams,
    ElicitResult,
    JsonValue,
    ListRootsResult,
    LoggingMessageNotificationParams,
    Model,
    Root,
    RootsCapability,
    SamplingCapability,
    TextContent,
)

__all__ = ["Handlers", "OnElicit", "OnLog", "OnRoots", "OnSample", "accept", "decline", "dismiss"]

T = TypeVar("T")

OnElicit: TypeAlias = Callable[[ElicitRequestFormParams], ElicitResult | Awaitable[ElicitResult]]
OnSample: TypeAlias = Callable[
    [CreateMessageRequestParams], CreateMessageResult | str | Awaitable[CreateMessageResult | str]
]
OnRoots: TypeAlias = Callable[[], Sequence[Root | Path] | Awaitable[Sequence[Root | Path]]]
OnLog: TypeAlias = Callable[[LoggingMessageNotificationParams], None]


def accept(**content: JsonValue) -> ElicitResult:
    """The user filled in the form: `accept(flight="TP1", seat="aisle")`."""
    return ElicitResult.model_validate({"action": "accept", "content": content})


def decline() -> ElicitResult:
    """The user said no."""
    return ElicitResult(action="decline")


def dismiss() -> ElicitResult:
    """The user closed the question without choosing."""
    return ElicitResult(action="cancel")


@dataclass(frozen=True, slots=True)
class Handlers:
    """What this client can be asked; what is None is not declared to the server."""

    on_elicit: OnElicit | None = None
    on_sample: OnSample | None = None
    on_roots: OnRoots | None = None

    @property
    def capabilities(self) -> ClientCapabilities:
        """What to declare."""
        return ClientCapabilities(
            elicitation=ElicitationCapability(form={}) if self.on_elicit else None,
            sampling=SamplingCapability() if self.on_sample else None,
            roots=RootsCapability() if self.on_roots else None,
        )

    @property
    def answerers(self) -> Mapping[str, Answerer]:
        """What serves each method that the server may ask for."""
        served: dict[str, Answerer] = {}
        if self.on_elicit is not None:
            served["elicitation/create"] = self._elicit
        if self.on_sample is not None:
            served["sampling/createMessage"] = self._sample
        if self.on_roots is not None:
            served["roots/list"] = self._roots
        return served

    async def _elicit(self, params: Model) -> Model:
        assert self.on_elicit is not None
        assert isinstance(params, ElicitRequestFormParams)
        result: ElicitResult = await resolved(self.on_elicit(params))
        return result

    async def _sample(self, params: Model) -> Model:
        assert self.on_sample is not None
        assert isinstance(params, CreateMessageRequestParams)
        answer: CreateMessageResult | str = await resolved(self.on_sample(params))
        if isinstance(answer, str):
            content = TextContent(text=answer)
            return CreateMessageResult(role="assistant", content=content, model="unnamed", stop_reason="endTurn")
        return answer

    async def _roots(self, _params: Model) -> Model:
        assert self.on_roots is not None
        roots = await resolved(self.on_roots())
        return ListRootsResult(roots=[as_root(root) for root in roots])


def as_root(root: Root | Path) -> Root:
    return Root(uri=root.absolute().as_uri(), name=root.name) if isinstance(root, Path) else root


async def resolved(value: T | Awaitable[T]) -> T:
    """The value of a plain or an async handler."""
    if isinstance(value, Awaitable):
        return cast("T", await value)
    return value
