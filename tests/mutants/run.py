"""Run the tests against mutants of the library and show which test kills each.

    python tests/mutants/run.py                      # all mutants of this tree
    python tests/mutants/run.py --only late-answer   # some of them, by a part of the name
    python tests/mutants/run.py --check              # only whether each applies

For each mutant, in a temporary copy of the tree: first the test that is known to kill it, where it still exists; then, only if it
survives that, the whole suite. Every run stops at its first failure. A test that hangs kills the mutant too and is shown as
`timeout`. In the end the tests that killed are run once without any mutant: one that fails there as well proves nothing.

The exit status is 1 if a mutant survives, does not apply, or was killed by a test that proves nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from mutant_copy import Copy, copied
from mutant_table import ROOT, Mutant, MutantError, apply, check, read_table

MOST_JOBS = 2

TEST_SECONDS = 120
"""How long one test may take before it counts as hanging."""
SELECTION_SECONDS = 900
SUITE_SECONDS = 3600

OTHERS = "--ignore=tests/mutants"
"""Not the tests of this folder: a mutated tree no longer fits the table, which would count as a kill."""

NOT_RUN = (2, 3, 4, 5)
"""Exit statuses of pytest that say nothing about a test: interrupted, an internal error, wrong usage, no tests."""


@dataclass(frozen=True)
class Run:
    """What a pytest run came to: the first test that failed or hung, or None; and why it proves nothing, if so."""

    killer: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    killer: str | None
    seconds: float
    problem: str | None = None

    def as_false(self) -> Verdict:
        return replace(self, killer=None, problem=f"does not pass without the mutant either: {self.killer}")

    def __str__(self) -> str:
        return self.problem or self.killer or "SURVIVED"


def main() -> int:
    # A background job of a shell ignores it, and so would its tests.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options = arguments()
    mutants = [mutant for mutant in read_table() if options.only in mutant.name]
    problems = find_problems(mutants)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems or not mutants or options.check:
        print(f"{len(mutants) - len(problems)} of {len(mutants)} mutants apply")
        return bool(problems or not mutants)
    return run_all(mutants, options.jobs, quick=options.quick)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="NAME", help="only mutants with this in their name")
    parser.add_argument("--jobs", type=int, choices=range(1, MOST_JOBS + 1), default=1, help="how many at a time")
    parser.add_argument(
        "--quick", action="store_true", help="only the tests that are known to kill; nothing else is run"
    )
    parser.add_argument("--check", action="store_true", help="only check that each mutant applies")
    return parser.parse_args()


def find_problems(mutants: Iterable[Mutant]) -> list[str]:
    """Say which mutants do not apply, and why."""
    problems = []
    for mutant in mutants:
        if not is_there(ROOT, mutant.place.killed_by):
            print(f"note: {mutant.name}: its test is gone, others are tried: {mutant.place.killed_by}")
        try:
            check(ROOT, mutant.place)
        except MutantError as error:
            problems.append(f"{mutant.name}: {error}")
    return problems


# All mutants


def run_all(mutants: Sequence[Mutant], jobs: int, *, quick: bool) -> int:
    with ThreadPoolExecutor(jobs) as pool:
        verdicts = list(pool.map(lambda mutant: run_one(mutant, quick=quick), mutants))
    verdicts = without_false(verdicts)
    print(f"\n{'mutant':<40} {'seconds':>7}  rule, and the first test that failed")
    for verdict in verdicts:
        print(f"{verdict.mutant.name:<40} {verdict.seconds:7.1f}  {verdict.mutant.rule}\n{'':<50}{verdict}")
    killed = sum(verdict.killer is not None for verdict in verdicts)
    print(f"\n{killed} of {len(verdicts)} mutants were killed")
    return int(killed < len(verdicts))


def run_one(mutant: Mutant, *, quick: bool) -> Verdict:
    started = time.monotonic()
    try:
        with copied() as copy:
            apply(copy.root, mutant.place)
            copy.check_imports(mutant.place.file)
            run = kill(mutant, copy, quick=quick)
    except (MutantError, subprocess.SubprocessError) as error:
        run = Run(problem=str(error))
    verdict = Verdict(mutant, run.killer, time.monotonic() - started, run.problem)
    print(f"{mutant.name:<40} {verdict.seconds:7.1f}  {verdict}", flush=True)
    return verdict


def kill(mutant: Mutant, copy: Copy, *, quick: bool) -> Run:
    """Run the known test, and all tests if it does not fail."""
    known = mutant.place.killed_by
    run = run_tests(copy, [known], SELECTION_SECONDS) if is_there(copy.root, known) else Run()
    if run.killer is not None or run.problem is not None or quick:
        return run
    return run_tests(copy, [], SUITE_SECONDS)


def is_there(root: Path, test: str) -> bool:
    file, _, name = test.partition("::")
    path = root / file
    return path.is_file() and f"def {name.partition('[')[0].rpartition('::')[2]}(" in path.read_text()


def without_false(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Run the tests that killed without any mutant; where one does not pass there, it proves nothing."""
    tests = sorted({test_of(verdict.killer) for verdict in verdicts if verdict.killer})
    if not tests:
        return list(verdicts)
    with copied() as copy:
        _, output = pytest(copy, tests, SUITE_SECONDS, stop=False)
    false = set(tests) - set(named(output, "PASSED"))
    return [each.as_false() if each.killer and test_of(each.killer) in false else each for each in verdicts]


def test_of(killer: str) -> str:
    """Return the test that a verdict names; of one that hung, it says more than that."""
    return killer[killer.index("tests/") :]


# Runs of pytest


def run_tests(copy: Copy, tests: Sequence[str], seconds: float) -> Run:
    """Run these tests, or all, until one fails."""
    status, output = pytest(copy, tests, seconds)
    failed = named(output, "FAILED", "ERROR")
    last = last_started(output)
    if status == 0:
        return Run()
    if status == 4 and tests:
        return Run()  # a test of these no longer exists
    if status is None:
        return Run(problem=f"the tests did not end within {seconds} seconds")
    if last is None or status in NOT_RUN:
        return Run(problem=f"pytest ended with {status}:\n{output[-2000:]}")
    if status == 1 and failed:
        return Run(killer=failed[0])
    return Run(killer=f"timeout in {last}" if "Timeout (" in output else f"crash ({status}) in {last}")


def pytest(copy: Copy, tests: Sequence[str], seconds: float, *, stop: bool = True) -> tuple[int | None, str]:
    """Return the exit status and what was printed; None as the status if it took more than `seconds`."""
    selection = copy.folder / "tests.txt"
    selection.write_text("".join(f"{test}\n" for test in tests))
    options = ["-v", "--tb=no", OTHERS, "-rfE", "-p", "no:cacheprovider", f"--basetemp={copy.folder / 'tmp'}"]
    timeouts = ["-o", f"faulthandler_timeout={TEST_SECONDS}", "-o", "faulthandler_exit_on_timeout=true"]
    command = [str(copy.python), "-m", "pytest", *options, *timeouts, *(["-x"] if stop else []), f"@{selection}"]
    return run_bounded(command, copy.root, copy.environment, seconds)


def run_bounded(
    command: Sequence[str], folder: Path, environment: dict[str, str], seconds: float
) -> tuple[int | None, str]:
    """Run a command in a new process group, which is killed when the time is up."""
    output = folder.parent / "output.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            # Also when it has ended: one that hung exits without the servers that its tests had started.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return status, output.read_text(errors="replace")


def named(output: str, *outcomes: str) -> list[str]:
    """Return the tests that ended like this, in order, as `pytest -v` names them."""
    return re.findall(rf"^(tests/\S+::.*) (?:{'|'.join(outcomes)})\b", output, re.MULTILINE)


def last_started(output: str) -> str | None:
    """Return the test that `pytest -v` named last."""
    outcome = r"(?: (?:PASSED|FAILED|ERROR|SKIPPED|XFAIL|Timeout)\b.*)?"
    started: list[str] = re.findall(rf"^(tests/\S+::.*?) ?{outcome}$", output, re.MULTILINE)
    return started[-1] if started else None


if __name__ == "__main__":
    sys.exit(main())
