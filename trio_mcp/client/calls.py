"""Calling tools, rendering prompts and reading resources: the requests that may take several rounds.

In the modern era a server asks by ending the request with its questions (`InputRequiredResult`). The client answers them and
sends the request again, with the state that came with the questions, until the result is complete. The state is echoed byte
for byte, never read, and never sent with another request (M-MRTR-8c). In the legacy era every result is complete.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypedDict, TypeVar

import trio

from ..checks import (
    check_instance,
    check_int,
    check_names,
    check_seconds,
    check_str,
    check_str_mapping,
    check_sync_callback,
    mistake,
)
from ..errors import (
    Disconnected,
    LimitExceeded,
    OutcomeUnknown,
    PeerError,
    RemoteProtocolError,
    SessionLost,
    Unreachable,
    without_traceback,
)
from ..protocol.jsonrpc import HEADER_MISMATCH, METHOD_NOT_FOUND, SERVER_BUSY
from ..protocol.meta import IDEMPOTENCY_KEY
from ..session.client import NO_HEADERS
from ..session.idle_timeout import OnProgress
from ..types import (
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    CreateTaskResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    InputResponseRequestParams,
    JsonObject,
    JsonValue,
    Model,
    ProgressNotificationParams,
    PromptReference,
    ReadResourceRequestParams,
    ReadResourceResult,
    Reference,
    ResourceTemplateReference,
    TaskMetadata,
)
from .link import Link
from .listed_tools import ListedTools
from .option_names import add_option_note, check_call_options
from .options import ClientOptions
from .repeats import as_repeat, is_unknown, request_safely, send_again, with_key
from .task_calls import TaskCalls
from .task_follow import Follower
from .timeouts import timeout_error

M = TypeVar("M", bound=Model)

MAX_ROUNDS: Final = 10
"""Rounds after which a call fails; other SDKs have the same limit (protocol.md 3.7)."""

EMPTY_ROUND_DELAYS: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds to wait before answering a round without questions, by round: such a server is not ready yet."""


class CallKeywords(TypedDict, total=False):
    """The keyword arguments of a call, as type checkers see them; `Client.call_tool` describes each."""

    timeout: float
    on_progress: OnProgress | None
    meta: JsonObject | None
    max_rounds: int
    idle_timeout: float


class CallOptions(NamedTuple):
    """How a call is made: its keyword arguments with their defaults."""

    timeout: float = math.inf
    on_progress: OnProgress | None = None
    meta: JsonObject | None = None
    max_rounds: int = MAX_ROUNDS
    idle_timeout: float = math.inf

    def check(self) -> None:
        """Raise `TypeError` or `ValueError` if an option is invalid."""
        # The defaults are valid. Most calls pass nothing else, and should not pay for checks.
        if self.meta is not None:
            check_instance("meta", self.meta, dict, "a dict of members for `_meta`")
        if self.timeout is not math.inf:
            check_seconds("timeout", self.timeout, hint="math.inf for no limit")
        if self.on_progress is not None:
            check_sync_callback("on_progress", self.on_progress)
        if self.idle_timeout is not math.inf:
            check_seconds("idle_timeout", self.idle_timeout, positive=True, hint="math.inf for no limit")
        if self.max_rounds is not MAX_ROUNDS:
            check_int("max_rounds", self.max_rounds)


OPTIONS: Final = frozenset(CallOptions._fields)


def call_options(method: str, named: object, given: CallKeywords) -> CallOptions:
    """Return the options of a call.

    Args:
        named: the tool, prompt or resource.

    Raises:
        TypeError: the method of the client has no option of that name.
    """
    if not OPTIONS.issuperset(given):
        known = (*OPTIONS, "returns", "raise_on_error", "task") if method == "call_tool" else OPTIONS
        if method != "read_resource":
            check_call_options(method, named, given, known)
        check_names(given, known, f"{method}()")
    return CallOptions(**given)


@dataclass(slots=True, eq=False)
class Calls:
    """Makes the calls of one client, through all their rounds.

    Args:
        refresh_tools: lists the tools again.
        tasks: follows the tasks that tools run as.
    """

    _link: Link
    _options: ClientOptions
    _tools: ListedTools
    _refresh_tools: Callable[[], Awaitable[None]]
    _tasks: TaskCalls

    async def tool(
        self,
        name: str,
        arguments: Mapping[str, JsonValue] | None,
        options: CallOptions,
        *,
        as_task: bool = False,
    ) -> CallToolResult:
        """Call a tool, and follow the task that it may run as. If it was listed with an output schema, its result is validated.

        Args:
            as_task: ask for a task, where the client does that.
        """
        params = tool_params(name, arguments, options, self._link.facts.instance)
        with trio.move_on_after(options.timeout):
            asked = await self._tasks.metadata(name, None, wanted=as_task)
            if asked is None:
                result = await self._untracked(params, options)
            else:
                result = await self._tracked(params.model_copy(update={"task": asked}), options)
            return self.checked(name, result)
        raise timeout_error(options.timeout, name)

    async def start(
        self, name: str, arguments: Mapping[str, JsonValue] | None, options: CallOptions, ttl: float | None
    ) -> Follower:
        """Call a tool as a task, and return what follows it."""
        params = tool_params(name, arguments, options, self._link.facts.instance)
        with trio.move_on_after(options.timeout):
            asked = await self._tasks.metadata(name, ttl, wanted=True)
            params = params.model_copy(update={"task": asked})
            result, _ = await self._rounds("tools/call", params, options, name)
            if isinstance(result, CreateTaskResult):
                return self._tasks.follow_created(result, name, options.max_rounds, options.idle_timeout)
            return self._tasks.finished(self.checked(name, tool_result(result)), name)
        raise timeout_error(options.timeout, name)

    async def _untracked(self, params: CallToolRequestParams, options: CallOptions) -> CallToolResult:
        """Make a call that asks for no task."""
        try:
            result, _ = await self._rounds("tools/call", params, options, params.name)
        except PeerError as error:
            if error.code != METHOD_NOT_FOUND or not self._tasks.may_be_required:
                raise
            refused = without_traceback(error)
        else:
            return await self._followed(result, options, params.name)
        # The tool may run only as a task since it was listed. The server has done nothing.
        if not await self._tasks.is_required_now(params.name):
            raise refused
        return await self._tracked(params.model_copy(update={"task": TaskMetadata()}), options)

    async def _tracked(self, params: CallToolRequestParams, options: CallOptions) -> CallToolResult:
        """Make a call that asks for a task, whose progress comes under the token of the call until the task is over (L-TSK-7)."""
        follower: Follower | None = None

        def report(progress: ProgressNotificationParams) -> None:
            if options.on_progress is not None:
                options.on_progress(progress)
            if follower is not None:
                follower.known.wake()

        with self._link.session.progress_reports(report) as token:
            params = params.model_copy(update={"meta": {**(params.meta or {}), "progressToken": token}})
            result, _ = await self._rounds("tools/call", params, options._replace(on_progress=None), params.name)
            return await self._followed(result, options, params.name)

    async def _followed(self, result: Model, options: CallOptions, name: str) -> CallToolResult:
        """Return the result of a call, of its task if it has become one; a task that is not over then is cancelled."""
        if not isinstance(result, CreateTaskResult):
            return tool_result(result)
        follower = self._tasks.follow_created(result, name, options.max_rounds, options.idle_timeout)
        try:
            return await follower.result()
        except Unreachable as error:
            lost = without_traceback(error)
        except BaseException:
            await follower.clean_up()  # noqa: ASYNC102  it is shielded and bounded itself
            raise
        await follower.clean_up()
        # The task goes on at the server, as far as is known: to call the tool again would do it twice.
        raise OutcomeUnknown(name, str(lost)) from lost

    def checked(self, name: str, result: CallToolResult) -> CallToolResult:
        """Return the result of a tool, validated if the tool was listed with an output schema."""
        # Looked up again after the call, which may have listed the tools again: the newest schema is the one that counts.
        listed = self._tools.by_name.get(name)
        if listed is not None:
            listed.check_result(result)
        return result

    async def prompt(self, name: str, arguments: Mapping[str, str] | None, options: CallOptions) -> GetPromptResult:
        """Render a prompt."""
        options.check()
        check_str("the name of the prompt", name)
        given = None if arguments is None else check_str_mapping("the arguments of the prompt", arguments)
        params = GetPromptRequestParams(name=name, arguments=given, meta=options.meta)
        result, _ = await self._complete("prompts/get", params, GetPromptResult, options, name)
        return result

    async def resource(self, uri: str, options: CallOptions) -> ReadResourceResult:
        """Read a resource, from the cache if possible.

        The result is cached only if it depends on the URI alone: not if the server asked the user something, and not if the
        request had more `_meta` (M-CACHE-2c).
        """
        options.check()
        check_str("the URI", uri)
        method = "resources/read"
        params = ReadResourceRequestParams(uri=uri, meta=options.meta)
        cache = self._options.cache
        cached = None if options.meta else cache.find(method, uri)
        if isinstance(cached, ReadResourceResult):
            return cached
        ticket = cache.ticket()
        result, rounds = await self._complete(method, params, ReadResourceResult, options, uri)
        if not rounds and not options.meta:
            cache.store(method, uri, result, ticket)
        return result

    async def completion(self, params: CompleteRequestParams, timeout: float) -> Completion:
        """Return suggestions for an argument; a server may ask nothing for them."""
        check_seconds("timeout", timeout)
        result = await request_safely(self._link, "completion/complete", params, timeout)
        assert isinstance(result, CompleteResult)
        return result.completion

    async def _complete(
        self, method: str, params: InputResponseRequestParams, kind: type[M], options: CallOptions, what: str
    ) -> tuple[M, int]:
        """Send a request and answer its rounds, all within the timeout; return its result and how many rounds it took.

        Args:
            kind: the type of the result.

        Raises what `_rounds` does.
        """
        with trio.move_on_after(options.timeout):
            result, number = await self._rounds(method, params, options, what)
            # For type checkers: the codec decodes the result of a method to its one type.
            assert isinstance(result, kind)
            return result, number
        raise timeout_error(options.timeout, what)

    async def _rounds(
        self, method: str, params: InputResponseRequestParams, options: CallOptions, what: str
    ) -> tuple[Model, int]:
        """Send a request and answer its rounds; return its result and how many rounds it took.

        Args:
            what: names the call in errors.

        Raises:
            LimitExceeded: the server asked in more than `max_rounds` rounds.
            CapabilityError: it asked for something that this client never declared.

        A cancel withdraws the request that is open and abandons the call.
        """
        for number in range(options.max_rounds + 1):
            result = await self._send(method, params, options, has_begun=number > 0)
            if not isinstance(result, InputRequiredResult):
                return result, number
            # No answers after the last round that is allowed: the user would fill in a form that is never sent.
            if number < options.max_rounds:
                params = await self._answered(params, result, number, what, options.meta)
        raise LimitExceeded(f"the server asked in more than {options.max_rounds} rounds; the limit is max_rounds")

    async def _answered(
        self,
        params: InputResponseRequestParams,
        asked: InputRequiredResult,
        number: int,
        asker: str,
        meta: JsonObject | None,
    ) -> InputResponseRequestParams:
        """Return the params of the next round: those of the first, with the answers and the state, and with this `_meta`."""
        codec = self._link.session.terms.codec
        answers = await self._link.rounds.answer(asker, asked.input_requests or {}, codec)
        if not answers:
            await trio.sleep(EMPTY_ROUND_DELAYS[min(number, len(EMPTY_ROUND_DELAYS) - 1)])
        # Both members are replaced, also by None: a state that the server did not send again must not be echoed (M-MRTR-8c).
        state = {"input_responses": answers or None, "request_state": asked.request_state, "meta": meta}
        return params.model_copy(update=state)

    async def _send(
        self, method: str, params: InputResponseRequestParams, options: CallOptions, *, has_begun: bool
    ) -> Model:
        """Send one request of a call; again if its response is lost and that does no harm.

        Args:
            has_begun: the server has answered an earlier request of the call.

        Raises:
            OutcomeUnknown: the response to a `tools/call` is lost, and the tool may or may not have run.
            Unreachable: there is no connection, and the server did nothing for the call.
        """
        # Before it is sent: a session that is opened again may be one with another process.
        instance = self._link.facts.instance
        try:
            return await self._send_once(method, params, options)
        except SessionLost:
            # The server did nothing for the request.
            raise
        except Disconnected as error:
            # Nor here, but a call that has begun may be in the middle: its next request waits for a server that restarts.
            if isinstance(error, Unreachable) and not has_begun:
                raise
            lost = without_traceback(error)
        except PeerError as error:
            if is_unknown(error):
                raise unknown(params, error) from error
            raise
        try:
            return await self._send_again(method, params, options, instance, lost)
        finally:
            # Its traceback may refer to this frame: a cycle, which would keep the error's frames alive.
            del lost

    async def _send_again(
        self,
        method: str,
        params: InputResponseRequestParams,
        options: CallOptions,
        instance: str | None,
        lost: Disconnected,
    ) -> Model:
        """Send a request whose response was lost again, if that cannot run a tool twice by mistake."""
        is_tool = isinstance(params, CallToolRequestParams)
        if isinstance(params, CallToolRequestParams) and params.request_state is None:
            if instance is not None and IDEMPOTENCY_KEY in (params.meta or {}):
                params = params.model_copy(update={"meta": as_repeat(params.meta, instance)})
            elif not self._tools.is_harmless(params.name):
                raise unknown(params, lost) from lost
        try:
            return await send_again(self._link.session, lost, partial(self._send_once, method, params, options))
        except PeerError as error:
            if is_unknown(error) or (is_tool and error.code == SERVER_BUSY):
                raise unknown(params, error) from error
            raise
        except (Disconnected, RemoteProtocolError) as error:
            if is_tool:
                raise unknown(params, error) from error
            raise
        finally:
            del lost  # as in `_send`

    async def _send_once(self, method: str, params: InputResponseRequestParams, options: CallOptions) -> Model:
        """Send one request; with newer headers if the server rejects those that it has."""
        try:
            return await self._request(method, params, options)
        except PeerError as error:
            add_option_note(error)
            if error.code != HEADER_MISMATCH or not isinstance(params, CallToolRequestParams):
                raise
        # The tool was listed too long ago, and by now repeats other arguments in headers. The server rejected the call before
        # it ran, so it may be sent again (M-HTTP-7c). Once: a server that rejects the newest headers too would never accept.
        await self._refresh_tools()
        return await self._request(method, params, options)

    def _request(self, method: str, params: InputResponseRequestParams, options: CallOptions) -> Awaitable[Model]:
        headers = NO_HEADERS
        if isinstance(params, CallToolRequestParams):
            listed = self._tools.by_name.get(params.name)
            headers = NO_HEADERS if listed is None else listed.headers(params.arguments or {})
        return self._link.request(
            method, params, idle=options.idle_timeout, on_progress=options.on_progress, headers=headers
        )


def unknown(params: InputResponseRequestParams, why: Exception) -> OutcomeUnknown:
    """Return the error of a call that may or may not have run."""
    return OutcomeUnknown(getattr(params, "name", ""), str(why))


def tool_params(
    name: str, arguments: Mapping[str, JsonValue] | None, options: CallOptions, instance: str | None
) -> CallToolRequestParams:
    """Return the params of a call, with an idempotency key if the server knows those.

    Args:
        instance: of the server; None if it does not know keys.

    Raises:
        TypeError, ValueError: an argument or an option is invalid.
    """
    options.check()
    check_str("the name of the tool", name)
    meta = with_key(options.meta, instance)
    return CallToolRequestParams(name=name, arguments=tool_arguments(arguments), meta=meta)


def tool_result(result: Model) -> CallToolResult:
    # For type checkers: the codec decodes the result of a method to its one type, unless it is a task.
    assert isinstance(result, CallToolResult)
    return result


def tool_arguments(arguments: Mapping[str, JsonValue] | None) -> dict[str, JsonValue]:
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise TypeError(
            mistake("the arguments of the tool", 'a mapping of names to values, such as {"city": "Lisbon"}', arguments)
        )
    return dict(arguments)


def complete_params(
    ref: Reference, argument: str, value: str, context: Mapping[str, str] | None
) -> CompleteRequestParams:
    """Return the params of `completion/complete`; raise `TypeError` if an argument has the wrong type."""
    if not isinstance(ref, PromptReference | ResourceTemplateReference):
        raise TypeError(
            "ref says whose argument it is: PromptReference(name=...) or ResourceTemplateReference(uri=...), "
            f"of trio_mcp.types, not {ref!r:.80}"
        )
    check_str("argument", argument)
    check_str("value", value)
    known = None if context is None else CompletionContext(arguments=check_str_mapping("context", context))
    return CompleteRequestParams(ref=ref, argument=CompletionArgument(name=argument, value=value), context=known)
