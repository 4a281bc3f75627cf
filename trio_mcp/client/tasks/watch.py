"""Keeping up with a task while somebody waits for it: by what the server announces, and by asking.

A modern server announces the changes of a task on a stream (`subscriptions/listen`), one of 2025-11-25 on the session, and it
need not. So the client asks as well (`tasks/get`): at the interval that the server wants, or rarely while a stream is open.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from ...base.backoff import RECONNECT_BACKOFF
from ...base.logs import peer_logger
from ...errors import Disconnected, McpError, PeerError, RemoteProtocolError, RequestTimeout, without_traceback
from ...session.subscriptions import filter_of
from ...types import (
    CallToolResult,
    DetailedTask,
    GetTaskPayloadResult,
    GetTaskResult,
    JsonObject,
    Model,
    RequestParams,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    TaskRequestParams,
    TaskStatusNotificationParams,
)
from ..known_task import KnownTask
from ..link import Link
from ..requester import would_fail_again

logger = peer_logger("trio_mcp.client")

POLL_INTERVAL: Final = 1.0
"""Seconds between two questions for the state of a task, if the server does not say."""
MIN_POLL_INTERVAL: Final = 0.1
MAX_POLL_INTERVAL: Final = 60.0
STREAM_POLL_INTERVAL: Final = 30.0
"""Seconds between them while a stream is open that announces its changes: one may be lost."""

REQUEST_TIMEOUT: Final = 30.0
"""Seconds that a server may take to answer a request about a task, which it need not wait for."""
PAYLOAD_TIMEOUT: Final = 60.0
"""Seconds that it may take to answer `tasks/result` once the task is over."""
ATTEMPTS: Final = 6
"""Times that a request about a task is sent, if its answer is lost."""


async def request_again(link: Link, method: str, params: RequestParams, timeout: float = REQUEST_TIMEOUT) -> Model:
    """Send a request about a task, and again if its answer was lost: what these do twice they have done once.

    Raises the errors of `ClientSession.request`; a cancel withdraws the request.
    """
    failures = 0
    while True:
        try:
            return await link.request(method, params, timeout=timeout)
        except (Disconnected, RequestTimeout, PeerError) as error:
            failures += 1
            if failures == ATTEMPTS or not link.is_connected or would_fail_again(error):
                raise
            logger.info("%s is sent again: %s", method, error)
        await trio.sleep(RECONNECT_BACKOFF.delay(failures - 1))


class TaskWatch(ABC):
    """Keeps `known` up to date; runs in a task of the link from `start` to `stop`.

    Attributes:
        failure: why nothing more will be known; None while it runs.
    """

    def __init__(self, link: Link, known: KnownTask) -> None:
        self._link = link
        self._known = known
        self._scope = trio.CancelScope()
        self._look = trio.Event()
        """Set when the state is to be asked for now."""
        self.failure: Exception | None = None

    def start(self) -> None:
        """Raises `Disconnected` if the link is not open."""
        self._link.start(self._run)

    def stop(self) -> None:
        self._scope.cancel()

    async def _run(self) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._contained, self._follow)
                    await self._contained(self._poll)
                    nursery.cancel_scope.cancel()
        finally:
            if not self._known.is_over:
                self._fail(Disconnected("the client was closed"))

    async def _contained(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001  raised where the task is waited for
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = error
        self._known.wake()

    @abstractmethod
    async def _follow(self) -> None:
        """Process the server's notifications; cancelled when the task is over or no longer watched."""

    async def _poll(self) -> None:
        """Ask for the state of the task until it is over."""
        known = self._known
        if known.newest is None:
            await self._ask()
        while not known.is_over:
            with trio.move_on_after(self._interval()):
                await self._look.wait()
            self._look = trio.Event()
            if not known.is_over:
                await self._ask()
        await self._over()

    async def _ask(self) -> None:
        if not await ask_state(self._link, self._known):
            self._look.set()

    async def _over(self) -> None:  # noqa: B027
        """What is still to be done when the task is over."""

    def _interval(self) -> float:
        wanted = None if self._known.newest is None else self._known.newest.poll_interval_ms
        interval = POLL_INTERVAL if wanted is None else wanted / 1000
        return min(max(interval, MIN_POLL_INTERVAL), MAX_POLL_INTERVAL)

    def _take_news(self, task: DetailedTask) -> None:
        if task.task_id == self._known.id:
            self._known.take(task)
            if self._known.is_over:
                self._look.set()


async def get_task(link: Link, task_id: str) -> GetTaskResult:
    """Return the state of a task. Raises the errors of the request."""
    task = await request_again(link, "tasks/get", TaskRequestParams(task_id=task_id))
    assert isinstance(task, GetTaskResult)
    return task


async def ask_state(link: Link, known: KnownTask) -> bool:
    """Ask for the state of a task, and take it. Raises the errors of the request.

    False if something else was taken meanwhile: the server may have announced that after it had made its answer, which would then
    undo it. To be asked again.
    """
    changes = known.changes
    task = await get_task(link, known.id)
    if known.changes != changes:
        return False
    known.take(task)
    return True


class StreamWatch(TaskWatch):
    """Follows a task of the extension, whose changes come on a stream; the outcome comes with the last of them."""

    def __init__(self, link: Link, known: KnownTask) -> None:
        super().__init__(link, known)
        self._is_announced = False
        """Whether a stream is open on which the server announces the changes of the task."""
        self._stream_scope = trio.CancelScope()

    async def _follow(self) -> None:
        losses = 0
        while True:
            self._stream_scope = trio.CancelScope()
            try:
                with self._stream_scope:
                    await self._listen()
            except McpError as error:
                logger.debug("the changes of a task are not announced: %s", error)
                if not self._link.is_connected or would_fail_again(error):
                    return
            finally:
                self._is_announced = False
            # Something may have changed while no stream was open.
            self._look.set()
            if self._stream_scope.cancel_called:
                return
            await trio.sleep(RECONNECT_BACKOFF.delay(losses))
            losses += 1

    async def _listen(self) -> None:
        params = SubscriptionsListenRequestParams(notifications=filter_of((), (), (self._known.id,)))
        # Without a timeout: its answer is the end of the stream. Until it is acknowledged, the task is polled.
        await self._link.request("subscriptions/listen", params, on_notification=self._on_notification)

    def _on_notification(self, _method: str, params: Model) -> None:
        if isinstance(params, SubscriptionsAcknowledgedNotificationParams):
            if self._known.id in (params.notifications.task_ids or ()):
                self._is_announced = True
                # It may have changed before.
                self._look.set()
            else:
                self._stream_scope.cancel()
        elif isinstance(params, TaskStatusNotificationParams):
            self._take_news(params)

    def _interval(self) -> float:
        interval = super()._interval()
        return max(interval, STREAM_POLL_INTERVAL) if self._is_announced else interval


class SessionWatch(TaskWatch):
    """Follows a task of 2025-11-25: its changes may come on the session, its outcome and its questions on `tasks/result`.

    Args:
        wants_result: whether to wait for its outcome, and to have it ask, as the questions come only then (L-TSK-6).
    """

    def __init__(self, link: Link, known: KnownTask, *, wants_result: bool) -> None:
        super().__init__(link, known)
        self.wants_result = wants_result
        self._has_result = trio.Event()

    def start(self) -> None:
        super().start()
        self._link.task_news.add(self._known.id, self._take_news)

    def stop(self) -> None:
        super().stop()
        self._link.task_news.remove(self._known.id, self._take_news)

    async def _follow(self) -> None:
        if self.wants_result and self._known.outcome is None:
            try:
                await self._fetch_result()
            finally:
                self._has_result.set()
                self._look.set()

    async def _fetch_result(self) -> None:
        link, known = self._link, self._known
        params = TaskRequestParams(task_id=known.id)
        try:
            answer = await request_again(link, "tasks/result", params, math.inf)
        except PeerError as error:
            # Either this is how the task has failed, or the server does not wait, or cannot.
            while not await ask_state(link, known):
                pass
            if known.is_over:
                known.end(error)
                return
        else:
            known.end(result_of(link, answer))
            return
        while not known.is_over:
            await known.wait()
        try:
            known.end(result_of(link, await request_again(link, "tasks/result", params, PAYLOAD_TIMEOUT)))
        except PeerError as error:
            known.end(error)

    async def _over(self) -> None:
        """Wait for the outcome, which is there now.

        Raises:
            RequestTimeout: the server does not send it.
        """
        if self.wants_result and self._known.outcome is None:
            with trio.move_on_after(PAYLOAD_TIMEOUT):
                await self._has_result.wait()
                return
            raise RequestTimeout(
                f"the task is over, and the server did not send its result in {PAYLOAD_TIMEOUT:g} seconds"
            )


def result_of(link: Link, answer: Model) -> CallToolResult | Exception:
    """Return the result of a tool in the answer to `tasks/result`, or what is wrong with it."""
    assert isinstance(answer, GetTaskPayloadResult)
    return read_payload(link, answer.payload)


def read_payload(link: Link, payload: JsonObject) -> CallToolResult | Exception:
    """Return the result of a tool that ran as a task, or what is wrong with it."""
    try:
        result = link.session.terms.codec.decode_task_payload("tools/call", payload)
    except RemoteProtocolError as error:
        return without_traceback(error)
    assert isinstance(result, CallToolResult)
    return result
