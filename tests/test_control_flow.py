"""The rules by which `tests/bench/hops.py` counts calls and changes of file."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import trio

sys.path.insert(0, str(Path(__file__).parent / "bench"))

import control_flow

OUTER = """
import contextlib
import trio
import hops_inner as inner

def start(): pass

def calls():
    inner.leaf()
    inner.leaf()

def through_a_library():
    with contextlib.ExitStack() as stack:
        stack.callback(inner.leaf)

async def awaits():
    await middle()

async def middle():
    await inner.sleeps()
    await inner.sleeps()

def resumes():
    list(inner.two())
"""
INNER = """
import trio

def leaf(): pass

async def sleeps():
    await trio.lowlevel.checkpoint()
    await trio.lowlevel.checkpoint()

def two():
    yield 1
    yield 2
"""


@pytest.fixture
def outer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Two modules that count as this project's own."""
    (tmp_path / "hops_outer.py").write_text(OUTER)
    (tmp_path / "hops_inner.py").write_text(INNER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(control_flow, "FOLDERS", (f"{tmp_path}/",))
    control_flow.own_file.cache_clear()
    yield importlib.import_module("hops_outer")
    control_flow.own_file.cache_clear()
    for name in ("hops_outer", "hops_inner"):
        del sys.modules[name]


def recorded(outer: ModuleType, name: str) -> control_flow.Leg:
    """What is recorded while one function of the module runs; the leg begins in that module, with `start`."""
    recorder = control_flow.Recorder()
    recorder.plan([(name, outer.start.__code__)])
    function = getattr(outer, name)

    async def run() -> None:
        with recorder.recording():
            outer.start()
            if function is outer.awaits:
                await function()
            else:
                function()
            recorder.end()

    trio.run(run)
    return recorder.legs[0]


def test_a_call_into_another_file_changes_file_twice(outer: ModuleType) -> None:
    leg = recorded(outer, "calls")
    assert (leg.calls, leg.changes, leg.returns, leg.files) == (4, 4, 2, 2)


def test_library_frames_are_skipped(outer: ModuleType) -> None:
    leg = recorded(outer, "through_a_library")
    assert (leg.calls, leg.changes) == (3, 2)


def test_a_suspension_is_no_return_and_a_resumption_no_call(outer: ModuleType) -> None:
    """Both awaits of `middle` go to the other file and come back; what happens at the checkpoints counts for nothing."""
    leg = recorded(outer, "awaits")
    assert (leg.calls, leg.changes, leg.returns) == (5, 4, 2)


def test_a_generator_is_called_once_and_passes_control_with_each_value(outer: ModuleType) -> None:
    leg = recorded(outer, "resumes")
    assert leg.calls == 3
    assert leg.changes == 6


def test_an_anchor_that_is_not_reached_is_an_error(outer: ModuleType) -> None:
    recorder = control_flow.Recorder()
    recorder.plan([("calls", outer.start.__code__)])
    with recorder.recording():
        outer.calls()
    with pytest.raises(RuntimeError, match="not reached"):
        recorder.end()
