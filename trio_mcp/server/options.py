"""What may be said of a tool, prompt, resource or server: a wrong option is refused where it is written, with what to write."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar, get_args

from ..session import ServiceOptions
from ..session.service import check_number
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
    """Refuse what is no time to wait."""
    if not check_number("timeout", timeout, "seconds, such as 30; leave it out for no limit") > 0:
        raise ValueError(f"timeout: more than 0 seconds, not {timeout}; leave it out for no limit")


def check_count(name: str, count: object) -> None:
    """Refuse what is neither a whole number from 0 on nor None."""
    if count is None:
        return
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name}: a whole number, not {count!r}; leave it out for no limit")
    if count < 0:
        raise ValueError(f"{name}: a whole number from 0 on, not {count}")


def check_ttl(name: str, ttl: object) -> None:
    """Refuse what is no time to keep something."""
    seconds = check_number(name, ttl, "seconds, 0 for not at all")
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{name}: seconds, 0 for not at all, not {seconds:g}")


def check_scope(name: str, scope: object) -> None:
    """Refuse what is no cache scope."""
    if scope not in SCOPES:
        raise ValueError(f"{name}: {either(SCOPES)}, not {scope!r}")


def check_resume(resume: object) -> None:
    """Refuse what is no `ResumePolicy`."""
    if resume not in RESUMES:
        raise ValueError(f"resume: {either(RESUMES)}, not {resume!r}")


def check_elicits(elicits: object) -> None:
    """Refuse what are no declared questions."""
    if isinstance(elicits, str) or not isinstance(elicits, Sequence):
        raise TypeError(f"elicits: a list of questions, such as [Elicit('seat', Seat)], not {elicits!r}")
    for asked in elicits:
        if not isinstance(asked, Elicit):
            raise TypeError(f"elicits: {asked!r} is no question; write Elicit('seat', Seat), a key and a form")


def check_schema(name: str, schema: object) -> None:
    """Refuse what is no JSON Schema, such as a type."""
    if schema is not None and not isinstance(schema, dict):
        raise TypeError(f'{name}: a JSON Schema as a dict, such as {{"type": "object"}}, not {schema!r}')


def check_function(function: object, where: str) -> None:
    """Refuse what is no function, such as a name that was given without its keyword."""
    if isinstance(function, str):
        raise TypeError(f"{where}({function!r}): a name goes by its keyword, {where}(name={function!r})")
    if not callable(function):
        raise TypeError(f"{where} offers a function, not {function!r}")
    check_not_class(where, function)


def check_not_class(where: str, function: object) -> None:
    """Raise `TypeError` if `function` is a class.

    A class can be called and its constructor has a signature, so it would be registered, and then fail in every call.
    """
    if inspect.isclass(function):
        name = function.__name__
        raise TypeError(
            f"{where}: {name} is a class; register a function that uses it, such as "
            f"`def {name.lower()}(...): return {name}(...).result()`, or a method of an instance"
        )


def check_messages(messages: object) -> None:
    """Refuse what is no conversation, such as a text."""
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        raise TypeError(f"messages: a list of SamplingMessage, not {messages!r}")
    for message in messages:
        if not isinstance(message, SamplingMessage):
            raise TypeError(f"messages: each is a SamplingMessage, not {message!r}")


def check_service(options: object) -> ServiceOptions:
    """Refuse what are no options of a service, such as a dict of them."""
    if not isinstance(options, ServiceOptions):
        raise TypeError(f"options: ServiceOptions(max_seconds=60), not {options!r:.80}")
    return options


def check_branch(fn: object) -> None:
    """Refuse what no branch can run, such as a coroutine: it was made without the branch's context."""
    if inspect.iscoroutine(fn):
        raise TypeError(
            f"a branch is a function, not yet called: branch({fn.__name__}), not branch({fn.__name__}(...))"
        )
    if not callable(fn):
        raise TypeError(f"a branch is a function that takes a Context, not {fn!r:.80}")


def check_name(name: object) -> None:
    """Refuse a name that is no text."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name: a text, not {name!r:.80}")


def check_place(uri: object, function: object = len) -> None:
    """Refuse a resource without a URI, or one whose URI and function were swapped."""
    if not isinstance(uri, str):
        raise TypeError(f"a resource needs its URI first, as in resource('config://app'), not {uri!r}")
    if not callable(function):
        raise TypeError(f"{uri}: a resource is offered by a function, not {function!r}")
    check_not_class(uri, function)


def either(choices: Collection[str]) -> str:
    """`"a", "b" or "c"`."""
    *others, last = (f'"{choice}"' for choice in choices)
    return f"{', '.join(others)} or {last}"
