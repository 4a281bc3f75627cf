"""Whether a process has telemetry: it does if the program uses OpenTelemetry."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .. import telemetry

if TYPE_CHECKING:
    from .operations import Telemetry


def open_telemetry(*, content: bool = False, process: str = "") -> Telemetry | None:
    """Return the telemetry of a server or a client; None if the program does not use OpenTelemetry.

    A program that has not loaded the API of OpenTelemetry has set up no exporter: it pays nothing then, not even the import.

    Args:
        content: whether spans show arguments, results, and the URIs of resources.
        process: names this process among those of a server.
    """
    if "opentelemetry.trace" not in sys.modules:
        return None
    return telemetry.Telemetry(telemetry.spans.Spans(), content=content, process=process)
