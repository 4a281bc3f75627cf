"""The statistics of a running server: what runs and waits now, and how calls and replies ended."""

from __future__ import annotations

from typing import NamedTuple

from ..runtime import MemoryStatistics, SupervisorStatistics, ThreadStatistics


class ReplyStatistics(NamedTuple):
    """Replies of clients that matched no open question, since the service was opened.

    Attributes:
        late: replies whose question had been withdrawn.
        duplicate: replies whose question had been answered.
        unknown: replies to questions never asked on that connection, such as a reply meant for another client.
    """

    late: int
    duplicate: int
    unknown: int


class ServiceStatistics(NamedTuple):
    """A snapshot of one service.

    Attributes:
        actors: calls by state now, and how calls have ended.
        open_questions: questions of these calls without an answer.
        dropped: replies that matched no open question.
        threads: those that run plain functions; abandoned ones belong to calls that were cancelled. None without plain functions.
        memory: the memory budget; other services of the process may share it.
        blocked: how often the watchdog saw a tool block the event loop.
    """

    actors: SupervisorStatistics
    open_questions: int
    dropped: ReplyStatistics
    threads: ThreadStatistics | None
    memory: MemoryStatistics
    blocked: int

    @property
    def is_idle(self) -> bool:
        """Whether no call is running, parked or stuck, no question is open, and no thread is in use."""
        actors, threads = self.actors, self.threads
        in_threads = 0 if threads is None else threads.running + threads.waiting
        return not (actors.running or actors.parked or actors.stuck or self.open_questions or in_threads)
