"""Calls that a server answers with a task: asking for one, following it, and finding it again."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ...errors import CapabilityError, LimitExceeded, McpError
from ...protocol.revisions import TASK_GATES, TASKS_EXTENSION, TASKS_GATE, TaskStyle
from ...types import (
    CallToolResult,
    CreateTaskResult,
    JsonObject,
    ListTasksResult,
    PaginatedRequestParams,
    Task,
    TaskMetadata,
    declares,
)
from ..known_task import KnownTask, check_task_id
from ..link import Link
from ..lists import MAX_PAGES, ListedTools
from .follow import DeclaredFollower, Follower, RequestedFollower

# What differs, by how requests become tasks in the revision (`Revision.tasks`):
#
#     DECLARED (2026-07-28)     the client declares the extension in each request; the server decides
#     REQUESTED (2025-11-25)    the client asks for a task, for tools that may or must be one, which it knows from their list
#     NONE (older)              there are no tasks


TOOLS_GATE: Final = TASK_GATES["tools/call"]


@dataclass(slots=True, eq=False)
class TaskCalls:
    """The tasks of one client.

    Args:
        refresh_tools: lists the tools again.
    """

    _link: Link
    _tools: ListedTools
    _refresh_tools: Callable[[], Awaitable[None]]
    _has_listed: bool = False

    # asking for a task

    async def metadata(self, name: str, ttl: float | None, *, wanted: bool) -> TaskMetadata | None:
        """Return what asks for a task in a call of this tool; None if nothing does, as the server decides or there is none.

        Args:
            ttl: seconds for which the server is to keep the task; None leaves it to the server.
            wanted: whether the program wants a task. If not, only a tool that runs in no other way gets one.

        Raises:
            CapabilityError: the program wants a task, and the server has none, or the tool is none.
        """
        style = self._style
        if wanted:
            self._check_offered(name, style)
        if not self.may_be_required:
            return None
        support = await self._support(name)
        if support == "required" or (support == "optional" and wanted):
            return TaskMetadata(ttl=None if ttl is None else round(ttl * 1000))
        if wanted:
            raise not_offered(name, f"the tool {name[:128]!r} does not run as a task", {})
        return None

    @property
    def may_be_required(self) -> bool:
        """Whether a tool may run only as a task that the client has to ask for."""
        return self._style is TaskStyle.REQUESTED and declares(self._link.facts.capabilities, TOOLS_GATE)

    async def is_required_now(self, name: str) -> bool:
        """List the tools again, and return whether this tool runs only as a task."""
        await self._refresh_tools()
        return self._tools.task_support.get(name) == "required"

    def _check_offered(self, name: str, style: TaskStyle) -> None:
        facts = self._link.facts
        if style is TaskStyle.NONE:
            raise not_offered(name, f"the server speaks {facts.protocol_version}, which has no tasks", {})
        if style is TaskStyle.DECLARED and not declares(facts.capabilities, TASKS_GATE):
            raise not_offered(
                name,
                f"the server does not declare the extension {TASKS_EXTENSION}",
                {"extensions": {TASKS_EXTENSION: {}}},
            )
        if style is TaskStyle.REQUESTED and not declares(facts.capabilities, TOOLS_GATE):
            raise not_offered(
                name, "the server runs no tools as tasks", {"tasks": {"requests": {"tools": {"call": {}}}}}
            )

    async def _support(self, name: str) -> str:
        """Return whether a tool may run as a task; lists the tools once if it is not known."""
        known = self._tools.task_support.get(name)
        if known is None and not self._has_listed:
            try:
                await self._refresh_tools()
            except McpError as error:
                # The call itself says more: a server may well not list a tool that it has.
                error.add_note(f"while it was looked up whether the tool {name[:128]} runs as a task")
                raise
            self._has_listed = True
            known = self._tools.task_support.get(name)
        return known or "forbidden"

    # following one

    def follow_created(self, created: CreateTaskResult, asker: str, max_rounds: int, idle_timeout: float) -> Follower:
        """Return what follows the task that a server has answered with.

        Raises:
            RemoteProtocolError: its id is too long.
        """
        follower = self.follow(check_task_id(created.task_id), asker, max_rounds, idle_timeout)
        follower.known.take(created)
        return follower

    def follow(self, task_id: str, asker: str, max_rounds: int, idle_timeout: float = math.inf) -> Follower:
        """Return what follows the task with this id.

        Raises:
            CapabilityError: the revision has no tasks.
        """
        style = self._style
        if style is TaskStyle.NONE:
            version = self._link.facts.protocol_version
            raise CapabilityError(f"the server speaks {version}, which has no tasks", {})
        known = KnownTask(task_id, has_outcome=style is TaskStyle.DECLARED)
        kind = DeclaredFollower if style is TaskStyle.DECLARED else RequestedFollower
        return kind(self._link, known, asker, max_rounds, idle_timeout)

    def finished(self, result: CallToolResult, asker: str) -> Follower:
        """Return the same for a result that a server has answered with at once, so that there is no task."""
        follower = DeclaredFollower(self._link, KnownTask("", has_outcome=False), asker, 0)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        follower.known.take(Task(task_id="", status="completed", created_at=now, last_updated_at=now, ttl_ms=None))
        follower.known.end(result)
        return follower

    # the list

    def check_listed(self) -> None:
        """Raise `CapabilityError` unless the server lists its tasks."""
        if self._style is TaskStyle.DECLARED:
            raise CapabilityError(
                "the tasks extension has no list of tasks: keep the id of each, and pass it to client.task(id)", {}
            )
        if not declares(self._link.facts.capabilities, "tasks.list"):
            raise CapabilityError("the server does not list its tasks", {"tasks": {"list": {}}})

    async def items(self, timeout: float) -> AsyncGenerator[Task]:
        """Yield the tasks that the server lists; each page may take `timeout` seconds.

        Raises:
            LimitExceeded: there are more than `MAX_PAGES` pages.
        """
        cursor = None
        for _ in range(MAX_PAGES):
            params = PaginatedRequestParams(cursor=cursor)
            page = await self._link.request("tasks/list", params, timeout=timeout)
            assert isinstance(page, ListTasksResult)
            for task in page.tasks:
                yield task
            cursor = page.next_cursor
            if cursor is None:
                return
        raise LimitExceeded(f"tasks/list has more than {MAX_PAGES} pages, which is the limit")

    @property
    def _style(self) -> TaskStyle:
        return self._link.session.terms.codec.revision.tasks


def not_offered(name: str, why: str, missing: JsonObject) -> CapabilityError:
    """Return the error of a program that wants a task and cannot have one, with a note that says what to write instead."""
    error = CapabilityError(why, missing)
    # A note: on a command line, the cure is another one.
    error.add_note(f"use call_tool({name[:128]!r}, ...) without task=True, which waits for the result")
    return error
