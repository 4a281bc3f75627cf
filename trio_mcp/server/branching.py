"""Branches as a handler sees them: their options, and what a branch has from its parent.

A conversation with a model is a tuple, which its lane replaces after each answer. A branch starts with its parent's tuple, so
what it adds stays its own: only the value that the branch returns reaches the parent or a sibling.

    body        messages (a, b)
    branch 1    starts with (a, b), samples: (a, b, c, d)
    body        still has (a, b), whatever the branch has added
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict, TypeVar

from .. import runtime, types
from ..base.checks import check_names, check_sequence
from ..base.named_tuples import NamedTuple
from .options import check_count, check_timeout

if TYPE_CHECKING:
    from ..runtime import Lane, TokenBudget
    from ..telemetry import Telemetry

T = TypeVar("T")

Messages = tuple["types.SamplingMessage", ...]
"""A conversation with a model: prompts and answers, oldest first."""


class BranchOptions(TypedDict, total=False):
    """The options of a branch.

    Attributes:
        messages: appended to the conversation that the branch inherits.
        inherit_messages: whether the conversation begins with a copy of the parent's (default True).
        system_prompt: the system prompt of the branch's samples, instead of the parent's.
        inherit_system_prompt: whether the parent's system prompt applies if `system_prompt` is not set (default True).
        max_depth: how deep this branch and those below it may nest, counted from the body of the call, which has depth 0.
            It may be more than the tool allows, but never more than the server (`ServiceOptions.max_depth`).
        token_budget: how many tokens the samples of this branch and of those below it may use; the parent's budget counts
            them too.
        timeout: seconds after which the branch is cancelled and `BranchLimit` is raised.
        allow_elicit: whether this branch and those below it may ask the user (default True).
    """

    messages: Sequence[types.SamplingMessage]
    inherit_messages: bool
    system_prompt: str | None
    inherit_system_prompt: bool
    max_depth: int
    token_budget: int
    timeout: float
    allow_elicit: bool


NO_OPTIONS = BranchOptions()


def check_branch_options(options: BranchOptions) -> None:
    """Raise `TypeError` or `ValueError` if an option of a branch is unknown or has a wrong value."""
    check_names(options, BranchOptions.__optional_keys__, "a branch")
    if "timeout" in options:
        check_timeout(options["timeout"])
    check_count("max_depth", options.get("max_depth"))
    check_count("token_budget", options.get("token_budget"))
    expected, each = "a list of SamplingMessage", 'a SamplingMessage(role="user", content=...)'
    check_sequence("messages", options.get("messages", ()), types.SamplingMessage, expected, each)


class BranchTerms(NamedTuple):
    """What applies to a body or a branch from its beginning to its end.

    Attributes:
        keys: the questions that the tool has declared; see `Elicit`.
        max_depth: how deep its branches may nest, if the server does not allow less.
        budget: what its samples are charged to; None without a limit.
        allow_elicit: whether it may ask the user.
        parent_messages, parent_system_prompt: its parent's at the start.
    """

    keys: frozenset[str] = frozenset()
    max_depth: int = sys.maxsize
    budget: TokenBudget | None = None
    allow_elicit: bool = True
    system_prompt: str | None = None
    parent_messages: Messages = ()
    parent_system_prompt: str | None = None

    def for_branch(self, options: BranchOptions, messages: Messages) -> BranchTerms:
        """Return the terms of a branch that starts now; `messages` are its parent's."""
        prompt, max_depth, tokens = options.get("system_prompt"), options.get("max_depth"), options.get("token_budget")
        if prompt is None and options.get("inherit_system_prompt", True):
            prompt = self.system_prompt
        return self._replace(
            max_depth=self.max_depth if max_depth is None else max_depth,
            budget=self.budget if tokens is None else runtime.TokenBudget(tokens, self.budget, "a branch of this call"),
            allow_elicit=self.allow_elicit and options.get("allow_elicit", True),
            system_prompt=prompt,
            parent_messages=messages,
            parent_system_prompt=self.system_prompt,
        )

    def within(self, parent: BranchTerms) -> BranchTerms:
        """Return the terms of a handler that runs for another one: its own questions, and what the other one may do."""
        return self._replace(max_depth=parent.max_depth, budget=parent.budget, allow_elicit=parent.allow_elicit)


BODY = BranchTerms()
"""The terms of a body without options."""


def freeze_messages(messages: Iterable[types.SamplingMessage]) -> Messages:
    """Return messages that no other holder can change."""
    # A message is frozen, but its content and `_meta` may hold lists and dicts. To copy texts as well would cost as much as
    # to validate them, each time that a handler reads `ctx.messages`.
    return tuple(message if is_text_only(message) else message.deep_copy() for message in messages)


def is_text_only(message: types.SamplingMessage) -> bool:
    """Return whether a message holds nothing but a text, which cannot be changed."""
    block = message.content
    return (
        isinstance(block, types.TextContent)
        and block.annotations is None
        and block.meta is message.meta is None
        and not block.model_extra
        and not message.model_extra
    )


def branch_traced(
    telemetry: Telemetry, fn: object, work: Callable[[Lane], Awaitable[T]]
) -> Callable[[Lane], Awaitable[T]]:
    """Return what a branch runs, as a span that is named after the function of the branch."""
    name = str(getattr(fn, "__qualname__", ""))

    async def run(lane: Lane) -> T:
        operation = telemetry.working("branch", name)
        operation.details["trio_mcp.branch"] = lane.path
        with operation.start():
            return await work(lane)

    return run
