"""`python -m bench` with real servers: one workload for a moment, an interrupt, and a server that does not start."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trio

from bench.generator import Load
from bench.paths import BUILD, ROOT
from bench.processes import ProcessFailed
from bench.results import Results
from bench.running import Cores, Settings, measure
from bench.table import read_ratios
from bench.targets import OURS, TARGETS, Installed, Target, Wire
from bench.workloads import WORKLOADS

MARK = "TRIO_MCP_BENCH_TEST"
FLOOR = "floor-lean3-trio"
SECONDS = 60

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or any(shutil.which(program) is None for program in ("gcc", "taskset")),
    reason="the benchmark needs Linux, gcc and taskset",
)


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """One test at a time, with the environments there: the benchmark refuses to run beside another one."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock-of-tests").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in (OURS, FLOOR):
            prepare(TARGETS[name])
        yield


def prepare(target: Target) -> None:
    # In a thread, since an asynchronous test has an event loop.
    with ThreadPoolExecutor(1) as executor:
        try:
            executor.submit(trio.run, target.environment.prepare).result()
        except ProcessFailed as error:
            pytest.skip(f"the environment of {target.name} cannot be made: {error}")


def command(*arguments: str) -> list[str]:
    targets = ["--targets", f"{OURS},{FLOOR}"]
    return [sys.executable, "-m", "bench", "--rounds", "1", "--warmup", "0", *targets, *arguments]


def processes_with(mark: str) -> list[str]:
    """The command lines of the processes whose environment holds this text."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it ended, or belongs to another user
            pass
    return found


@pytest.mark.parametrize("workload", ["http-legacy-16", "elicit-modern-16"])
def test_a_short_run_compares_us_with_the_floor(workload: str, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    arguments = command("--workloads", workload, "--duration", "0.2", "--json", str(file))
    done = subprocess.run(arguments, cwd=ROOT / "tests", capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    rounds = json.loads(file.read_text())["rounds"][workload]
    assert rounds == {OURS: [pytest.approx(rounds[OURS][0])], FLOOR: [pytest.approx(rounds[FLOOR][0])]}
    ratios = read_ratios(done.stdout)
    assert ratios[workload]["floor"] == pytest.approx(rounds[OURS][0] / rounds[FLOOR][0], rel=0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("workload", ["http-modern-16", "stdio-16"])
def test_a_run_that_is_interrupted_leaves_no_process_behind(number: signal.Signals, workload: str) -> None:
    mark = uuid.uuid4().hex
    arguments = command("--workloads", workload, "--duration", "100")
    environment = {**os.environ, MARK: mark}
    with subprocess.Popen(arguments, cwd=ROOT / "tests", env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "round 1" in line:
                break
        process.send_signal(number)
        _, rest = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, rest
    assert processes_with(mark) == []


async def test_a_server_that_does_not_start_is_named_with_the_end_of_its_stderr(tmp_path: Path) -> None:
    target = Target(
        "broken", "broken", TARGETS[FLOOR].environment, {Wire.HTTP: ("-c", "import sys; sys.exit('no configuration')")}
    )
    settings = Settings(1, Load(0.1, 0.0), Cores.allowed(), tmp_path)
    results = Results()
    installed = [Installed(target, Path(sys.executable))]
    with trio.fail_after(SECONDS):
        await measure([WORKLOADS["http-modern-16"]], installed, settings, results, lambda _line: None)
    (failure,) = results.failures
    assert failure.startswith("broken failed at http-modern-16")
    assert "no configuration" in failure
    assert results.medians() == {}


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_the_instructions_of_a_call_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "counts.json"
    arguments = ["--instructions", "--workloads", "http-legacy-16", "--targets", FLOOR, "--json", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "bench", *arguments], cwd=ROOT / "tests", capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    # Python alone needs more than this to parse a head and write one, and a start of the process a thousand times as much.
    assert 50_000 < json.loads(file.read_text())["http-legacy-16"][FLOOR] < 5_000_000
