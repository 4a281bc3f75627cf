"""The page of metrics that Prometheus scrapes. The only module that knows its client library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from .conventions import Attributes
from .meters import DURATIONS, METERS, Reading

PROCESS: Final = "trio_mcp_process"
"""The label that tells the processes of one page apart."""
UNITS: Final[Mapping[str, str]] = {"s": "_seconds", "By": "_bytes"}


def spelled(name: str, unit: str = "") -> str:
    """Return a name of OpenTelemetry as Prometheus spells it."""
    return name.replace(".", "_") + UNITS.get(unit, "")


class Exposition(Collector):
    """The metrics of one service.

    Args:
        read: returns its numbers.
    """

    def __init__(self, read: Callable[[], Iterable[Reading]]) -> None:
        self._read = read
        self._registry = CollectorRegistry()
        self._labels = {name: [spelled(each) for each in made.attributes] for name, made in DURATIONS.items()}
        self._durations = {
            name: Histogram(
                spelled(name, "s"), made.description, self._labels[name], registry=self._registry, buckets=made.buckets
            )
            for name, made in DURATIONS.items()
        }
        self._registry.register(self)

    def record(self, name: str, seconds: float, attributes: Attributes) -> None:
        """Record a duration."""
        values = [str(attributes.get(each, "")) for each in DURATIONS[name].attributes]
        self._durations[name].labels(*values).observe(seconds)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the service is not asked before a page is."""
        return ()

    def collect(self) -> Iterator[Metric]:
        families = {name: family_of(name) for name in METERS}
        for reading in self._read():
            families[reading.name].add_metric(reading.attributes, reading.value)
        yield from families.values()

    def page(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in the format that a scraper accepts, and its media type."""
        return written(self._registry, accept)

    def passed_on(self) -> bytes:
        """Return the metrics for the page of another process, which `merged` makes."""
        return bytes(generate_latest(self._registry))  # type: ignore[no-untyped-call]


def family_of(name: str) -> GaugeMetricFamily | CounterMetricFamily:
    """Return the family of a meter, without numbers."""
    made = METERS[name]
    make = GaugeMetricFamily if made.kind == "gauge" else CounterMetricFamily
    return make(spelled(name, made.unit), made.description, labels=[spelled(each) for each in made.attributes])


class _Merged(Collector):
    """The families of several processes, each sample with the name of its process."""

    def __init__(self, pages: Mapping[str, bytes]) -> None:
        self._families: dict[str, Metric] = {}
        for process, page in pages.items():
            for family in text_string_to_metric_families(page.decode()):  # type: ignore[no-untyped-call]
                self._add(process, family)

    def _add(self, process: str, family: Metric) -> None:
        known = self._families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
        for sample in family.samples:
            known.samples.append(sample._replace(labels={PROCESS: process, **sample.labels}))

    def collect(self) -> Iterable[Metric]:
        return self._families.values()


def merged(pages: Mapping[str, bytes], accept: str) -> tuple[bytes, str]:
    """Return one page for several processes, and its media type.

    Args:
        pages: what `passed_on` returned in each, by the name of the process.

    Raises:
        ValueError: one of them cannot be read.
    """
    return written(_Merged(pages), accept)


def written(collector: Collector, accept: str) -> tuple[bytes, str]:
    encode, media_type = choose_encoder(accept)
    return bytes(encode(collector)), str(media_type)
