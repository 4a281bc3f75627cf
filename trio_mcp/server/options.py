"""Checks of the options of tools, prompts, resources and servers, raised where the author wrote the option."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeVar, get_args

from ..checks import check_callable, check_choice, check_instance, check_int, check_seconds, check_sequence, check_str
from ..session import ServiceOptions
from ..types import CacheScope, SamplingMessage
from .forms import Elicit

O = TypeVar("O")  # noqa: E741  of options


RESUMES = ("auto", "replay", "parked")
SCOPES = get_args(CacheScope)


def options_of(kind: Callable[..., O], said: Mapping[str, object], where: str) -> O:
    """The options that an author gave, as a value of that kind.

    Raises:
        TypeError: there is none of that name, or one is of the wrong type.
        ValueError: one cannot have that value.
    """
    known = names_of(kind)
    for name in said:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            advice = f"do you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise TypeError(f"{where} has no option {name!r}: {advice}")
    return kind(**said)


@lru_cache
def names_of(kind: Callable[..., object]) -> tuple[str, ...]:
    return tuple(sorted(inspect.signature(kind).parameters))


def check_timeout(timeout: object) -> None:
    """Raise unless `timeout` is a positive number of seconds."""
    check_seconds("timeout", timeout, positive=True, hint="leave it out for no limit")


def check_count(name: str, count: object) -> None:
    """Raise unless `count` is None or a whole number of at least 0."""
    if count is not None:
        check_int(name, count, hint="leave it out for no limit")


def check_ttl(name: str, ttl: object) -> None:
    """Raise unless `ttl` is a finite number of seconds."""
    check_seconds(name, ttl, finite=True, hint="0 for no caching")


def check_scope(name: str, scope: object) -> None:
    """Raise unless `scope` is a cache scope."""
    check_choice(name, scope, SCOPES)


def check_resume(resume: object) -> None:
    """Raise unless `resume` is a `ResumePolicy`."""
    check_choice("resume", resume, RESUMES)


def check_elicits(elicits: object) -> None:
    """Raise unless `elicits` is a sequence of declared questions."""
    check_sequence(
        "elicits",
        elicits,
        Elicit,
        "a list of questions, such as [Elicit('seat', Seat)]",
        "a question, such as Elicit('seat', Seat), a key and a form",
    )


def check_schema(name: str, schema: object) -> None:
    """Raise unless `schema` is None or a dict. A type, such as a model, is a frequent mistake."""
    if schema is not None:
        check_instance(name, schema, dict, 'a JSON Schema as a dict, such as {"type": "object"}')


def check_function(function: object, where: str) -> None:
    """Raise unless `function` can be called. A name without its keyword is a frequent mistake."""
    if isinstance(function, str):
        raise TypeError(f"{where}({function!r}): a name goes by its keyword, {where}(name={function!r})")
    check_callable(f"what {where} registers", function)


def check_messages(messages: object) -> None:
    """Raise unless `messages` is a sequence of messages. A plain text is a frequent mistake."""
    check_sequence(
        "messages",
        messages,
        SamplingMessage,
        "a list of SamplingMessage",
        'a SamplingMessage(role="user", content=...)',
    )


def check_service(options: object) -> ServiceOptions:
    """Return `options` if it is a `ServiceOptions`. A dict of options is a frequent mistake."""
    return check_instance("options", options, ServiceOptions, "ServiceOptions(max_seconds=60)")


def check_branch(fn: object) -> None:
    """Raise unless `fn` can run as a branch. A coroutine cannot: it was made without the branch's context."""
    if inspect.iscoroutine(fn):
        raise TypeError(
            f"a branch must be a function, not yet called: branch({fn.__name__}), not branch({fn.__name__}(...))"
        )
    check_callable("a branch", fn, "a function that takes a Context")


def check_name(name: object) -> None:
    """Raise unless `name` is None or a string."""
    if name is not None:
        check_str("name", name)


def check_place(uri: object, function: object = len) -> None:
    """Raise unless a resource has a URI and a function. To swap the two is a frequent mistake."""
    if not isinstance(uri, str):
        raise TypeError(f"a resource needs its URI first, as in resource('config://app'), not {uri!r:.80}")
    check_callable(f"what offers {uri}", function)
