"""Whether a process has telemetry: it does if the program uses OpenTelemetry."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from .. import telemetry
from ..base import logs

if TYPE_CHECKING:
    from .meters import Reading
    from .operations import Telemetry

APIS: Final = frozenset({"opentelemetry.trace", "opentelemetry.metrics"})


def open_telemetry(*, content: bool = False, process: str = "") -> Telemetry | None:
    """Return the telemetry of a server or a client; None if the program does not use OpenTelemetry.

    A program that has not loaded the API of OpenTelemetry has set up no exporter: it pays nothing then, not even the import.

    Args:
        content: whether spans show arguments, results, and the URIs of resources.
        process: names this process among those of a server.
    """
    if sys.modules.keys().isdisjoint(APIS):
        return None
    logs.TRACE[:] = [telemetry.spans.log_fields]
    made = telemetry.Telemetry(telemetry.spans.Spans(), content=content, process=process)
    if telemetry.instruments.is_set_up():
        made.recorders.append(telemetry.instruments.instruments().record)
    return made


def observe(service: object, server: str, read: Callable[[object], Iterable[Reading]]) -> None:
    """Let OpenTelemetry read the numbers of a service for as long as it exists.

    Args:
        server: its name.
        read: returns its numbers; called in any thread.
    """
    if telemetry.instruments.is_set_up():
        telemetry.instruments.instruments().add(service, server, read)
