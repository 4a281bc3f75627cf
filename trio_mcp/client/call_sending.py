"""Sending one request of a call: again if its response is lost and that does no harm, and with newer headers if it must be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from ..errors import (
    Disconnected,
    OutcomeUnknown,
    PeerError,
    RemoteProtocolError,
    SessionLost,
    Unreachable,
    without_traceback,
)
from ..protocol.jsonrpc import HEADER_MISMATCH, SERVER_BUSY
from ..protocol.meta import IDEMPOTENCY_KEY
from ..session.client import NO_HEADERS
from ..types import CallToolRequestParams, InputResponseRequestParams, Model
from .call_options import CallOptions
from .link import Link
from .listed_tools import ListedTools
from .option_names import add_option_note
from .repeats import as_repeat, is_unknown, send_again


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
