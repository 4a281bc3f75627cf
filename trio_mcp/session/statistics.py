"""What a running server has to show: how much of everything there is now, and what has become of the rest."""

from __future__ import annotations

from dataclasses import dataclass

from ..runtime import SupervisorStatistics, ThreadStatistics


@dataclass(frozen=True, slots=True)
class ReplyStatistics:
    """Replies of clients that reached nobody, since the service was opened.

    Attributes:
        late: their question had been withdrawn.
        duplicate: it had had its answer.
        unknown: it was never asked on that connection; those meant for another client are among them.
    """

    late: int
    duplicate: int
    unknown: int


@dataclass(frozen=True, slots=True)
class ServiceStatistics:
    """A snapshot of one service.

    Attributes:
        actors: calls by state now, and how calls have ended.
        open_questions: questions of theirs that have no answer yet.
        dropped: replies that reached nobody.
        threads: those that run plain functions; abandoned ones belong to calls that were cancelled. None where there are none.
        blocked: how often a tool kept the event loop from turning, as far as the watchdog saw it.
    """

    actors: SupervisorStatistics
    open_questions: int
    dropped: ReplyStatistics
    threads: ThreadStatistics | None
    blocked: int

    @property
    def quiet(self) -> bool:
        """Nothing runs, waits or is held now."""
        actors, threads = self.actors, self.threads
        held = 0 if threads is None else threads.running + threads.waiting
        return not (actors.running or actors.parked or actors.stuck or self.open_questions or held)
