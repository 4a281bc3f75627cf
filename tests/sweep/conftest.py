"""How conversations are swept: interrupted at every step, or at some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scenarios import Scenario, effects, server

from trio_mcp import Server, accept
from trio_mcp.testing import sweep
from trio_mcp.types import Root

OFTEN = {"asking_twice", "beating", "handing_over", "fanned", "stepping", "cleaning", "several_calls", "a_listener"}
"""The conversations that are interrupted more often in every run of the tests."""


@pytest.fixture
def stride(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """Return every how many steps a conversation is interrupted: at every one with `--every-step`."""
    return lambda seldom: 1 if request.config.getoption("every_step") else seldom


@pytest.fixture
def swept(stride: Callable[[int], int]) -> Callable[..., None]:
    """Sweep a conversation of a client that answers all questions, in one era."""

    def run(scenario: Scenario, mode: str, served: Server = server, seldom: int = 0, **options: Any) -> None:
        steps = stride(seldom or (3 if scenario.__name__ in OFTEN else 7))
        given = {
            "on_elicit": lambda _asked: accept(value=1),
            "on_sample": lambda _asked: "a line",
            "on_roots": lambda: [Root(uri="file:///home")],
            "effects": effects,
        }
        report = sweep(served, scenario, mode=mode, stride=steps, **{**given, **options})
        report.check()
        assert report.runs * steps > report.steps

    return run
