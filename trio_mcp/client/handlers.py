"""Answering the server's questions with the functions that the program passes as `on_elicit`, `on_sample` and `on_roots`.

A handler is a function of the question's params, plain or async. It may return a short form: `accept(seat="aisle")`,
`decline()`, a string for a sample, a list of folders for the roots.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import trio

from ..base.checks import check_callable, check_instance, check_seconds
from ..base.groups import unwrap, without
from ..base.values import one_line
from ..errors import CapabilityError, Disconnected, LimitExceeded
from ..protocol.codec import Codec
from ..protocol.revisions import ELICIT, TASK_GATES, with_tasks
from ..session import RequestHandler
from ..session.event_loop import HOME
from ..types import (
    ClientCapabilities,
    CreateMessageRequestParams,
    ElicitationCapability,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    ElicitValue,
    InputRequest,
    InputResponseRequestParams,
    JsonObject,
    JsonValue,
    ListRootsResult,
    LoggingMessageNotificationParams,
    Model,
    Root,
    RootsCapability,
    SamplingCapability,
)
from .sampling import OnSample, ProviderSampling, check_question, checked_answer, maybe_await

if TYPE_CHECKING:
    from ..bridge import Guest
    from ..telemetry import Telemetry

OnElicit: TypeAlias = Callable[[ElicitRequestFormParams], ElicitResult | Awaitable[ElicitResult]]
"""A function, plain or async, that fills in a form: returns `accept(...)`, `decline()` or `dismiss()`."""
FindHandler: TypeAlias = Callable[[str, str], RequestHandler | None]
"""Returns the handler of a question of a round, by its method and its key; None if the client has none."""
OnElicitUrl: TypeAlias = Callable[[ElicitRequestURLParams], ElicitResult | Awaitable[ElicitResult]]
"""A function, plain or async, that opens a page for the user: returns `accept()`, `decline()` or `dismiss()`."""
OnRoots: TypeAlias = Callable[[], Sequence[Root | Path] | Awaitable[Sequence[Root | Path]]]
"""A function, plain or async, that returns the folders the client works in."""
OnLog: TypeAlias = Callable[[LoggingMessageNotificationParams], None]
"""A plain function, called with each log message of the server."""
OnDisconnect: TypeAlias = Callable[[str], None]
"""A plain function, called with the reason when the connection to the server was lost."""


class ChoosesByKey:
    """Base of an `on_elicit` that reads from `_meta` which question it answers.

    A question of a round that does not name its key there gets its key in the round, and the name of what was called.
    """


def accept(**content: JsonValue) -> ElicitResult:
    """Return the answer of a user who filled in the form: `accept(flight="TP1", seat="aisle")`."""
    return ElicitResult.model_validate({"action": "accept", "content": content})


def accept_defaults(params: ElicitRequestFormParams, **content: ElicitValue) -> ElicitResult:
    """Return the form with its defaults (SEP-1034); `content` fills in other fields or replaces defaults.

    Use it in place of a user: `on_elicit=accept_defaults`. Declines if a required field has no value, and if there are no
    fields: such a form asks for consent, which has no default.
    """
    schema = params.requested_schema
    defaults: dict[str, ElicitValue] = {name: field.default for name, field in schema.properties.items()}
    filled: dict[str, ElicitValue] = {
        name: value for name, value in {**defaults, **content}.items() if value is not None
    }
    if not schema.properties or not filled.keys() >= set(schema.required or ()):
        return decline()
    return ElicitResult(action="accept", content=filled)


def decline() -> ElicitResult:
    """Return the answer of a user who refuses."""
    return ElicitResult(action="decline")


def dismiss() -> ElicitResult:
    """Return the answer of a user who closed the question without a choice."""
    return ElicitResult(action="cancel")


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers that answer the server's questions. The client declares the capability of each one that is set.

    Attributes:
        sample_tools, sample_context: whether `on_sample` takes tools and the context of servers, which is declared too.
        timeout: seconds that a handler may take.
        telemetry: makes their spans; None without telemetry.
    """

    on_elicit: OnElicit | None = None
    on_sample: OnSample | None = None
    on_roots: OnRoots | None = None
    on_elicit_url: OnElicitUrl | None = None
    sample_tools: bool = False
    sample_context: bool = False
    timeout: float = math.inf
    telemetry: Telemetry | None = None

    def __post_init__(self) -> None:
        for name in ("on_elicit", "on_sample", "on_roots", "on_elicit_url"):
            value = getattr(self, name)
            if value is not None:
                check_callable(name, value)
        for name in ("sample_tools", "sample_context"):
            if check_instance(name, getattr(self, name), bool, "True or False") and self.on_sample is None:
                raise ValueError(f"{name} is about on_sample, which is missing")
        check_seconds("handler_timeout", self.timeout, positive=True, hint="math.inf for no limit")

    def for_server(self, name: Callable[[], str | None]) -> Handlers:
        """Return these handlers for a server whose name this function returns."""
        if not isinstance(self.on_sample, ProviderSampling):
            return self
        return replace(self, on_sample=replace(self.on_sample, server_name=name))

    @property
    def capabilities(self) -> ClientCapabilities:
        """The capabilities to declare."""
        elicitation = None
        # An empty object would declare forms (L-ELI-1c), so without a handler the member is absent.
        if self.on_elicit or self.on_elicit_url:
            elicitation = ElicitationCapability(
                form={} if self.on_elicit else None, url={} if self.on_elicit_url else None
            )
        sampling = None
        if self.on_sample:
            sampling = SamplingCapability(
                tools={} if self.sample_tools else None, context={} if self.sample_context else None
            )
        declared = ClientCapabilities(
            elicitation=elicitation,
            sampling=sampling,
            roots=RootsCapability(list_changed=True) if self.on_roots else None,
        )
        # Calls follow the task that a modern server may answer with (M-TSK-1), and questions may run as tasks (L-TSK-1). Each
        # revision leaves out what it has not.
        return with_tasks(declared, [method for method in TASK_GATES if method in self.request_handlers])

    @property
    def request_handlers(self) -> Mapping[str, RequestHandler]:
        """The handler of each method that the server may request."""
        served: list[tuple[str, object, RequestHandler]] = [
            ("elicitation/create", self.on_elicit or self.on_elicit_url, self._elicit),
            ("sampling/createMessage", self.on_sample, self._sample),
            ("roots/list", self.on_roots, self._roots),
        ]
        return {method: self._timed(method, handler) for method, given, handler in served if given is not None}

    def find_for(self, asker: str) -> FindHandler:
        """Return what finds the handlers of a round's questions.

        Args:
            asker: the name of the tool or prompt, or the URI of the resource, that asks.
        """
        handlers = self.request_handlers
        if not isinstance(self.on_elicit, ChoosesByKey):
            return lambda method, _key: handlers.get(method)
        return lambda method, key: (
            self._timed(method, partial(self._elicit_by_key, asker, key))
            if method == "elicitation/create"
            else handlers.get(method)
        )

    def _timed(self, method: str, handler: RequestHandler) -> RequestHandler:
        timed = handler if self.timeout == math.inf else partial(run_timed, method, handler, self.timeout)
        return timed if self.telemetry is None else self.telemetry.answering(method, timed)

    async def _elicit_by_key(self, asker: str, key: str, params: Model) -> Model:
        """Answer a question of a round. The name that its server gave it has precedence over the key of the round."""
        if isinstance(params, ElicitRequestFormParams) and ELICIT not in (params.meta or {}):
            named: JsonObject = {**(params.meta or {}), ELICIT: {"tool": asker, "key": key}}
            params = params.model_copy(update={"meta": named})
        return await self._elicit(params)

    async def _elicit(self, params: Model) -> Model:
        # One method with two kinds of params, each with its own capability: a client may have declared only one of them.
        if isinstance(params, ElicitRequestURLParams) and self.on_elicit_url is not None:
            expected, result = "on_elicit_url returns accept()", await maybe_await(self.on_elicit_url(params))
        elif isinstance(params, ElicitRequestFormParams) and self.on_elicit is not None:
            expected, result = "on_elicit returns accept(field=value)", await maybe_await(self.on_elicit(params))
        else:
            mode = "url" if isinstance(params, ElicitRequestURLParams) else "form"
            raise CapabilityError(f"the server asked in {mode} mode, which this client did not declare", {})
        # The handler is the program's, which may not be type-checked.
        if not isinstance(result, ElicitResult):
            raise TypeError(f"{expected}, decline() or dismiss(), not {result!r:.80}")
        return result

    async def _sample(self, params: Model) -> Model:
        assert self.on_sample is not None
        assert isinstance(params, CreateMessageRequestParams)
        check_question(params, with_tools=self.sample_tools)
        if isinstance(self.on_sample, ProviderSampling):
            # Itself on Trio, as a provider of this package may be.
            return checked_answer(await self.on_sample(params))
        return checked_answer(await maybe_await(self.on_sample(params)))

    async def _roots(self, _params: Model) -> Model:
        assert self.on_roots is not None
        roots: object = await maybe_await(self.on_roots())
        # A string is iterable too, and its characters would become roots.
        if isinstance(roots, str) or not isinstance(roots, Iterable):
            raise TypeError(f"on_roots returns a list of pathlib.Path or Root, not {roots!r:.80}")
        return ListRootsResult(roots=[as_root(root) for root in roots])


def as_root(root: object) -> Root:
    """Return a root as it is sent (L-ROOT-1c).

    Raises:
        ValueError: its URI is not the URI of a file.
        TypeError: it is neither a `Root` nor a `Path`.
    """
    if not isinstance(root, Root | Path):
        raise TypeError(f"each of what on_roots returns is a pathlib.Path or a Root, not {root!r:.80}")
    if isinstance(root, Path):
        return Root(uri=root.absolute().as_uri(), name=root.name)
    if not root.uri.startswith("file://"):
        raise ValueError(f"a root is a file:// URI, not {root.uri[:128]!r}")
    return root


async def run_timed(method: str, handler: RequestHandler, seconds: float, params: Model) -> Model:
    """Return the answer of a handler. A cancel ends the handler.

    Raises:
        LimitExceeded: it took longer.
    """
    with trio.move_on_after(seconds):
        return await handler(params)
    raise LimitExceeded(f"the handler of {method} took longer than {seconds:g} seconds; the limit is handler_timeout")


# Answering the rounds of a modern server: its questions go to the handlers, concurrently, as long as the connection lasts.

MAX_QUESTIONS = 1024
"""Questions of one round that are answered: a call of our server may have as many open (`Mailbox.limit`)."""
MAX_NOTES = 10
"""Further failures of a round that its first one has notes about."""


@dataclass(slots=True, eq=False)
class Rounds:
    """Answers the rounds of the calls over one connection.

    Args:
        limit: handlers that run at once; the questions above it wait for their turn.

    Attributes:
        home: where the handlers run, from whichever loop the call came; see `HOME`.
    """

    _handlers: Handlers
    _limit: int
    _scopes: set[trio.CancelScope] = field(default_factory=set[trio.CancelScope])
    _places: trio.Semaphore = field(init=False)
    _ended: Disconnected | None = None
    home: Guest | None = None

    def __post_init__(self) -> None:
        self._places = trio.Semaphore(self._limit)

    async def answer(self, asker: str, questions: Mapping[str, InputRequest], codec: Codec) -> dict[str, JsonObject]:
        """Answer the questions of one round, and return the answers by key.

        Args:
            asker: the name of the tool or prompt, or the URI of the resource, that asks.

        Raises:
            LimitExceeded: there are more than `MAX_QUESTIONS`.
            CapabilityError: one asks for something that this client never declared.
            Disconnected: the connection has ended, so that no answer can be sent; the handlers were cancelled.

        The first exception of a handler ends the round and cancels the other handlers. If others fail too, at the same time or
        as they are cancelled, it has a note for each. The server receives no answers; it does not wait for any, as the request
        has ended.
        """
        if len(questions) > MAX_QUESTIONS:
            raise LimitExceeded(
                f"the server asked {len(questions)} questions in one round; the limit is {MAX_QUESTIONS}"
            )
        if self._ended is None:
            with trio.CancelScope() as scope:
                self._scopes.add(scope)
                try:
                    return await self._ask_all(self._handlers.find_for(asker), questions, codec)
                finally:
                    self._scopes.discard(scope)
        # A new exception for each caller: a shared one would collect the tracebacks of all of them.
        raise Disconnected(str(self._ended))

    def end(self, why: Disconnected) -> None:
        """Cancel the handlers of all rounds: the connection has ended."""
        self._ended = why
        for scope in self._scopes:
            scope.cancel()

    async def _ask_all(
        self, find: FindHandler, questions: Mapping[str, InputRequest], codec: Codec
    ) -> dict[str, JsonObject]:
        answers: dict[str, JsonObject] = {}

        async def answer(key: str, method: str, answering: Awaitable[Model]) -> None:
            # In the context of this task alone.
            HOME.set(self.home)
            try:
                answers[key] = codec.encode_input_response(method, await answering)
            finally:
                self._places.release()

        failure: BaseException | None = None
        try:
            # Concurrently, as the server asked them in concurrent branches. A client that shows one form at a time needs a lock.
            async with trio.open_nursery() as nursery:
                for key, question in questions.items():
                    handler = find(question.method, key)
                    if handler is None:
                        why = f"the server asked for {question.method}, which this client did not declare"
                        raise CapabilityError(why, {})
                    params = question.params if question.params is not None else InputResponseRequestParams()
                    await self._take_place()
                    # Called here, in the order of the round: Trio starts the tasks of a nursery in any order.
                    try:
                        answering = handler(params)
                    except BaseException:
                        self._places.release()
                        raise
                    nursery.start_soon(answer, key, question.method, answering)
        except BaseExceptionGroup as group:
            failure = first_failure(group)
            if failure is None:
                raise
        # Raised outside of the `except`, so that it keeps its context and does not show the nursery's group.
        if failure is not None:
            try:
                raise failure
            finally:
                # Its traceback refers to this frame: a cycle, which would keep the error's frames alive.
                del failure
        return answers

    async def _take_place(self) -> None:
        try:
            self._places.acquire_nowait()
        except trio.WouldBlock:
            await self._places.acquire()


def first_failure(group: BaseExceptionGroup) -> BaseException | None:
    """Return the exception that ended a round, with a note for each that came after it; None if all handlers were cancelled."""
    # An error replaces the cancel of its handler's task, as it does in a function without a nursery: the scope stays cancelled.
    failed = without(group, trio.Cancelled)
    # A Ctrl-C or an exit is not the round's to take apart.
    if not isinstance(failed, ExceptionGroup):
        return None if failed is None else unwrap(failed)
    # A nursery lists the exceptions of its tasks in the order in which the tasks ended.
    first, *others = failed.exceptions
    for error in others[:MAX_NOTES]:
        # Not `str(error)`, which may raise.
        text = "".join(traceback.format_exception_only(error)).strip()
        first.add_note(f"another question of the round failed too: {one_line(text)}")
    if len(others) > MAX_NOTES:
        first.add_note(f"{len(others) - MAX_NOTES} more questions of the round failed")
    return first
