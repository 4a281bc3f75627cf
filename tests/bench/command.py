"""The command line of the benchmark."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import trio

from .calls import FirstAnswer
from .environments import Unavailable
from .generator import Load, build
from .instructions import count_instructions
from .page import LIMIT, not_on_page, ratios_on, regressions, with_section
from .paths import BUILD, PAGE, PICTURE
from .processes import ProcessFailed
from .results import Results
from .running import FAILURES, Cores, Settings, install, measure
from .table import Ratios, Row, ratios_of, rows_of, terminal_table
from .targets import TARGETS, Installed
from .workload import Workload
from .workloads import WORKLOADS

Named = TypeVar("Named")

EXAMPLES = f"""\
A workload or a target is chosen by its name, and several of them by the beginning of their names.

examples:
  make bench                                                 compare everything, and check it against the page
  make bench BENCH_FLAGS='--workloads http --rounds 3'       the same for a part of it
  python -m bench --workloads stdio-16 --targets trio_mcp,floor --rounds 1 --duration 0.2
  python -m bench --rounds 5 --duration 2 --update           refresh the page and its picture, in about 20 minutes
  python -m bench --json results.json                        keep the figure of each round
  python -m bench --instructions --workloads stdio,http-modern-16,startup --targets trio_mcp

workloads: {", ".join(WORKLOADS)}
targets:   {", ".join(TARGETS)}

The status is 1 if a workload is worse than on the page by more than {LIMIT - 1:.0%}, or if a target failed.
"""


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m bench",
        description="Compare the CPU time of this checkout's server with that of other libraries and of bare servers.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workloads", metavar="NAMES", default="", help="separated by commas (default: all)")
    parser.add_argument("--targets", metavar="NAMES", default="", help="separated by commas (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each target, of which the median counts (5)")
    parser.add_argument("--duration", type=float, default=1.0, metavar="SECONDS", help="of a turn (1.0)")
    parser.add_argument("--warmup", type=float, default=0.5, metavar="SECONDS", help="before each turn (0.5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of each round")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="fail if a ratio is worse than on the page")
    what.add_argument(
        "--update", action="store_true", help="write the page and its picture; needs all targets and workloads"
    )
    what.add_argument(
        "--instructions",
        action="store_true",
        help="count instructions of a call instead of time, with valgrind: two runs differ by less than 1%%",
    )
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.duration <= 0 or options.warmup < 0:
        parser.error("--rounds is at least 1, --duration more than 0, and --warmup not negative")
    if options.update and (options.workloads or options.targets):
        parser.error("--update needs all workloads and targets: the figures of the page are of one run")
    if options.update and not can_draw():
        parser.error("--update needs matplotlib: pip install -e '.[bench]'")
    try:
        options.workloads = chosen(options.workloads, WORKLOADS)
        options.targets = chosen(options.targets, TARGETS)
    except ValueError as error:
        parser.error(str(error))
    return options


def chosen(names: str, known: dict[str, Named]) -> list[Named]:
    """Return what the names choose; all, if there are none. Raises `ValueError` for a name that chooses nothing."""
    wanted: set[str] = set()
    for name in filter(None, names.split(",")):
        found = {name} if name in known else {each for each in known if each.startswith(name)}
        if not found:
            raise ValueError(f"{name!r} is none of {', '.join(known)}")
        wanted |= found
    return [value for name, value in known.items() if not names or name in wanted]


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the exit status."""
    options = parse_arguments(arguments)
    if sys.platform != "linux":
        say("The benchmark needs Linux, whose /proc and CPU clocks of other processes it reads.")
        return 1
    cores = Cores.allowed()
    if cores.server == cores.load:
        say("There is only one core: the load generator takes its time from the servers.")
    # Everything that this process starts stays beside it, except for the servers.
    os.sched_setaffinity(0, {cores.load})
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock, tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another benchmark of this checkout is running, and each would disturb the other.")
            return 1
        settings = Settings(options.rounds, Load(options.duration, options.warmup), cores, Path(scratch))
        return trio.run(until_signal, options, settings)


async def until_signal(options: argparse.Namespace, settings: Settings) -> int:
    """Run, or stop at a signal, and leave no process behind."""
    status = 130
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:

            async def stop() -> None:
                async for number in signals:
                    say(f"stopped by {signal.Signals(number).name}")
                    nursery.cancel_scope.cancel()

            nursery.start_soon(stop)
            status = await run(options, settings)
            nursery.cancel_scope.cancel()
    return status


async def run(options: argparse.Namespace, settings: Settings) -> int:
    """Measure, print, and do what the options ask for; returns the exit status."""
    on_page = ratios_on(PAGE.read_text(encoding="utf-8")) if options.check else {}
    results = Results()
    try:
        await build()
    except (Unavailable, ProcessFailed) as error:
        say(f"The load generator cannot be made: {error}")
        return 1
    installed = await install(options.targets, results, say)
    if options.instructions:
        return await print_instructions(options, installed, settings)
    await measure(options.workloads, installed, settings, results, say)
    await measure_worse_again(on_page, options.workloads, installed, settings, results)
    rows = rows_of(results.medians())
    print(terminal_table(rows), flush=True)
    found = regressions(on_page, ratios_of(rows))
    missing = not_on_page(on_page, ratios_of(rows)) if options.check else []
    for line in [*results.failures, *(f"regression at {each}" for each in found)]:
        say(line)
    if missing:
        say(f"not on the page, so not compared: {', '.join(missing)}")
    if options.json:
        results.write(options.json, settings.load)
    if options.update:
        return 0 if update(rows, settings, results) else 1
    if rows:
        show_picture(rows)
    return int(bool(found or results.failures))


async def print_instructions(options: argparse.Namespace, installed: Sequence[Installed], settings: Settings) -> int:
    """Count, and print a line for each workload and target; returns the exit status."""
    try:
        found = await count_instructions(options.workloads, installed, settings, say)
    except (Unavailable, *FAILURES) as error:
        say(f"The instructions cannot be counted: {error}")
        return 1
    for workload, targets in found.items():
        unit = "million, the whole process" if isinstance(WORKLOADS[workload], FirstAnswer) else "a call"
        for target, count in targets.items():
            print(f"{workload:24} {target:20} {count:12,} {unit}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0 if found else 1


def update(rows: Sequence[Row], settings: Settings, results: Results) -> bool:
    """Write the page and its picture, if every figure is there; returns whether it is."""
    missing = [target.name for target in TARGETS.values() if not results.has_all_of(target)]
    if missing:
        say(f"The page was not written: figures are missing of {', '.join(missing)}.")
        return False
    text = with_section(PAGE.read_text(encoding="utf-8"), rows, how_measured(settings), PICTURE.name)
    PAGE.write_text(text, encoding="utf-8")
    # From the page, so that the picture shows what the table says, rounded like there.
    write_picture(ratios_on(text), PICTURE)
    return True


def show_picture(rows: Sequence[Row]) -> None:
    """Write the picture of this run, and say where it is."""
    if not can_draw():
        say("There is no picture, since matplotlib is not installed: pip install -e '.[bench]'")
        return
    file = BUILD / PICTURE.name
    write_picture(ratios_of(rows), file)
    say(f"The picture is {file}")


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def write_picture(ratios: Ratios, file: Path) -> None:
    from .plot import svg

    file.write_text(svg(ratios), encoding="utf-8")


async def measure_worse_again(
    on_page: Ratios, workloads: Sequence[Workload], installed: Sequence[Installed], settings: Settings, results: Results
) -> None:
    """Replace the figures of the workloads that seem to be worse than on the page, in case something disturbed them."""
    suspects = {found.workload for found in regressions(on_page, ratios_of(rows_of(results.medians())))}
    again = [workload for workload in workloads if workload.name in suspects]
    if not again:
        return
    say(f"worse than on the page, so measured again: {', '.join(workload.name for workload in again)}")
    for workload in again:
        results.forget(workload.name)
    await measure(again, installed, settings, results, say)


def how_measured(settings: Settings) -> str:
    """Return the paragraph above the table."""
    today = datetime.now(UTC).date()
    load = settings.load
    rounds = f"{settings.rounds} round{'s' if settings.rounds > 1 else ''}"
    python = platform.python_version()
    busy = os.getloadavg()[0]
    return (
        f"Measured on {today} with Python {python}, in one run: medians of {rounds} of {load.duration:g} s. "
        f"The load average\nwas {busy:.0f} at the end; the benchmark alone makes it 1 to 2."
    )
