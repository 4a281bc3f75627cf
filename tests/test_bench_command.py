"""`python -m bench` with invented figures: what fails, what is measured again, and what is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import trio

from bench import command, environments
from bench.generator import Load, WrongAnswers
from bench.instructions import count_instructions, instructions_in
from bench.page import BEGIN, END, ratios_on, with_section
from bench.results import Results
from bench.running import Cores, Settings, install
from bench.table import rows_of
from bench.targets import OURS, TARGETS, Installed
from bench.workload import Workload
from bench.workloads import WORKLOADS

WORKLOAD = "http-legacy-16"
RATIO = 2.0
"""Ours to each of the others, on the page."""


def figures(ratio: float) -> dict[str, dict[str, float]]:
    """A whole run with the same ratio everywhere."""
    return {
        workload.name: {name: ratio if name == OURS else 1.0 for name in TARGETS if workload.runs_on(TARGETS[name])}
        for workload in WORKLOADS.values()
    }


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page that a run is compared with."""
    page = tmp_path / "performance.md"
    empty = f"before {BEGIN}{END} after"
    page.write_text(with_section(empty, rows_of(figures(RATIO)), "Measured.", "performance.svg"), encoding="utf-8")
    monkeypatch.setattr(command, "PAGE", page)
    monkeypatch.setattr(command, "PICTURE", page.with_suffix(".svg"))
    monkeypatch.setattr(command, "BUILD", tmp_path)
    return page


class Machine:
    """Stands for the servers: each measurement of a workload takes the next of these ratios."""

    def __init__(self, ratios: Sequence[float]) -> None:
        self._ratios: Iterator[float] = iter(ratios)
        self.measured: list[list[str]] = []
        self.broken: set[str] = set()

    async def build(self) -> None:
        pass

    async def install(self, targets: Sequence[object], results: Results, say: object) -> list[Installed]:
        return []

    async def measure(
        self, workloads: Sequence[Workload], installed: object, settings: object, results: Results, say: object
    ) -> None:
        self.measured.append([workload.name for workload in workloads])
        ratio = next(self._ratios)
        for workload in workloads:
            for name, figure in figures(ratio)[workload.name].items():
                if name in self.broken:
                    results.fail(workload.name, name, "it ended")
                else:
                    results.add(workload.name, name, figure)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    def machine(*ratios: float) -> Machine:
        made = Machine(ratios)
        for name in ("build", "install", "measure"):
            monkeypatch.setattr(command, name, getattr(made, name))
        return made

    return machine


def status(tmp_path: Path, *arguments: str) -> int:
    settings = Settings(1, Load(1.0, 0.0), Cores(0, 0), tmp_path)
    return trio.run(command.run, command.parse_arguments(arguments), settings)


def test_a_run_as_good_as_the_page_passes(page: Path, machine, tmp_path: Path) -> None:
    made = machine(RATIO)
    assert status(tmp_path, "--check") == 0
    assert made.measured == [list(WORKLOADS)]


def test_a_regression_that_is_still_there_when_measured_again_fails_and_is_named(
    page: Path, machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(RATIO * 1.11, RATIO * 1.11)
    assert status(tmp_path, "--check", "--workloads", WORKLOAD) == 1
    assert f"regression at {WORKLOAD}" in capsys.readouterr().err


def test_a_regression_that_is_gone_when_measured_again_passes(page: Path, machine, tmp_path: Path) -> None:
    made = machine(RATIO * 5, RATIO)
    assert status(tmp_path, "--check", "--workloads", f"{WORKLOAD},ws-1") == 0
    assert made.measured == [[WORKLOAD, "ws-1"], [WORKLOAD, "ws-1"]]


def test_names_choose_what_has_them_and_else_what_begins_with_them() -> None:
    known = {"ws-1": 1, "ws-16": 2, "stdio-1": 3}
    assert command.chosen("", known) == [1, 2, 3]
    assert command.chosen("ws-1", known) == [1]
    assert command.chosen("stdio,ws-16", known) == [2, 3]
    assert command.chosen("ws", known) == [1, 2]


def test_without_check_the_page_does_not_matter(page: Path, machine, tmp_path: Path) -> None:
    machine(RATIO * 5)
    assert status(tmp_path, "--workloads", WORKLOAD) == 0


def test_a_workload_that_the_page_does_not_have_is_named_and_passes(
    page: Path, machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = [line for line in page.read_text(encoding="utf-8").splitlines() if WORKLOAD not in line]
    page.write_text("\n".join(kept), encoding="utf-8")
    machine(RATIO * 5)
    assert status(tmp_path, "--check", "--workloads", WORKLOAD) == 0
    assert f"not on the page, so not compared: {WORKLOAD}" in capsys.readouterr().err


def test_a_target_that_failed_is_named_and_fails(
    page: Path, machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(RATIO).broken.add("mcp")
    assert status(tmp_path, "--check", "--workloads", WORKLOAD) == 1
    assert f"mcp failed at {WORKLOAD}: it ended" in capsys.readouterr().err


def test_an_update_writes_the_page_and_its_picture(page: Path, machine, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install -e '.[bench]'")
    machine(RATIO * 1.5)
    assert status(tmp_path, "--update") == 0
    written = page.read_text(encoding="utf-8")
    assert ratios_on(written)[WORKLOAD]["ts"] == RATIO * 1.5
    assert written.startswith("before ")
    assert written.endswith(" after")
    assert "<svg" in page.with_suffix(".svg").read_text(encoding="utf-8")


def test_an_update_with_a_missing_figure_writes_nothing(
    page: Path, machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "can_draw", lambda: True)
    before = page.read_text(encoding="utf-8")
    machine(RATIO * 1.5).broken.add("ts")
    assert status(tmp_path, "--update") == 1
    assert page.read_text(encoding="utf-8") == before
    assert not page.with_suffix(".svg").exists()


def test_a_target_whose_program_is_not_there_is_skipped_with_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments.shutil, "which", lambda _program: None)
    results, lines = Results(), list[str]()
    assert trio.run(install, [TARGETS["ts"]], results, lines.append) == []
    assert results.failures == []
    assert lines[-1] == "skipped ts: node and npm are not on PATH"


def test_without_a_count_in_its_file_valgrind_has_not_ended(tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    counts.write_text("==1== Command: python\n==1== I   refs:      1,234,567\n")
    assert instructions_in(counts) == 1_234_567
    counts.write_text("==1== Command: python\n")
    with pytest.raises(WrongAnswers):
        instructions_in(counts)


def test_instructions_without_valgrind_are_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = Settings(1, Load(1, 0), Cores.allowed(), tmp_path)
    with pytest.raises(environments.Unavailable, match="valgrind"):
        trio.run(count_instructions, [], [], settings, print)
