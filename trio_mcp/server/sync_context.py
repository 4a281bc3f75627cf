"""`SyncContext`: the context of a plain function, whose methods wait for their values in its thread."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypedDict, TypeVar, Unpack, overload

from .context import Context, StateT_co

if TYPE_CHECKING:
    from .. import types
    from ..runtime import CancelReason
    from ..session import Caller, RequestFacts
    from ..types import JsonObject, JsonValue, LoggingLevel
    from . import sampling
    from .branching import Messages
    from .elicit.elicitation import OnDecline
    from .elicit.elicits import Elicit
    from .elicit.exchanges import Elicited, KeyedElicited, UrlElicited
    from .elicit.forms import Titled
    from .elicit.url import Done, Url
    from .sampling.looper import MAX_ITERATIONS
    from .sampling.sampler import RETRIES

C = TypeVar("C")
T = TypeVar("T")

# For type checkers it is a protocol: Python cannot say that a class is another one whose coroutines are awaited. What the methods
# do, and raise, is in `Context`.

if TYPE_CHECKING:

    class AskOptions(TypedDict, total=False):
        reask: int
        timeout: float

    class RetryOptions(TypedDict, total=False):
        max_attempts: int
        on_decline: OnDecline
        timeout: float

    class SyncElicitation(Protocol):
        """`ctx.elicit` of a `SyncContext`."""

        @overload
        def __call__(  # type: ignore[overload-overlap]
            self, message: str, schema: type[T] | Elicit[None, T], **options: Unpack[AskOptions]
        ) -> Elicited[T]: ...
        @overload
        def __call__(
            self, message: str, schema: Elicit[C, T], *, context: C, **options: Unpack[AskOptions]
        ) -> KeyedElicited[T, C]: ...
        @overload
        def __call__(
            self, message: str, schema: list[str] | Titled, **options: Unpack[AskOptions]
        ) -> Elicited[str]: ...
        @overload
        def __call__(self, message: str, schema: None = None, **options: Unpack[AskOptions]) -> Elicited[None]: ...
        @overload
        def __call__(self, message: str, schema: object, **options: Unpack[AskOptions]) -> Elicited[JsonValue]: ...

        @overload
        def strict(  # type: ignore[overload-overlap]
            self, message: str, schema: type[T] | Elicit[None, T], **options: Unpack[AskOptions]
        ) -> T: ...
        @overload
        def strict(self, message: str, schema: Elicit[C, T], *, context: C, **options: Unpack[AskOptions]) -> T: ...
        @overload
        def strict(self, message: str, schema: list[str] | Titled, **options: Unpack[AskOptions]) -> str: ...
        @overload
        def strict(self, message: str, schema: None = None, **options: Unpack[AskOptions]) -> None: ...
        @overload
        def strict(self, message: str, schema: object, **options: Unpack[AskOptions]) -> JsonValue: ...

        @overload
        def with_retry(  # type: ignore[overload-overlap]
            self, message: str, schema: type[T] | Elicit[None, T], **options: Unpack[RetryOptions]
        ) -> Elicited[T]: ...
        @overload
        def with_retry(
            self, message: str, schema: Elicit[C, T], *, context: C, **options: Unpack[RetryOptions]
        ) -> KeyedElicited[T, C]: ...
        @overload
        def with_retry(
            self, message: str, schema: list[str] | Titled, **options: Unpack[RetryOptions]
        ) -> Elicited[str]: ...
        @overload
        def with_retry(self, message: str, schema: None = None, **options: Unpack[RetryOptions]) -> Elicited[None]: ...
        @overload
        def with_retry(self, message: str, schema: object, **options: Unpack[RetryOptions]) -> Elicited[JsonValue]: ...

    class SyncContext(Protocol[StateT_co]):
        """The context of a plain function."""

        @property
        def elicit(self) -> SyncElicitation: ...
        def elicit_url(
            self,
            message: str,
            url: Url,
            *,
            elicitation_id: str | None = None,
            done: Done | None = None,
            wait: bool = True,
            timeout: float = math.inf,
        ) -> UrlElicited: ...

        @overload
        def sample(
            self,
            prompt: sampling.Prompt | None = None,
            *,
            tools: Sequence[sampling.OfferedTool] | None = None,
            tool_choice: sampling.ToolChoiceMode | None = None,
            returns: None = None,
            **options: Unpack[sampling.SampleOptions],
        ) -> sampling.Sampled: ...
        @overload
        def sample(
            self,
            prompt: sampling.Prompt | None = None,
            *,
            returns: type[T],
            retries: int = RETRIES,
            **options: Unpack[sampling.SampleOptions],
        ) -> sampling.Sampled[T]: ...
        @overload
        def sample(
            self,
            prompt: sampling.Prompt | None = None,
            *,
            returns: JsonObject,
            retries: int = RETRIES,
            **options: Unpack[sampling.SampleOptions],
        ) -> sampling.Sampled[JsonValue]: ...
        @overload
        def sample(
            self,
            prompt: sampling.Prompt | None = None,
            *,
            returns: object,
            retries: int = RETRIES,
            **options: Unpack[sampling.SampleOptions],
        ) -> sampling.Sampled[object]: ...

        @overload
        def sample_schema(
            self,
            prompt: sampling.Prompt | None,
            returns: type[T],
            *,
            retries: int = RETRIES,
            **options: Unpack[sampling.SampleOptions],
        ) -> sampling.Sampled[T]: ...
        @overload
        def sample_schema(
            self,
            prompt: sampling.Prompt | None,
            returns: JsonObject,
            *,
            retries: int = RETRIES,
            **options: Unpack[sampling.SampleOptions],
        ) -> sampling.Sampled[JsonValue]: ...
        @overload
        def sample_schema(
            self,
            prompt: sampling.Prompt | None,
            returns: object,
            *,
            retries: int = RETRIES,
            **options: Unpack[sampling.SampleOptions],
        ) -> sampling.Sampled[object]: ...

        def sample_tools(
            self,
            prompt: sampling.Prompt | None,
            tools: Sequence[sampling.OfferedTool],
            *,
            tool_choice: sampling.ToolChoiceMode = "required",
            retries: int = RETRIES,
            **options: Unpack[sampling.SampleOptions],
        ) -> sampling.Sampled: ...
        def run_tool_loop(
            self,
            prompt: sampling.Prompt | Sequence[types.SamplingMessage] | None,
            tools: Sequence[sampling.LoopTool],
            *,
            max_iterations: int = MAX_ITERATIONS,
            tool_choice: sampling.ToolChoiceMode | None = None,
            progress: bool = False,
            **options: Unpack[sampling.SampleOptions],
        ) -> sampling.ToolLoopResult: ...
        def add_tool_results(self, results: Mapping[str, sampling.ToolOutput]) -> None: ...
        def roots(self, *, timeout: float = math.inf) -> list[types.Root]: ...

        @overload
        def step(self, name: str, fn: Callable[..., Awaitable[T]], *args: object, idempotent: bool = False) -> T: ...
        @overload
        def step(self, name: str, fn: Callable[..., T], *args: object, idempotent: bool = False) -> T: ...

        def become_task(self) -> None: ...
        def read_resource(self, uri: str) -> types.ReadResourceResult: ...
        def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> types.GetPromptResult: ...

        def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None: ...
        def log(self, level: LoggingLevel, data: JsonValue, *, logger: str | None = None) -> None: ...
        def debug(self, data: JsonValue, logger: str | None = None) -> None: ...
        def info(self, data: JsonValue, logger: str | None = None) -> None: ...
        def warning(self, data: JsonValue, logger: str | None = None) -> None: ...
        def error(self, data: JsonValue, logger: str | None = None) -> None: ...
        def status(self, message: str) -> None: ...
        def end_stream(self, retry: float | None = None) -> None: ...

        @property
        def state(self) -> StateT_co: ...
        @property
        def request(self) -> RequestFacts: ...
        @property
        def caller(self) -> Caller | None: ...
        @property
        def deadline(self) -> float: ...
        @property
        def cancel_reason(self) -> CancelReason | None: ...
        @property
        def messages(self) -> Messages: ...
        @property
        def system_prompt(self) -> str | None: ...
        @property
        def depth(self) -> int: ...

else:

    class SyncContext(Context[StateT_co], Generic[StateT_co]):
        """The context of a plain function: the methods of `Context` without `await`, for type checkers.

            @server.tool
            def convert(name: str, ctx: SyncContext) -> str:
                ctx.progress(1, total=2)
                return "kept" if ctx.elicit.strict(f"Overwrite {name}?", bool) is False else replace(name)

        A plain function runs in a thread, and there each method waits for its value. At run time the function gets a `Context`.
        It has no branches: these run on Trio. A cancelled call raises `trio.Cancelled` in the thread where it waits, and at its
        next method. Call the methods in the function's own thread: others, such as those of a pool, get a `RuntimeError`.
        """

        __slots__ = ()
        _waits = True
