"""Memory that nothing uses is given back to the system while the budget is short of room."""

from __future__ import annotations

import pytest

from trio_mcp.runtime import MemoryBudget, memory_budget
from trio_mcp.runtime.memory_budget import give_back_free_memory


def test_over_half_free_memory_is_given_back_for_every_part_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    trims: list[None] = []
    monkeypatch.setattr(memory_budget, "give_back_free_memory", lambda: trims.append(None))
    budget = MemoryBudget(64 * 1024)
    account = budget.open()
    account.check(10 * 1024)
    assert trims == []
    for _ in range(3):
        budget.open().draw(11 * 1024)
    for _ in range(10):
        account.check(512)
    assert len(trims) == 2


def test_memory_can_be_given_back_on_every_system() -> None:
    give_back_free_memory()
