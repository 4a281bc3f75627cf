"""What a client answers: the user's and the model's side of a server's questions.

A handler is a function of the question's params, plain or async; what it returns may be as short as it can be:
`accept(seat="aisle")`, `decline()`, a string for a sample, a list of folders for the roots.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

from ..errors import CapabilityError
from ..session import Answerer
from ..types import (
    ClientCapabilities,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitationCapability,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    ElicitValue,
    JsonValue,
    ListRootsResult,
    LoggingMessageNotificationParams,
    Model,
    Root,
    RootsCapability,
    SamplingCapability,
    TextContent,
)
from .checks import is_function

T = TypeVar("T")

OnElicit: TypeAlias = Callable[[ElicitRequestFormParams], ElicitResult | Awaitable[ElicitResult]]
OnElicitUrl: TypeAlias = Callable[[ElicitRequestURLParams], ElicitResult | Awaitable[ElicitResult]]
OnSample: TypeAlias = Callable[
    [CreateMessageRequestParams], CreateMessageResult | str | Awaitable[CreateMessageResult | str]
]
OnRoots: TypeAlias = Callable[[], Sequence[Root | Path] | Awaitable[Sequence[Root | Path]]]
OnLog: TypeAlias = Callable[[LoggingMessageNotificationParams], None]


def accept(**content: JsonValue) -> ElicitResult:
    """The user filled in the form: `accept(flight="TP1", seat="aisle")`."""
    return ElicitResult.model_validate({"action": "accept", "content": content})


def accept_defaults(params: ElicitRequestFormParams, **content: ElicitValue) -> ElicitResult:
    """The form as it came: every field that has a default has it (SEP-1034), and `content` fills in others or replaces some.

    It can stand in for a user: `on_elicit=accept_defaults`. A form with a required field that has no value is declined.
    """
    schema = params.requested_schema
    defaults: dict[str, ElicitValue] = {name: field.default for name, field in schema.properties.items()}
    filled: dict[str, ElicitValue] = {
        name: value for name, value in {**defaults, **content}.items() if value is not None
    }
    if not filled.keys() >= set(schema.required or ()):
        return decline()
    return ElicitResult(action="accept", content=filled)


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
    on_elicit_url: OnElicitUrl | None = None

    def __post_init__(self) -> None:
        for handler in fields(self):
            is_function(handler.name, getattr(self, handler.name))

    @property
    def capabilities(self) -> ClientCapabilities:
        """What to declare."""
        return ClientCapabilities(
            elicitation=self._elicitation,
            sampling=SamplingCapability() if self.on_sample else None,
            roots=RootsCapability(list_changed=True) if self.on_roots else None,
        )

    @property
    def _elicitation(self) -> ElicitationCapability | None:
        if self.on_elicit is None and self.on_elicit_url is None:
            return None
        return ElicitationCapability(form={} if self.on_elicit else None, url={} if self.on_elicit_url else None)

    @property
    def answerers(self) -> Mapping[str, Answerer]:
        """What serves each method that the server may ask for."""
        served: dict[str, Answerer] = {}
        if self._elicitation is not None:
            served["elicitation/create"] = self._elicit
        if self.on_sample is not None:
            served["sampling/createMessage"] = self._sample
        if self.on_roots is not None:
            served["roots/list"] = self._roots
        return served

    async def _elicit(self, params: Model) -> Model:
        match params:
            case ElicitRequestURLParams() if self.on_elicit_url is not None:
                return elicited("on_elicit_url", "accept()", await resolved(self.on_elicit_url(params)))
            case ElicitRequestFormParams() if self.on_elicit is not None:
                return elicited("on_elicit", "accept(field=value)", await resolved(self.on_elicit(params)))
        mode = "url" if isinstance(params, ElicitRequestURLParams) else "form"
        raise CapabilityError(f"the server asked in {mode} mode, which this client did not declare", {})

    async def _sample(self, params: Model) -> Model:
        assert self.on_sample is not None
        assert isinstance(params, CreateMessageRequestParams)
        if params.tools or params.tool_choice is not None:
            raise CapabilityError("the server asked for a sample with tools, which this client did not declare", {})
        answer: CreateMessageResult | str = await resolved(self.on_sample(params))
        if isinstance(answer, str):
            content = TextContent(text=answer)
            return CreateMessageResult(role="assistant", content=content, model="unnamed", stop_reason="endTurn")
        if not isinstance(answer, CreateMessageResult):
            raise TypeError(f"on_sample returns a string or a CreateMessageResult, not {answer!r:.80}")
        return answer

    async def _roots(self, _params: Model) -> Model:
        assert self.on_roots is not None
        roots: object = await resolved(self.on_roots())
        if isinstance(roots, str) or not isinstance(roots, Iterable):
            raise TypeError(f"on_roots returns a list of pathlib.Path or Root, not {roots!r:.80}")
        return ListRootsResult(roots=[as_root(root) for root in roots])


def elicited(handler: str, accepted: str, result: object) -> ElicitResult:
    """What a handler of a question returned.

    Raises:
        TypeError: it is no answer.
    """
    if not isinstance(result, ElicitResult):
        raise TypeError(f"{handler} returns {accepted}, decline() or dismiss(), not {result!r:.80}")
    return result


def as_root(root: object) -> Root:
    """A root as it is sent (L-ROOT-1c).

    Raises:
        ValueError: its URI is not that of a file.
        TypeError: it is no root.
    """
    if not isinstance(root, Root | Path):
        raise TypeError(f"each of what on_roots returns is a pathlib.Path or a Root, not {root!r:.80}")
    if isinstance(root, Path):
        return Root(uri=root.absolute().as_uri(), name=root.name)
    if not root.uri.startswith("file://"):
        raise ValueError(f"a root is a file:// URI, not {root.uri[:128]!r}")
    return root


async def resolved(value: T | Awaitable[T]) -> T:
    """The value of a plain or an async handler."""
    if isinstance(value, Awaitable):
        return cast("T", await value)
    return value
