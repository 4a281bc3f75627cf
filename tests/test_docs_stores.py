"""docs/stores.md: its programs work, and what it says of files is so."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from pages import Names, Page

from trio_mcp.base.shared_limits import STORED_RECORDS
from trio_mcp.protocol.sealing.request_state import to_base64url
from trio_mcp.stores.sealed import SECONDS
from trio_mcp.stores.sqlite import SWEEP_SECONDS
from trio_mcp.stores.sqlite_schema import BUSY_SECONDS, CHECKED_BYTES
from trio_mcp.testing.contract.store import all_store_rules

PAGE = Page("stores")


@pytest.fixture(scope="module")
def page() -> Names:
    return PAGE.run()


async def test_the_server_of_the_page_keeps_its_state_in_the_file(
    page: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIO_MCP_KEYS", to_base64url(bytes(range(32))))
    service: AbstractAsyncContextManager[Any] = page["server"].open_service()
    async with service:
        assert (tmp_path / "state.db").exists()


async def test_the_main_function_runs(page: Names) -> None:
    await page["main"]()


def test_the_store_of_the_page_keeps_the_contract(page: Names, tmp_path: Path) -> None:
    cases = next(mark.args[1] for mark in page["test_contract"].pytestmark)
    assert len(cases) == len([rule for rule in all_store_rules() if not rule.needs])
    page["test_contract"](cases[0], tmp_path)


async def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    assert f"waits {BUSY_SECONDS:g} seconds for the lock, and one behind another write up to {SECONDS:g}" in PAGE.prose
    assert f"after {SECONDS:g} seconds the operation fails" in PAGE.prose
    assert f"A file over {CHECKED_BYTES // 1024**2} MiB" in PAGE.prose
    assert SWEEP_SECONDS == 5
    assert "deleted every five seconds" in PAGE.prose
    assert STORED_RECORDS.limit == 100_000
