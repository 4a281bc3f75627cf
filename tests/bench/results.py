"""What was measured."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .generator import Load
from .targets import Target
from .workloads import WORKLOADS

Figures = Mapping[str, Mapping[str, float]]
"""For each workload, by its name, what it costs each target, by the target's name."""


@dataclass
class Results:
    """The figure of each round, and what went wrong."""

    rounds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, workload: str, target: str, figure: float) -> None:
        self.rounds.setdefault(workload, {}).setdefault(target, []).append(figure)

    def fail(self, workload: str, target: str, why: str) -> None:
        """Record that the target has no figure for this workload, also if some rounds went well."""
        self.rounds.get(workload, {}).pop(target, None)
        self.failures.append(f"{target} failed at {workload}: {why}")

    def forget(self, workload: str) -> None:
        """Drop the figures of a workload that is measured again."""
        self.rounds.pop(workload, None)

    def has_all_of(self, target: Target) -> bool:
        """Return whether the target has a figure for each workload that runs on it."""
        return all(
            target.name in self.rounds.get(workload.name, {})
            for workload in WORKLOADS.values()
            if workload.runs_on(target)
        )

    def medians(self) -> Figures:
        """Return the median of the rounds."""
        return {
            workload: {target: statistics.median(figures) for target, figures in targets.items()}
            for workload, targets in self.rounds.items()
        }

    def write(self, file: Path, load: Load) -> None:
        """Write everything as JSON."""
        settings = {"duration": load.duration, "warmup": load.warmup}
        whole = {"settings": settings, "rounds": self.rounds, "failures": self.failures}
        file.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
