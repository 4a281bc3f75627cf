"""Options of tools, prompts and resources: what all have in common, and the checks of those that an author gives.

An option is checked where its author wrote it, when the function is registered. Every error names the option and what to write.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Collection, Sequence, Set as AbstractSet
from typing import Literal, TypeAlias, TypedDict, TypeVar, cast, get_args

import trio

from .. import server
from ..base.checks import (
    check_callable,
    check_choice,
    check_instance,
    check_int,
    check_seconds,
    check_sequence,
    check_str,
)
from ..errors import RequestTimeout
from ..protocol.strict_json import dumps
from ..runtime import Lane
from ..session import Call, Question, ResumeMode, ServiceOptions
from ..session.calls.facts import QuestionTimeout
from ..types import CacheScope, Icon, Implementation, JsonObject, Model
from .access import Visible
from .values.callables import docstring_of

F = TypeVar("F", bound=Callable[..., object])

ResumePolicy: TypeAlias = Literal["auto", "replay", "parked"]


class OfferKeywords(TypedDict, total=False):
    """The options of every tool, prompt and resource.

    Attributes:
        name, title, description: default to the function's name and docstring.
        icons: images to show next to its name.
        timeout: seconds after which a call is cancelled and its caller gets an error.
        meta: more members for its `_meta`.
        elicits: the questions that it may ask, published with it; only these may then be asked by key.
        resume: what happens to a call that waits for an answer when its process ends. "replay": the body runs again;
            questions that were answered and steps that were done (`ctx.step`) return their results immediately. "parked":
            the call is lost and its caller gets an error. "auto": "replay" for prompts and resources, for handoff tools,
            and for tools whose `annotations` say that they are read-only or idempotent; else "parked".
        scopes: what its caller must have, see `Caller`. Over HTTP, a request without them is rejected with 403
            `insufficient_scope`.
        visible: a plain function from a `Caller`, or None without authentication, to whether it sees the item. For other
            callers it does not exist.
        asyncio: run an async function, its providers, and the functions of its steps and branches, on asyncio. See
            docs/asyncio.md.
    """

    name: str
    title: str
    description: str
    icons: Sequence[Icon]
    timeout: float
    meta: JsonObject
    elicits: Sequence[server.AnyElicit]
    resume: ResumePolicy
    scopes: Collection[str]
    visible: Visible
    asyncio: bool


class ListedMembers(TypedDict):
    """The members that the models of all offers share."""

    title: str | None
    description: str | None
    icons: list[Icon] | None
    meta: JsonObject | None


def check_offer(options: OfferKeywords, known: AbstractSet[str], where: str) -> None:
    """Raise unless the options of a tool, prompt or resource are allowed.

    Raises:
        TypeError: there is no option of that name, or its value has the wrong type.
        ValueError: the value is not allowed.
    """
    if not known >= options.keys():
        server.other_names.refuse(options, known, where)
    if (name := options.get("name")) is not None:
        check_str("name", name)
    check_timeout(options.get("timeout", math.inf))
    check_instance("asyncio", options.get("asyncio", False), bool, "True or False")
    check_choice("resume", options.get("resume", "auto"), get_args(ResumePolicy))
    if "elicits" in options:
        check_sequence(
            "elicits",
            options["elicits"],
            server.elicit.elicits.Elicit,
            "a list of questions, such as [Elicit('seat', Seat)]",
            "a question, such as Elicit('seat', Seat), a key and a form",
        )


def on_its_loop(function: F, options: OfferKeywords) -> F:
    """Return a function as Trio calls it: with `asyncio=True` it runs as a task of asyncio.

    Raises:
        TypeError: such a function is not async.
    """
    return cast("F", server.asyncio_bodies.on_asyncio(function)) if options.get("asyncio", False) else function


def question_keys(options: OfferKeywords) -> frozenset[str]:
    """Return the keys of the declared questions."""
    return frozenset(question.key for question in options.get("elicits", ()))


def name_for(function: Callable[..., object], options: OfferKeywords) -> str:
    """Return the name, by default the function's; empty if it has none, as a `functools.partial` has not."""
    return options.get("name") or str(getattr(function, "__name__", ""))


def listed_members(
    function: Callable[..., object], options: OfferKeywords, extra_meta: JsonObject | None = None
) -> ListedMembers:
    """Return what a listing shows of the function, apart from its name.

    Raises:
        ValueError: two of the questions have the same key.
        FormError: a question is not flat; the message names the function, the key and the member.
    """
    meta: JsonObject | None = {**(options.get("meta") or {}), **(extra_meta or {})} or None
    if elicits := options.get("elicits"):
        try:
            meta = server.elicit.elicits.add_questions_to_meta(meta or {}, elicits)
        except server.FormError as error:
            raise server.FormError(f"{name_for(function, options)}: {error}") from None
    return {
        "title": options.get("title"),
        "description": options.get("description") or docstring_of(function),
        "icons": list(options.get("icons", ())) or None,
        "meta": meta,
    }


def check_listable(kind: str, name: str, model: Model) -> None:
    """Raise `ValueError` if JSON cannot hold what a list shows of an offer; the message names the offer and the member."""
    try:
        model.encode()
    except ValueError:
        # Worded by what finds the place.
        try:
            dumps(model.wire())
        except ValueError as error:
            raise ValueError(f"the {kind} {name!r}: {error}; write another value, or leave it out") from None


def check_instructions(text: str | None) -> str | None:
    """Return `text` if JSON can hold it, or raise `ValueError`: no client could connect."""
    if text is not None:
        dumps(text, "instructions")
    return text


def resume_mode(options: OfferKeywords, *, harmless: bool) -> ResumeMode:
    """Return how a lost call is resumed; "auto" replays if it is `harmless` to run the function twice."""
    policy = options.get("resume", "auto")
    return ResumeMode.REPLAY if policy == "replay" or (policy == "auto" and harmless) else ResumeMode.PARKED


def check_timeout(timeout: object) -> None:
    """Raise unless `timeout` is a positive number of seconds."""
    check_seconds("timeout", timeout, positive=True, hint="leave it out for no limit")


def check_count(name: str, count: object) -> None:
    """Raise unless `count` is None or a whole number of at least 0."""
    if count is not None:
        check_int(name, count, hint="leave it out for no limit")


def check_caching(ttl_name: str, ttl: object, scope_name: str, scope: object) -> None:
    """Raise unless `ttl` is a finite number of seconds and `scope` a cache scope."""
    check_seconds(ttl_name, ttl, finite=True, hint="0 for no caching")
    check_choice(scope_name, scope, get_args(CacheScope))


def check_function(function: object, where: str) -> None:
    """Raise `TypeError` unless `function` can be called and is not a class. A name without its keyword is a frequent mistake."""
    if isinstance(function, str):
        raise TypeError(f"{where}({function!r}): pass the name as a keyword: {where}(name={function!r})")
    check_callable(f"what {where} registers", function)
    check_not_class(where, function)


def check_named(function: Callable[..., object]) -> None:
    """Raise `ValueError` unless a function has a name, as the tool of a model needs one: there it has no `name=`."""
    if name_for(function, {}) in ("", "<lambda>"):
        raise ValueError(f"tools: {function!r:.80} has no name: write it with `def`, or build a tool with `tool(name)`")


def check_not_class(where: str, function: object) -> None:
    """Raise `TypeError` if `function` is a class, and suggest what to register instead."""
    # A class can be called and its constructor has a signature, so that it would be registered, and then fail in every call.
    if inspect.isclass(function):
        name = function.__name__
        raise TypeError(
            f"{where}: {name} is a class; register a function that uses it, such as "
            f"`def {name.lower()}(...): return {name}(...).result()`, or a method of an instance"
        )


def check_service(options: object) -> ServiceOptions:
    """Return `options` if it is a `ServiceOptions`. A dict of options is a frequent mistake."""
    return check_instance("options", options, ServiceOptions, "ServiceOptions(max_seconds=60)")


def check_branch(fn: object) -> None:
    """Raise `TypeError` unless `fn` can run as a branch."""
    # A coroutine has been called already, without the context that the branch would give it.
    if inspect.iscoroutine(fn):
        raise TypeError(f"a branch must be a function: branch({fn.__name__}), not branch({fn.__name__}(...))")
    check_callable("a branch", fn, "a function that takes a Context")


def check_uri_and_function(uri: object, function: object = len) -> None:
    """Raise `TypeError` unless a resource has a URI and a function. To swap the two is a frequent mistake."""
    if not isinstance(uri, str):
        raise TypeError(f"a resource needs its URI first, as in resource('config://app'), not {uri!r:.80}")
    check_callable(f"what offers {uri}", function)
    check_not_class(uri, function)


def identity_of(
    name: str,
    version: object,
    title: str | None,
    description: str | None,
    website_url: str | None,
    icons: Sequence[Icon],
) -> Implementation:
    """Return what a server declares about itself. Raises `TypeError` if `version` is not a string."""
    identity = Implementation(
        name=name,
        version=check_str("version", version),
        title=title,
        description=description,
        website_url=website_url,
        icons=list(icons) or None,
    )
    check_listable("server", name, identity)
    return identity


# The time limit of one question, over all attempts to get a valid answer to it.

T = TypeVar("T", bound=Model)


class AskTimeout:
    """Asks with a deadline, which begins when this is made and is shared by all attempts.

    Args:
        seconds: the limit.

    Raises:
        TypeError, ValueError: `seconds` is not a positive number.
    """

    def __init__(self, seconds: float) -> None:
        check_timeout(seconds)
        self.seconds = seconds
        # A point in time and not a duration: a repeated question must not start the clock again.
        self.deadline = trio.current_time() + seconds

    async def ask(self, call: Call, lane: Lane, question: Question[T]) -> T:
        """Ask the client, as `Call.ask` does.

        Raises:
            RequestTimeout: there was no answer in time; the question was withdrawn.
        """
        text = f"no answer to {question.method} within {self.seconds:g} seconds; it was withdrawn"
        with trio.CancelScope(deadline=self.deadline):
            return await call.ask(lane, question._replace(timeout=QuestionTimeout(self.deadline, text)))
        # The call may have been parked, and its place given to another call of its tool.
        if call.actor.place is not None:
            await call.actor.place.enter()
        raise RequestTimeout(text)


def ask_timeout(seconds: float) -> AskTimeout | None:
    """Return the limit of a question, which begins now; None for infinity."""
    return None if seconds == math.inf else AskTimeout(seconds)


def ask_within(call: Call, lane: Lane, question: Question[T], limit: AskTimeout | None) -> Awaitable[T]:
    """Ask the client, with or without a limit."""
    # Not `async def`: each coroutine more is half a kilobyte of a call that waits, and thousands may wait.
    return call.ask(lane, question) if limit is None else limit.ask(call, lane, question)
