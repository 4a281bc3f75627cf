"""The options of a tool, as an author gives them."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from typing import Literal

from pydantic import ValidationError

from .. import server
from ..base.checks import (
    check_instance,
    check_int,
    check_names,
    check_seconds,
    check_str,
    mistake,
    nearest,
)
from ..sampling import SCHEMA_TOOL
from ..session.calls.facts import ResumeMode, TaskSupport
from ..types import JsonObject, ToolAnnotations
from .branching import BranchTerms
from .options import OfferKeywords, check_count, check_offer, question_keys
from .values.schema_checks import error_summary

TAGS_META_KEY = "trio-mcp/tags"
"""The member of a tool's `_meta` in which it publishes its tags."""


def tags_meta(name: str, tags: object) -> JsonObject:
    """Return the members of `_meta` that publish the tags of the tool of this name.

    Raises:
        TypeError, ValueError: `tags` is not a collection of texts.
    """
    # A string is a collection of letters, each of which would be a tag.
    if isinstance(tags, str) or not isinstance(tags, Collection):
        raise TypeError(mistake(f"{name}: tags", 'a set of texts, such as {"admin"}', tags))
    names = {check_str(f"{name}: each of tags", tag) for tag in tags}
    if "" in names:
        raise ValueError(f"{name}: tags: a tag is not empty")
    return {TAGS_META_KEY: [*sorted(names)]} if names else {}


NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")  # L-TOOL-2s
OPEN_CAPABILITIES = frozenset({"experimental", "extensions"})
"""The client capabilities with free names of members."""
CAPABILITIES = frozenset(
    {
        *OPEN_CAPABILITIES,
        "elicitation",
        "elicitation.form",
        "elicitation.url",
        "roots",
        "roots.listChanged",
        "sampling",
        "sampling.context",
        "sampling.tools",
    }
)
"""The client capabilities that a tool may require."""

REQUIRES_META_KEY = "trio-mcp/requires"
"""The member of a tool's `_meta` in which it publishes the capabilities that its calls need."""


class ToolKeywords(OfferKeywords, total=False):
    """The options of a tool: those of `OfferKeywords`, and these.

    Attributes:
        annotations: hints about what it does, as `ToolAnnotations` or as a dict such as `{"readOnlyHint": True}`; clients
            do not trust them.
        requires: client capabilities that a call needs, such as `{"sampling", "elicitation.form"}`. Other clients cannot
            call the tool, and legacy ones do not see it in the list.
        input_schema: JSON Schema (2020-12) of the arguments, instead of the signature's; the function takes them as one
            dict.
        output_schema: JSON Schema of the structured result, instead of the return annotation's.
        max_depth: how deep the branches of a call may nest; a branch may be started with another limit.
        token_budget: how many tokens the samples of a call may use, including those in branches.
        max_result: bytes of an encoded result, at least 2,048. Of a larger one a preview is sent, with a link to a resource
            that only its caller can read, for `ServiceOptions.result_ttl` seconds. Such a tool has no output schema.
        tags: words for clients that group or filter tools; published in the tool's `_meta`.
        heartbeat: seconds without a report of progress after which one is sent to a caller that requested progress.
        limit: how many calls of the tool run at once. A modern call does not count while it waits for an answer.
        queue: how many more calls may wait for one of these to end (default 0); all others are rejected.
        task: True: a caller may have a call as a task, which outlives its request and its connection; "required": the tool
            runs only so; "later": it becomes one at `await ctx.become_task()`, and must be one that is replayed (`resume`).
            See https://github.com/trio-mcp/trio-mcp/blob/main/docs/tasks.md.
    """

    annotations: ToolAnnotations | JsonObject
    requires: Collection[str]
    input_schema: JsonObject
    output_schema: JsonObject
    max_depth: int
    token_budget: int
    max_result: int
    tags: Collection[str]
    heartbeat: float
    limit: int
    queue: int
    task: bool | Literal["required", "later"]


def check_tool_options(options: ToolKeywords) -> None:
    """Raise `TypeError` or `ValueError` if an option of a tool is unknown or has a wrong value."""
    check_offer(options, ToolKeywords.__optional_keys__, "tool()")
    given: Mapping[str, object] = options
    for name in ("input_schema", "output_schema"):
        # A type, such as a model, is a frequent mistake.
        if (schema := given.get(name)) is not None:
            check_instance(name, schema, dict, 'a JSON Schema as a dict, such as {"type": "object"}')
    for name in ("max_depth", "token_budget"):
        check_count(name, given.get(name))
    if (max_result := given.get("max_result")) is not None:
        check_int(
            "max_result", max_result, least=server.large_results.LEAST_MAX_RESULT, hint="leave it out for no limit"
        )
        if given.get("output_schema") is not None:
            raise ValueError("max_result: a preview has no structure, so that the tool cannot have an output_schema")
    if (heartbeat := given.get("heartbeat")) is not None:
        check_seconds("heartbeat", heartbeat, positive=True, finite=True, hint="leave it out for no heartbeat")
    check_limit(given.get("limit"), given.get("queue"))
    task_support(options)
    # A string is a collection of letters, each of which would be an unknown capability.
    if isinstance(requires := options.get("requires"), str):
        raise TypeError(f"requires: a set of capabilities, such as {{{requires!r}}}, not {requires!r}")


def task_support(options: ToolKeywords, resume: ResumeMode | None = None) -> TaskSupport:
    """Return whether calls run as tasks.

    Args:
        resume: what happens to calls of the tool whose process ends; None if that is not known yet.

    Raises:
        TypeError, ValueError: `task=` has a wrong value, or does not go with `resume`.
    """
    task: Literal["required", "later"] | bool = options.get("task", False)
    if isinstance(task, bool):
        return TaskSupport.OPTIONAL if task else TaskSupport.FORBIDDEN
    check_instance("task", task, str, 'True, False, "required" or "later"')
    if task not in ("required", "later"):
        raise ValueError(f'task must be True, False, "required" or "later", not {task!r}')
    if task == "later" and resume is ResumeMode.PARKED:
        raise ValueError(
            'task="later" needs resume="replay": in the task the tool runs again from its beginning, with its answers and steps'
        )
    return TaskSupport(task)


def check_limit(limit: object, queue: object) -> None:
    """Raise unless `limit` and `queue` are None or counts. Raises `TypeError` for a queue without a limit."""
    if limit is not None:
        check_int("limit", limit, least=1, hint="leave it out for no limit")
    if queue is not None:
        check_int("queue", queue)
        if limit is None:
            raise TypeError("queue: only the calls of a tool with a limit wait, so give limit= too")


def check_tool_name(name: str, hint: str = "give name=, ") -> None:
    """Raise `ValueError` unless this is the name of a tool, and not the reserved one.

    Args:
        hint: what the author of the tool can do; empty for the tool of another server.
    """
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a tool name: {hint}1 to 128 letters, digits, '_', '-' and '.'")
    if name == SCHEMA_TOOL:
        raise ValueError(f"{name!r} is reserved: models give structured answers with a tool of this name")


def required_capabilities(name: str, options: ToolKeywords) -> tuple[str, ...]:
    """Return the client capabilities that a call needs. Raises `ValueError` for one that no client declares."""
    requires = tuple(sorted(options.get("requires", ())))
    for capability in requires:
        if capability not in CAPABILITIES and capability.partition(".")[0] not in OPEN_CAPABILITIES:
            advice = nearest(capability, CAPABILITIES) or f"there are {', '.join(sorted(CAPABILITIES))}"
            raise ValueError(f"{name}: no client declares {capability!r}: {advice}")
    return requires


def published_meta(name: str, options: ToolKeywords, requires: Collection[str]) -> JsonObject:
    """Return the members of a tool's `_meta` that come from its options."""
    tags = tags_meta(name, options.get("tags", ()))
    return {REQUIRES_META_KEY: list(requires), **tags} if requires else tags


def is_harmless(hints: ToolAnnotations | None) -> bool:
    """Return whether a tool says of itself that it does no more when it runs twice."""
    return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)


def branch_terms(options: ToolKeywords) -> BranchTerms:
    """Return what a tool says of its branches and questions."""
    max_depth = options.get("max_depth")
    return BranchTerms(question_keys(options), sys.maxsize if max_depth is None else max_depth)


def concurrency_limit(name: str, options: ToolKeywords) -> server.concurrency.ConcurrencyLimit | None:
    """Return the limit on calls of a tool that run at once, if it has one."""
    limit = options.get("limit")
    return None if limit is None else server.concurrency.ConcurrencyLimit(name, limit, options.get("queue", 0))


def tool_hints(annotations: object) -> ToolAnnotations | None:
    """Return the hints about a tool that an author gave as a model or as a dict, with the names of the wire or of Python.

    Raises:
        TypeError: a hint is unknown, or has a wrong value.
    """
    if annotations is None or isinstance(annotations, ToolAnnotations):
        return annotations
    given = check_instance(
        "annotations", annotations, dict, 'ToolAnnotations(...), or a dict such as {"readOnlyHint": True}'
    )
    names = {name: field.alias or name for name, field in ToolAnnotations.model_fields.items()}
    check_names(given, {*names, *names.values()}, "annotations")
    try:
        return ToolAnnotations.model_validate(given)
    except ValidationError as error:
        raise TypeError(f"annotations: {error_summary(error)}") from None
