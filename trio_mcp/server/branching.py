"""Branches as a handler sees them: what one may be told, what it has from its parent, and the group that runs them.

A conversation with a model is a tuple that its lane replaces when something was said. A branch starts with a copy of it, so what
it says afterwards is its own: nothing finds its way back to the parent, or across to a sibling, but by what the branch returns.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypedDict, TypeVar, Unpack

from ..runtime import Branch, Branches, TokenBudget
from ..types import SamplingMessage, TextContent
from .options import check_count, check_messages, check_timeout, options_of

if TYPE_CHECKING:
    from .context import Context

T = TypeVar("T")


Conversation = tuple[SamplingMessage, ...]
"""What was said to a model and by it, oldest first."""


class BranchOptions(TypedDict, total=False):
    """What may be said of a branch.

    messages: what it finds in its conversation, after what it inherits.
    inherit_messages: whether it begins with its parent's conversation (True).
    system_prompt: what its samples say to the model beforehand, instead of its parent's.
    inherit_system_prompt: whether it has its parent's system prompt when it is given none (True).
    max_depth: how deep branches may nest here and below, counted from the body, which is at 0. It may be more than the tool
        allows, and never more than the server does (`ServiceOptions.max_depth`).
    token_budget: how many tokens its samples, and those of its branches, may use; they count for its parent's budget too.
    timeout: seconds after which it is cancelled, and fails with `BranchLimit`.
    allow_elicit: whether it, and its branches, may ask the user (True).
    """

    messages: Sequence[SamplingMessage]
    inherit_messages: bool
    system_prompt: str | None
    inherit_system_prompt: bool
    max_depth: int
    token_budget: int
    timeout: float
    allow_elicit: bool


@dataclass(frozen=True, slots=True)
class BranchSettings:
    """The same as a value, with defaults; see `BranchOptions`."""

    messages: Sequence[SamplingMessage] = ()
    inherit_messages: bool = True
    system_prompt: str | None = None
    inherit_system_prompt: bool = True
    max_depth: int | None = None
    token_budget: int | None = None
    timeout: float = math.inf
    allow_elicit: bool = True

    def __post_init__(self) -> None:
        check_timeout(self.timeout)
        check_count("max_depth", self.max_depth)
        check_count("token_budget", self.token_budget)
        check_messages(self.messages)


PLAIN = BranchSettings()


def branch_settings(options: Mapping[str, object]) -> BranchSettings:
    """The options of a branch as a value; raises `TypeError` or `ValueError` for what cannot be said of one."""
    return options_of(BranchSettings, options, "a branch") if options else PLAIN


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What a tool says of the branches of its calls: how deep they nest, and how many tokens a call may use."""

    max_depth: int | None = None
    token_budget: int | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for a body or a branch from its beginning to its end.

    Attributes:
        keys: the questions that the tool has declared; see `Elicit`.
        max_depth: how deep its branches may be, the server's own limit aside.
        budget: what its samples are charged to; None where nobody counts.
        parent_messages, parent_system_prompt: its parent's when it was started.
    """

    keys: frozenset[str] = frozenset()
    max_depth: int = sys.maxsize
    budget: TokenBudget | None = None
    allow_elicit: bool = True
    system_prompt: str | None = None
    parent_messages: Conversation = ()
    parent_system_prompt: str | None = None

    def child(self, settings: BranchSettings, messages: Conversation) -> Terms:
        """The terms of a branch that is started now; `messages` are its parent's."""
        budget, prompt = self.budget, settings.system_prompt
        if settings.token_budget is not None:
            budget = TokenBudget(settings.token_budget, budget, "a branch of this call")
        if prompt is None and settings.inherit_system_prompt:
            prompt = self.system_prompt
        return Terms(
            keys=self.keys,
            max_depth=self.max_depth if settings.max_depth is None else settings.max_depth,
            budget=budget,
            allow_elicit=self.allow_elicit and settings.allow_elicit,
            system_prompt=prompt,
            parent_messages=messages,
            parent_system_prompt=self.system_prompt,
        )


class BranchGroup:
    """Branches that run side by side and are joined at the end of the block."""

    __slots__ = ("_branches", "_ctx")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._branches = Branches(ctx._lane)  # noqa: SLF001  one room

    async def __aenter__(self) -> Self:
        await self._branches.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> bool | None:
        return await self._branches.__aexit__(*exception)  # type: ignore[arg-type]  # noqa: ASYNC102

    def start(self, fn: Callable[[Context], Awaitable[T]], **options: Unpack[BranchOptions]) -> Branch[T]:
        """Start `fn(child)` at once; `await handle.result()` inside the block, `handle.value` after it.

        Raises:
            BranchLimit: the call has too many branches, or they nest too deep; nothing of `fn` has run.
            RuntimeError: outside the `async with` block.
            TypeError, ValueError: an option cannot be said of a branch.
        """
        settings = branch_settings(options)
        work, max_depth = self._ctx._begun(fn, settings)  # noqa: SLF001
        return self._branches.start(work, timeout=settings.timeout, max_depth=max_depth)


def own(messages: Iterable[SamplingMessage]) -> Conversation:
    """Messages that nobody else can change. A message is frozen, but what hangs on it may be a list or a dict."""
    return tuple(message if is_plain(message) else message.model_copy(deep=True) for message in messages)


def is_plain(message: SamplingMessage) -> bool:
    """Nothing hangs on it but text."""
    block = message.content
    return (
        isinstance(block, TextContent)
        and block.annotations is None
        and block.meta is message.meta is None
        and not block.model_extra
        and not message.model_extra
    )
