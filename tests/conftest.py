"""What several test folders share, and the lane of each test: its folder says it.

`tests/wires` needs real sockets, processes or other peers; `tests/long` takes minutes. Everything else runs in memory and virtual
time, and is what `make test` runs. A single test elsewhere that needs such a thing carries the marker by hand.
"""

from __future__ import annotations

import gc
import logging
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from few_cases import few_of
from hypothesis import HealthCheck, settings
from spec_schemas import MISSING, SPEC_DIR
from virtual_time import run_in_virtual_time

HERE = Path(__file__).parent
LANES = ("wires", "long")
VIRTUAL = [HERE / name for name in ("auth", "client", "compose", "runtime", "session", "transports")]
"""Folders whose tests run in virtual time, but for those that bring a marker `trio`, and for modules with threads or sockets."""
REAL = (
    "test_fetching.py",
    "test_plain_calls.py",
    "test_redirect_page.py",
    "test_threads.py",
    "test_token_files.py",
    "test_watchdog.py",
)

# A shell starts background jobs with SIGINT ignored, and `nohup` a program with SIGHUP ignored. Child processes inherit that, and
# the tests of these signals would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# How long an example takes says something about the machine, and nothing about the rule.
FOR_EVERY_PROFILE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("house", max_examples=50, **FOR_EVERY_PROFILE)
settings.register_profile("long", max_examples=2000, **FOR_EVERY_PROFILE)  # --hypothesis-profile long
settings.register_profile("few", max_examples=10, **FOR_EVERY_PROFILE)  # make test-pythons
settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-step", action="store_true", help="let every sweep interrupt at every step")
    parser.addoption("--few", action="store_true", help="run the first and the last case of each test")
    parser.addoption(
        "--fuzz-seconds", type=float, default=0, help="how long tests/fuzz tries new cases (0: the same few)"
    )
    parser.addoption("--chaos-seconds", type=float, default=0, help="how long a test of chaos runs (0: as it says)")
    parser.addoption("--chaos-seed", type=int, help="the seed of the first run of chaos; drawn if it is not given")


@pytest.hookimpl(tryfirst=True)  # before pytest-trio puts its own marker on every coroutine
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Function]) -> None:
    run_in_virtual_time(item for item in items if item.path.parent in VIRTUAL and item.path.name not in REAL)
    for item in items:
        lane = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
        if lane in LANES:
            item.add_marker(lane)
    if config.getoption("few"):
        few = few_of([item.nodeid for item in items])
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in few])
        items[:] = [item for item in items if item.nodeid in few]


def pytest_collection_finish() -> None:
    # The tests live as long as the process: to look through all of them for garbage, again and again, would take a long time.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def spec_dir() -> Path:
    """The folder with the specification's schema files and examples, one folder for each revision."""
    if not SPEC_DIR.is_dir():
        pytest.skip(MISSING)
    return SPEC_DIR


@pytest.fixture(params=["legacy", "modern"])
def mode(request: pytest.FixtureRequest) -> str:
    """The era that a client speaks: a test that takes it runs in both."""
    return str(request.param)


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    """The root logger, which has its handlers again after the test."""
    logger = logging.getLogger()
    handlers, level = list(logger.handlers), logger.level
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the product think that it runs on Windows."""
    monkeypatch.setattr(sys, "platform", "win32")
