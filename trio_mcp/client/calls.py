"""Calling tools, rendering prompts and reading resources: the requests that may take several rounds.

In the modern era a server asks by ending the request with its questions (`InputRequiredResult`). The client answers them and
sends the request again, with the state that came with the questions, until the result is complete. The state is echoed byte
for byte, never read, and never sent with another request (M-MRTR-8c). In the legacy era every result is complete.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import trio

from ..base.checks import check_seconds, check_str, check_str_mapping
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
from ..protocol.revisions import IDEMPOTENCY_KEY
from ..protocol.schema.references import CheckTooExpensive
from ..session.client import NO_HEADERS, NO_LIMIT
from ..types import (
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    CreateTaskResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    InputResponseRequestParams,
    JsonObject,
    Model,
    ProgressNotificationParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    TaskMetadata,
)
from .link import Link
from .lists import ListedTools
from .options import CallOptions, ClientOptions, add_option_note, tool_params, with_key
from .requester import ServerFacts, as_repeat, is_unknown, request_safely, send_again, timeout_error
from .tasks.calls import TaskCalls
from .tasks.follow import Follower

# Sending one request of a call: again if its response is lost and that does no harm, and with newer headers if it must be.


@dataclass(slots=True, eq=False)
class CallSender:
    """Sends the requests of one client's calls.

    Args:
        tools: those that were listed: which are harmless, and which arguments are repeated in headers.
        refresh_tools: lists the tools again.
    """

    _link: Link
    _tools: ListedTools
    _refresh_tools: Callable[[], Awaitable[None]]

    async def send(
        self, method: str, params: InputResponseRequestParams, options: CallOptions, *, has_begun: bool
    ) -> Model:
        """Send one request of a call; again if its response is lost and that does no harm.

        Args:
            has_begun: the server has answered an earlier request of the call.

        Raises:
            OutcomeUnknown: the response to a `tools/call` is lost, and the tool may or may not have run.
            Unreachable: there is no connection, and the server did nothing for the call.
        """
        # Before it is sent: a session that is opened again may be one with another process. Only a first request is sent there.
        is_keyed = params.request_state is None and IDEMPOTENCY_KEY in (params.meta or {})
        instance = self._link.facts.instance if is_keyed else None
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
            if instance is not None:
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
            del lost  # as in `send`

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


M = TypeVar("M", bound=Model)

EMPTY_ROUND_DELAYS: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds to wait before answering a round without questions, by round: such a server is not ready yet."""


@dataclass(slots=True, eq=False)
class Calls:
    """Makes the calls of one client, through all their rounds.

    Args:
        sender: sends each of their requests.
        tasks: follows the tasks that tools run as.
    """

    _link: Link
    _options: ClientOptions
    _tools: ListedTools
    _sender: CallSender
    _tasks: TaskCalls

    async def tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None,
        options: CallOptions,
        *,
        as_task: bool = False,
    ) -> CallToolResult:
        """Call a tool, and follow the task that it may run as. If it was listed with an output schema, its result is validated.

        Args:
            as_task: ask for a task, where the client does that.
        """
        facts = self._link.facts
        params = tool_params(name, arguments, options, facts.instance)
        return await self._tool(params, options, facts, as_task=as_task)

    async def forward(self, method: str, params: InputResponseRequestParams, options: CallOptions) -> Model:
        """Make the call of another client with all members of its params, for a proxy, and return its result as it is."""
        first = {"input_responses": None, "request_state": None}
        if isinstance(params, CallToolRequestParams):
            facts = self._link.facts
            meta = with_key(params.meta, facts.instance)
            return await self._tool(params.model_copy(update={**first, "meta": meta, "task": None}), options, facts)
        what = params.name if isinstance(params, GetPromptRequestParams) else method
        what = params.uri if isinstance(params, ReadResourceRequestParams) else what
        result, _ = await self._rounds(method, params.model_copy(update=first), options, what)
        return result

    async def _tool(
        self, params: CallToolRequestParams, options: CallOptions, facts: ServerFacts, *, as_task: bool = False
    ) -> CallToolResult:
        """Call a tool, and follow its task; see `tool`."""
        name, asked = params.name, None
        with NO_LIMIT if options.timeout == math.inf else trio.move_on_after(options.timeout):
            # Without an own wish, only a tool that runs in no other way gets a task.
            if as_task or facts.capabilities.tasks is not None:
                asked = await self._tasks.metadata(name, None, wanted=as_task)
            if asked is None:
                result = await self._untracked(params, options)
            else:
                result = await self._tracked(params.model_copy(update={"task": asked}), options)
            return await self._checked(name, result)
        raise timeout_error(options.timeout, name)

    async def start(
        self, name: str, arguments: Mapping[str, object] | None, options: CallOptions, ttl: float | None
    ) -> Follower:
        """Call a tool as a task, and return what follows it."""
        params = tool_params(name, arguments, options, self._link.facts.instance)
        with NO_LIMIT if options.timeout == math.inf else trio.move_on_after(options.timeout):
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

        with self._link.session.notifications.progress_reports(report) as token:
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

    async def _checked(self, name: str, result: CallToolResult) -> CallToolResult:
        """Return what `checked` does; a check that a server made costly runs beside the event loop."""
        with suppress(CheckTooExpensive):
            return self.checked(name, result, quick=True)
        return await trio.to_thread.run_sync(self.checked, name, result)

    def checked(self, name: str, result: CallToolResult, *, quick: bool = False) -> CallToolResult:
        """Return the result of a tool, validated if the tool was listed with an output schema."""
        # Looked up again after the call, which may have listed the tools again: the newest schema is the one that counts.
        listed = self._tools.by_name.get(name)
        if listed is not None:
            listed.check_result(result, quick=quick)
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
        with NO_LIMIT if options.timeout == math.inf else trio.move_on_after(options.timeout):
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
            result = await self._sender.send(method, params, options, has_begun=number > 0)
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


def tool_result(result: Model) -> CallToolResult:
    # For type checkers: the codec decodes the result of a method to its one type, unless it is a task.
    assert isinstance(result, CallToolResult)
    return result
