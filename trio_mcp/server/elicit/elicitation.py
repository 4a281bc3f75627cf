"""`ctx.elicit`: asks the user with a form, and reads the answer."""

from __future__ import annotations

import math
from collections.abc import Coroutine
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal, Never, TypeAlias, cast, overload

from typing_extensions import TypeVar

from ... import server
from ...base.checks import check_choice, check_int, check_str, keyword_options
from ...base.named_tuples import NamedTuple
from ...base.values import make_tuple
from ...errors import BranchElicitNotAllowed, ElicitationCancelled, ElicitationDeclined, ElicitationInvalid
from ...runtime import Lane
from ...session import Call, Question
from ...types import ElicitRequestFormParams, ElicitResult, JsonObject, JsonValue
from ..branching import BranchTerms
from ..options import AskTimeout
from ..unawaited import waits_in_threads
from .elicits import Elicit, question_meta
from .exchanges import UNNAMED, Accepted, Declined, Dismissed, Elicited, ElicitExchange, KeyedElicited
from .forms import Form, Titled, form_of

C = TypeVar("C")
T = TypeVar("T")

OnDecline: TypeAlias = Literal["retry", "error", "return"]
"""What `ctx.elicit.with_retry` does when the user declines."""
ON_DECLINE: tuple[OnDecline, ...] = ("retry", "error", "return")
DECLINED, DISMISSED = Declined(), Dismissed()
MAX_ATTEMPTS: Final = 100
"""How often one call of `ctx.elicit` may ask: a form that no answer fits must not ask a user endlessly."""


@dataclass(slots=True, eq=False, repr=False)
class Elicitation:
    """Asks the user: `await ctx.elicit(message, schema)`, `ctx.elicit.strict(...)`, `ctx.elicit.with_retry(...)`.

    A `schema` is
    - a pydantic model, a dataclass or a TypedDict, whose fields are strings, numbers, booleans or choices;
    - a single type: `bool`, `str`, `int`, `float`, `Literal[...]`, an `Enum` of strings, `list[Literal[...]]`;
    - a list of choices, such as `["low", "high"]`, or `Titled({"low": "Low", "high": "High"})`;
    - None: the user only confirms the message;
    - an `Elicit` that the tool has declared. If it has a context, `context=` is needed.

    All three raise:
        BranchElicitNotAllowed: this is a branch that may not ask; nothing was sent.
        CapabilityError: the client cannot ask its user, or its revision has no such form; nothing was sent.
        ElicitationInvalid: no answer matched the schema.
        FormError: the schema is not flat; the message names the member.
        LookupError: the tool did not declare this `Elicit`.
        PeerError: the client returned an error, which is not a choice of its user; see `Context.sample`.
        RequestTimeout: there was no answer within `timeout` seconds, for all attempts together; the question was withdrawn.
        TypeError, ValueError: an argument is wrong; raised by the call itself, before it is awaited.
        TypeError: the value was used without `await`.

    A legacy client receives the questions of one call one at a time (see `ServiceOptions.parallel_prompts`). A cancel withdraws
    the question.
    """

    _call: Call
    _lane: Lane
    _terms: BranchTerms

    @overload
    async def __call__(  # type: ignore[overload-overlap]
        self, message: str, schema: type[T] | Elicit[None, T], *, reask: int = 2, timeout: float = math.inf
    ) -> Elicited[T]: ...
    @overload
    async def __call__(
        self, message: str, schema: Elicit[C, T], *, context: C, reask: int = 2, timeout: float = math.inf
    ) -> KeyedElicited[T, C]: ...
    @overload
    async def __call__(
        self, message: str, schema: list[str] | Titled, *, reask: int = 2, timeout: float = math.inf
    ) -> Elicited[str]: ...
    @overload
    async def __call__(
        self, message: str, schema: None = None, *, reask: int = 2, timeout: float = math.inf
    ) -> Elicited[None]: ...
    @overload
    async def __call__(
        self, message: str, schema: object, *, reask: int = 2, timeout: float = math.inf
    ) -> Elicited[JsonValue]: ...
    @waits_in_threads("ctx.elicit")
    def __call__(
        self,
        message: str,
        schema: object = None,
        *,
        context: object = None,
        reask: int = 2,
        timeout: float = math.inf,
        **unknown: Never,
    ) -> Coroutine[object, object, KeyedElicited[object, object]]:
        """Ask the user to fill in a form, and return the answer.

        Args:
            message: the text to show.
            schema: see the class.
            context: the context of an `Elicit` that was declared with one.
            reask: how often to ask again, with the reason, after an answer that does not match the schema; from 0 to 99.
            timeout: seconds for all attempts together. By default, only the call's own timeout applies.

        Returns:
            `Accepted`, `Declined` or `Dismissed`; look at `.action`.

        Raises: see the class.
        """
        if unknown:
            server.other_names.refuse(unknown, keyword_options(Elicitation.__call__), "ctx.elicit()")
        check_int("reask", reask, most=MAX_ATTEMPTS - 1)
        asked = self._form(message, schema, context)
        return _ask(self._call, self._lane, message, asked, context, _limit(timeout), reask + 1)

    @overload
    async def strict(  # type: ignore[overload-overlap]
        self, message: str, schema: type[T] | Elicit[None, T], *, reask: int = 2, timeout: float = math.inf
    ) -> T: ...
    @overload
    async def strict(
        self, message: str, schema: Elicit[C, T], *, context: C, reask: int = 2, timeout: float = math.inf
    ) -> T: ...
    @overload
    async def strict(
        self, message: str, schema: list[str] | Titled, *, reask: int = 2, timeout: float = math.inf
    ) -> str: ...
    @overload
    async def strict(self, message: str, schema: None = None, *, reask: int = 2, timeout: float = math.inf) -> None: ...
    @overload
    async def strict(self, message: str, schema: object, *, reask: int = 2, timeout: float = math.inf) -> JsonValue: ...
    @waits_in_threads("ctx.elicit.strict")
    def strict(
        self,
        message: str,
        schema: object = None,
        *,
        context: object = None,
        reask: int = 2,
        timeout: float = math.inf,
        **unknown: Never,
    ) -> Coroutine[object, object, object]:
        """Ask as `ctx.elicit` does, and return the content of the answer.

        Raises:
            ElicitationDeclined, ElicitationCancelled: the user declined, or closed the question. If the tool does not catch it,
                it is the error result of the tool.
            Others: see the class.
        """
        if unknown:
            server.other_names.refuse(unknown, keyword_options(Elicitation.strict), "ctx.elicit.strict()")
        check_int("reask", reask, most=MAX_ATTEMPTS - 1)
        asked = self._form(message, schema, context)
        return _content(self._call, self._lane, message, asked, context, _limit(timeout), reask + 1)

    @overload
    async def with_retry(  # type: ignore[overload-overlap]
        self,
        message: str,
        schema: type[T] | Elicit[None, T],
        *,
        max_attempts: int = 3,
        on_decline: OnDecline = "retry",
        timeout: float = math.inf,
    ) -> Elicited[T]: ...
    @overload
    async def with_retry(
        self,
        message: str,
        schema: Elicit[C, T],
        *,
        context: C,
        max_attempts: int = 3,
        on_decline: OnDecline = "retry",
        timeout: float = math.inf,
    ) -> KeyedElicited[T, C]: ...
    @overload
    async def with_retry(
        self,
        message: str,
        schema: list[str] | Titled,
        *,
        max_attempts: int = 3,
        on_decline: OnDecline = "retry",
        timeout: float = math.inf,
    ) -> Elicited[str]: ...
    @overload
    async def with_retry(
        self,
        message: str,
        schema: None = None,
        *,
        max_attempts: int = 3,
        on_decline: OnDecline = "retry",
        timeout: float = math.inf,
    ) -> Elicited[None]: ...
    @overload
    async def with_retry(
        self,
        message: str,
        schema: object,
        *,
        max_attempts: int = 3,
        on_decline: OnDecline = "retry",
        timeout: float = math.inf,
    ) -> Elicited[JsonValue]: ...
    @waits_in_threads("ctx.elicit.with_retry")
    def with_retry(
        self,
        message: str,
        schema: object = None,
        *,
        context: object = None,
        max_attempts: int = 3,
        on_decline: OnDecline = "retry",
        timeout: float = math.inf,
        **unknown: Never,
    ) -> Coroutine[object, object, KeyedElicited[object, object]]:
        """Ask up to `max_attempts` times, and return the last answer.

        Args:
            max_attempts: how often to ask altogether, from 1 to 100. After an answer that does not match the schema, the
                question has the reason.
            on_decline: "retry" asks again after the user declined, and returns the last `Declined`; "error" raises
                `ElicitationDeclined`; "return" returns `Declined`. A user who closes the question is never asked again.
            timeout: seconds for all attempts together.

        Raises:
            ElicitationDeclined: see `on_decline`.
            Others: see the class.
        """
        if unknown:
            server.other_names.refuse(unknown, keyword_options(Elicitation.with_retry), "ctx.elicit.with_retry()")
        check_choice("on_decline", on_decline, ON_DECLINE)
        check_int("max_attempts", max_attempts, least=1, most=MAX_ATTEMPTS)
        asked = self._form(message, schema, context)
        limit = _limit(timeout)
        if on_decline == "error":
            return _answer(self._call, self._lane, message, asked, context, limit, max_attempts)
        again = on_decline == "retry"
        return _ask(self._call, self._lane, message, asked, context, limit, max_attempts, again=again)

    def _form(self, message: str, schema: object, context: object) -> Asked:
        """Return the form to show. Raises what the class says, before anything is awaited."""
        if not self._terms.allow_elicit:
            raise BranchElicitNotAllowed("this branch may not ask the user: it was started with allow_elicit=False")
        check_str("message", message)
        if isinstance(schema, Elicit):
            meta = question_meta(schema, self._terms.keys, self._call.target_name, context)
            return Asked(form_of(schema.schema), schema.key, meta)
        if context is not None:
            raise TypeError("a context goes with a declared question: Elicit('pick', Move, context=Board)")
        return make_tuple(Asked, (form_of(schema), None, None))


class Asked(NamedTuple):
    """A form to show.

    Attributes:
        key: the key of a declared question, or None.
        meta: the `_meta` of the question, or None.
    """

    form: Form[object]
    key: str | None
    meta: JsonObject | None


def form_question(message: str, form: Form[object], key: str | None, meta: JsonObject | None) -> Question[ElicitResult]:
    """Return the question that shows a form with this text."""
    params = ElicitRequestFormParams(mode="form", message=message, requested_schema=form.requested_schema, meta=meta)
    return Question("elicit", "elicitation/create", params, ElicitResult, ("elicitation.form",), key)


async def _ask(
    call: Call,
    lane: Lane,
    message: str,
    asked: Asked,
    context: object,
    limit: AskTimeout | None,
    attempts: int,
    *,
    again: bool = False,
) -> KeyedElicited[object, object]:
    """Ask up to `attempts` times until an answer matches the form; a user who declined is asked again if `again` is set."""
    # One coroutine for all attempts, and no variable that keeps a question alive: thousands of calls may wait here.
    form, key, meta = asked
    del asked
    text, problem = message, ""
    number = next_elicit_number(call, lane)
    for _ in range(attempts):
        if limit is None:
            result = await call.ask(lane, form_question(text, form, key, meta))
        else:
            result = await limit.ask(call, lane, form_question(text, form, key, meta))
        if result.action == "cancel":
            return DISMISSED
        if result.action == "decline":
            problem = ""
            if not again:
                break
            continue
        content = cast("JsonObject", result.content or {})
        try:
            value = form.read(content)
        except ValueError as error:
            problem = str(error)
            text = f"{message}\n\nThe last answer could not be used: {problem}"
        else:
            name = elicit_id(call, number)
            return Accepted(value, ElicitExchange(name, key or UNNAMED, message, content, context, {}))
    if problem:
        raise ElicitationInvalid(f"the answer to {message!r} was still invalid after {attempts} attempts: {problem}")
    return DECLINED


async def _answer(
    call: Call, lane: Lane, message: str, asked: Asked, context: object, limit: AskTimeout | None, attempts: int
) -> KeyedElicited[object, object]:
    """Ask as `_ask` does. Raises `ElicitationDeclined` if the user declined."""
    result = await _ask(call, lane, message, asked, context, limit, attempts)
    if isinstance(result, Declined):
        raise declined(message)
    return result


async def _content(
    call: Call, lane: Lane, message: str, asked: Asked, context: object, limit: AskTimeout | None, attempts: int
) -> object:
    """Ask as `_answer` does, and return the content. Raises `ElicitationCancelled` if the user closed the question."""
    result = await _ask(call, lane, message, asked, context, limit, attempts)
    if isinstance(result, Accepted):
        return result.content
    if isinstance(result, Declined):
        raise declined(message)
    raise ElicitationCancelled(f"The user closed the question {message!r} without an answer.")


def declined(message: str) -> ElicitationDeclined:
    return ElicitationDeclined(f"The user declined to answer the question {message!r}.")


def _limit(timeout: float) -> AskTimeout | None:
    return None if timeout == math.inf else AskTimeout(timeout)


# The numbers and the ids of the elicitations of a call: `elicit_{call}_{number}`, shared by all branches, the same in a replay.

_DIGITS: Final = 16
"""Hexadecimal digits for the call. An id is shorter than the forty characters that OpenAI allows for the id of a tool call."""

_CALL_NAME: Final = "call name"
"""What the name is recorded under; no step of an author has such a name: theirs have a colon."""


def next_elicit_number(call: Call, lane: Lane) -> int:
    """Return the number of the elicitation that a lane is about to ask: 1, 2, ... in its call."""
    if call.memory is not None:
        # Recorded, because sibling branches run in any order: in a replay another one may ask first.
        return call.memory.question_number(lane.coming_key)
    call.actor.numbered += 1
    return call.actor.numbered


def elicit_id(call: Call, number: int) -> str:
    """Return the id of an elicitation that was answered."""
    # The name of a call in rounds, which it has by the time of an answer, leads to it in the directory and stays secret. For
    # other calls the process that started them is named, and its actor.
    name = None if call.legs is None else call.legs.call_id
    if name is None:
        name = _recorded_name(call, f"{call.services.node}/{call.actor.name}")
    return f"elicit_{sha256(name.encode()).hexdigest()[:_DIGITS]}_{number}"


def _recorded_name(call: Call, name: str) -> str:
    """Return the name of a call in the process that started it: this one, unless the call was replayed."""
    if call.memory is None:
        return name
    known = call.memory.find_step(_CALL_NAME)
    if known is not None:
        return str(known.value)
    call.memory.record_step(_CALL_NAME, name)
    return name
