"""`tests/bench`: the table of a run, and what counts as a regression against the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.command import main
from bench.page import BEGIN, END, not_on_page, ratios_on, regressions, with_section
from bench.paths import PAGE, PICTURE
from bench.results import Results
from bench.running import rotated
from bench.table import Row, page_table, ratios_of, read, read_ratios, rows_of, shown, terminal_table
from bench.targets import OURS, TARGETS
from bench.workloads import WORKLOADS

EMPTY_PAGE = f"# Performance\n\n{BEGIN}\n\n{END}\n\nThe rest.\n"
FIGURES = {
    "http-legacy-16": {
        OURS: 120.0,
        "floor-lean3-trio": 100.0,
        "floor-hypercorn-trio": 300.0,
        "mcp": 1200.0,
        "ts": 240.0,
    },
    "ws-16": {OURS: 130.0, "floor-ws-trio": 100.0, "floor-hypercorn-trio": 65.0},
}


def page_of(figures: dict[str, dict[str, float]]) -> str:
    return with_section(EMPTY_PAGE, rows_of(figures), "Measured.", "picture.svg")


def worse(by: float) -> dict[str, dict[str, float]]:
    """The figures of a run in which our server takes more by this factor."""
    return {workload: {**targets, OURS: targets[OURS] * by} for workload, targets in FIGURES.items()}


def run_ratios(figures: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {workload: dict(ratios) for workload, ratios in ratios_of(rows_of(figures)).items()}


def only_row(workload: str, figures: dict[str, float]) -> Row:
    (row,) = rows_of({workload: figures})
    return row


# the table


def test_a_ratio_is_our_figure_divided_by_theirs() -> None:
    assert run_ratios(FIGURES) == {
        "http-legacy-16": pytest.approx({"floor": 1.2, "hypercorn": 0.4, "mcp": 0.1, "ts": 0.5}),
        "ws-16": pytest.approx({"floor": 1.3, "hypercorn": 2.0}),
    }


@pytest.mark.parametrize("write", [page_table, terminal_table])
def test_what_is_written_as_a_table_is_read_from_it(write: object) -> None:
    assert callable(write)
    assert read_ratios(write(rows_of(FIGURES))) == run_ratios(FIGURES)


def test_a_small_ratio_keeps_three_digits() -> None:
    row = only_row("list500-modern", {OURS: 1.2345, "mcp": 1000.0})
    assert read_ratios(page_table([row]))["list500-modern"]["mcp"] == 0.00123


@pytest.mark.parametrize(
    ("ratio", "text"), [(0.00123456, "0.00123"), (1.2, "1.2"), (999.4, "999"), (999.6, "1,000"), (123456.7, "123,457")]
)
def test_a_figure_is_read_as_it_is_shown(ratio: float, text: str) -> None:
    assert shown(ratio) == text
    assert read(text) == pytest.approx(ratio, rel=0.005)


def test_a_workload_without_a_figure_of_ours_has_no_row() -> None:
    assert rows_of({"stdio-1": {"mcp": 1.0}}) == []


def test_a_goal_is_met_missed_or_not_measured() -> None:
    row = only_row("http-legacy-16", {OURS: 120.0, "floor-lean3-trio": 100.0, "mcp": 1000.0})
    assert "≤ 1.15 of floor: **missed**; ≤ 0.6 of ts: not measured" in page_table([row])
    row = only_row("http-legacy-16", {OURS: 115.0, "floor-lean3-trio": 100.0, "ts": 200.0})
    assert "≤ 1.15 of floor: met; ≤ 0.6 of ts: met" in page_table([row])


def test_a_goal_may_be_an_absolute_figure() -> None:
    assert "≤ 20 kB: met" in page_table([only_row("suspended-1000", {OURS: 20.0})])
    assert "≤ 20 kB: **missed**" in page_table([only_row("suspended-1000", {OURS: 20.06})])


def test_every_goal_names_a_column_of_the_table() -> None:
    columns = {OURS, *run_ratios(FIGURES)["http-legacy-16"]}
    assert {goal.column for workload in WORKLOADS.values() for goal in workload.goals} <= columns


# the page


@pytest.mark.parametrize(
    "run", [FIGURES, worse(1.09), {}], ids=["as good", "worse by nine percent", "nothing measured"]
)
def test_a_run_that_is_not_worse_by_a_tenth_has_no_regression(run: dict[str, dict[str, float]]) -> None:
    assert regressions(ratios_on(page_of(FIGURES)), run_ratios(run)) == []


def test_a_run_that_is_worse_by_eleven_percent_fails_in_every_ratio() -> None:
    found = regressions(ratios_on(page_of(FIGURES)), run_ratios(worse(1.11)))
    assert [(each.workload, each.column) for each in found] == [
        ("http-legacy-16", "floor"),
        ("http-legacy-16", "hypercorn"),
        ("http-legacy-16", "mcp"),
        ("http-legacy-16", "ts"),
        ("ws-16", "floor"),
        ("ws-16", "hypercorn"),
    ]
    assert str(found[0]) == "http-legacy-16: 1.33 of floor, and 1.2 on the page (+11%)"


def test_one_ratio_that_grew_is_enough() -> None:
    figures = {**FIGURES, "ws-16": {**FIGURES["ws-16"], "floor-ws-trio": 85.0}}
    found = regressions(ratios_on(page_of(FIGURES)), run_ratios(figures))
    assert [(each.workload, each.column) for each in found] == [("ws-16", "floor")]


def test_what_the_page_does_not_have_is_reported_and_is_no_regression() -> None:
    figures = {"http-legacy-16": {OURS: 1.0, "floor-lean3-trio": 1.0}}
    on_page, now = ratios_on(page_of(figures)), run_ratios(worse(2.0))
    assert not_on_page(on_page, now) == [
        "ws-16",
        "http-legacy-16 of hypercorn",
        "http-legacy-16 of mcp",
        "http-legacy-16 of ts",
    ]
    assert {each.workload for each in regressions(on_page, now)} == {"http-legacy-16"}


def test_an_update_changes_only_what_is_between_the_markers() -> None:
    once = page_of(FIGURES)
    twice = with_section(once, rows_of(worse(2.0)), "Measured again.", "picture.svg")
    for page in (once, twice):
        assert page.startswith(EMPTY_PAGE.partition(BEGIN)[0])
        assert page.endswith(EMPTY_PAGE.partition(END)[2])
    assert (once.count(BEGIN), once.count("Measured"), twice.count("Measured")) == (1, 1, 1)
    assert ratios_on(twice) == run_ratios(worse(2.0))


@pytest.mark.parametrize("text", ["", BEGIN, f"{END}{BEGIN}", f"{BEGIN}\n{END}"])
def test_a_page_without_markers_or_table_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"markers|table|lines"):
        ratios_on(text)


def test_the_page_of_this_project_has_every_workload_and_the_picture() -> None:
    on_page = ratios_on(PAGE.read_text(encoding="utf-8"))
    assert list(on_page) == list(WORKLOADS)
    assert f"]({PICTURE.name})" in PAGE.read_text(encoding="utf-8")
    assert PICTURE.exists()


# the figures


def test_the_median_of_the_rounds_counts() -> None:
    results = Results()
    for figure in (1.0, 100.0, 3.0):
        results.add("stdio-1", OURS, figure)
    assert results.medians() == {"stdio-1": {OURS: 3.0}}


def test_a_target_that_failed_in_one_round_has_no_figure() -> None:
    results = Results()
    results.add("stdio-1", OURS, 1.0)
    results.add("stdio-1", "mcp", 2.0)
    results.fail("stdio-1", "mcp", "it ended")
    assert results.medians() == {"stdio-1": {OURS: 1.0}}
    assert results.failures == ["mcp failed at stdio-1: it ended"]


def test_each_round_begins_with_another_target() -> None:
    assert [rotated("abc", number) for number in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]
    assert rotated("", 1) == []


def test_every_workload_runs_on_us_and_on_a_floor() -> None:
    floors = [target for name, target in TARGETS.items() if name.startswith("floor")]
    for workload in WORKLOADS.values():
        assert workload.runs_on(TARGETS[OURS])
        assert any(workload.runs_on(floor) for floor in floors)


# the command


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workloads", "nothing"],
        ["--targets", "nothing"],
        ["--rounds", "0"],
        ["--duration", "0"],
        ["--update", "--workloads", "stdio"],
        ["--update", "--check"],
    ],
)
def test_an_option_that_makes_no_sense_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    assert exit_info.value.code == 2
    assert arguments[0] in capsys.readouterr().err or "nothing" in arguments


def test_the_help_names_every_workload_and_target(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in [*WORKLOADS, *TARGETS])


def test_the_files_of_the_benchmark_are_small() -> None:
    files = sorted((Path(__file__).parent / "bench").rglob("*.*"))
    long = {
        file.name: len(file.read_text().splitlines()) for file in files if file.suffix in (".py", ".c", ".h", ".mjs")
    }
    assert {name: lines for name, lines in long.items() if lines > 400} == {}
