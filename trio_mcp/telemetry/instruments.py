"""The instruments of OpenTelemetry. The only module that knows the API of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Meter as OtelMeter, Observation

from .conventions import Attributes
from .meters import DURATIONS, METERS, Reading

SERVER: Final = "trio_mcp.server"
"""The attribute with the name of a server: a process may have several."""


class Instruments:
    """The instruments of one provider. Those that are observed exist once for all services, which come and go."""

    def __init__(self) -> None:
        self.provider = metrics.get_meter_provider()
        meter = self.provider.get_meter("trio_mcp")
        self._durations = {
            name: meter.create_histogram(name, "s", each.description, explicit_bucket_boundaries_advisory=each.buckets)
            for name, each in DURATIONS.items()
        }
        self._services: WeakKeyDictionary[object, tuple[str, Callable[[object], Iterable[Reading]]]] = (
            WeakKeyDictionary()
        )
        for name in METERS:
            self._observe(meter, name)

    def record(self, name: str, seconds: float, attributes: Attributes) -> None:
        """Record a duration."""
        self._durations[name].record(seconds, attributes)

    def add(self, service: object, server: str, read: Callable[[object], Iterable[Reading]]) -> None:
        """Observe a service for as long as it exists.

        Args:
            server: its name.
            read: returns its numbers.
        """
        self._services[service] = server, read

    def _observe(self, meter: OtelMeter, name: str) -> None:
        made = METERS[name]
        create = meter.create_observable_gauge if made.kind == "gauge" else meter.create_observable_counter
        create(name, [partial(self._observations, name)], made.unit, made.description)

    def _observations(self, name: str, _options: CallbackOptions) -> Iterable[Observation]:
        # In the thread of a reader: services of the event loop may come and go meanwhile.
        for service, (server, read) in list(self._services.items()):
            for reading in read(service):
                if reading.name == name:
                    named = dict(zip(METERS[name].attributes, reading.attributes, strict=True))
                    yield Observation(reading.value, {SERVER: server, **named})


def is_set_up() -> bool:
    """Return whether the program has set up a provider of metrics."""
    return not type(metrics.get_meter_provider()).__module__.startswith("opentelemetry.metrics")


_made: list[Instruments] = []


def instruments() -> Instruments:
    """Return the instruments of the provider of this process."""
    if not _made or _made[0].provider is not metrics.get_meter_provider():
        _made[:] = [Instruments()]
    return _made[0]
