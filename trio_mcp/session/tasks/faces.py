"""A record as the codecs take it: what is true of the task in any revision. The codec of a request shows it in its own way."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from ...protocol.codec.tasks import TaskState
from ...types import Model, Task
from ..calls.legs import OpenQuestion
from ..task_options import TaskOptions
from .record import TaskRecord

NO_QUESTIONS: Final[Mapping[str, OpenQuestion]] = {}


def task_state(
    record: TaskRecord, options: TaskOptions, questions: Mapping[str, OpenQuestion] = NO_QUESTIONS
) -> TaskState:
    """Return a task for a codec to show."""
    outcome = record.outcome
    ended = None if outcome is None else outcome.result or outcome.error
    task = Task(
        task_id=record.id,
        status="cancelled" if outcome is not None and ended is None else "working",
        status_message=record.message,
        created_at=iso_time(record.created_at),
        last_updated_at=iso_time(record.updated_at),
        ttl_ms=round(record.ttl * 1000),
        poll_interval_ms=round(options.poll_interval * 1000),
    )
    return TaskState(task, asked=asked_in_order(questions), outcome=ended)


def asked_in_order(questions: Mapping[str, OpenQuestion]) -> dict[str, tuple[str, Model]]:
    """Return method and params of open questions by key, in the order of the branches that asked and then in theirs."""
    ordered = sorted(questions.items(), key=lambda item: item[1].order)
    return {key: (asked.question.method, asked.question.params) for key, asked in ordered}


def iso_time(seconds: float) -> str:
    """Return a time of Unix seconds in ISO 8601, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
