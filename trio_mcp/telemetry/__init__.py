"""Spans and metrics of the requests that are sent and served, by the conventions of OpenTelemetry for MCP."""

from typing import TYPE_CHECKING

from ..base import late

if TYPE_CHECKING:
    from . import instruments as instruments, meters as meters, prometheus as prometheus, spans as spans
    from .opening import observe as observe, open_telemetry as open_telemetry
    from .operation import Operation as Operation
    from .operations import Telemetry as Telemetry
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "instruments": "",
            "meters": "",
            "opening": "observe open_telemetry",
            "operation": "Operation",
            "operations": "Telemetry",
            "prometheus": "",
            "spans": "",
        },
    )
