"""The memory budget: who may draw how much, and that everything comes back."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from actors import CUPS
from naming import naming

from trio_mcp.errors import LimitExceeded
from trio_mcp.runtime import Account, MemoryBudget, process_budget
from trio_mcp.runtime.memory_budget import (
    LEAST_SHARE,
    TableAccount,
    control_group_limits,
    machine_memory,
    usable_memory,
)
from trio_mcp.runtime.oldest_first import OldestFirst
from trio_mcp.runtime.quota import Quota

MIB = 1024 * 1024


def drawn(budget: MemoryBudget) -> int:
    return budget.statistics().drawn


def test_what_an_account_draws_is_counted_until_it_is_closed() -> None:
    budget = MemoryBudget(1000)
    with budget.open() as account:
        account.draw(100)
        account.give_back(40)
        assert (account.drawn, drawn(budget)) == (60, 60)
    assert (account.drawn, drawn(budget)) == (0, 0)


def test_a_closed_account_counts_nothing_more() -> None:
    budget = MemoryBudget(1000)
    account = budget.open()
    account.close()
    account.draw(100)
    account.give_back(50)
    account.close()
    assert drawn(budget) == 0


def test_an_account_that_is_opened_for_bytes_has_drawn_them_or_is_refused_and_draws_nothing() -> None:
    budget = MemoryBudget(1000)
    connection = budget.open("a")
    with connection.open(400) as account:
        assert (account.drawn, account.caller, drawn(budget)) == (400, "a", 400)
        with pytest.raises(LimitExceeded, match=naming("memory budget", "1000 bytes")):
            connection.open(601)
        with pytest.raises(LimitExceeded):
            connection.take(601)
        assert drawn(budget) == 400
    assert drawn(budget) == 0


def test_over_the_total_everything_is_refused_with_the_budget_and_its_size() -> None:
    budget = MemoryBudget(1000)
    budget.open("a").draw(960)
    small = budget.open("b")
    small.check(40)
    with pytest.raises(LimitExceeded, match=naming("memory budget", "1000 bytes")):
        small.check(41)
    assert budget.statistics().refused == 1


def test_up_to_half_of_the_budget_one_connection_may_draw_it_all() -> None:
    budget = MemoryBudget(1000)
    for _ in range(9):
        budget.open().draw(1)
    budget.open("big").check(491)


def test_over_half_a_connection_above_its_share_is_refused_and_a_small_one_is_not() -> None:
    budget = MemoryBudget(1000 * MIB)
    big, small = budget.open("big"), budget.open("small")
    for _ in range(8):
        budget.open().draw(MIB)
    big.draw(490 * MIB)
    with pytest.raises(LimitExceeded, match=naming("memory budget", "share", f"{1000 * MIB // 9} bytes")):
        big.check(10 * MIB)
    small.check(100 * MIB)
    assert not small.has_room(200 * MIB)


def test_a_share_is_large_enough_for_a_call_however_many_connections_there_are() -> None:
    budget = MemoryBudget(2 * MIB)
    for _ in range(600):
        budget.open().draw(2048)
    assert budget.open().has_room(LEAST_SHARE)
    assert not budget.open().has_room(LEAST_SHARE + 1)


def test_the_accounts_of_a_connection_count_together() -> None:
    budget = MemoryBudget(1000 * MIB)
    budget.open("other").draw(450 * MIB)
    for _ in range(3):
        budget.open("one").draw(60 * MIB)
    assert budget.open("one").has_room(70 * MIB)
    assert not budget.open("one").open().has_room(71 * MIB)


def test_over_half_a_principal_above_a_quarter_is_refused_whatever_its_connections() -> None:
    budget = MemoryBudget(1000)
    for number in range(4):
        budget.open(number, "ana").draw(60)
        budget.open(number + 10, "ben").draw(70)
    assert budget.open(0, "ana").has_room(10)
    with pytest.raises(LimitExceeded, match=naming("memory budget", "quarter", "250 bytes")):
        budget.open(0, "ana").check(11)
    assert budget.open("new", "cem").has_room(11)


def test_a_connection_without_a_principal_counts_as_one() -> None:
    budget = MemoryBudget(1000)
    budget.open("a").draw(240)
    budget.open("b", "ben").draw(261)
    assert budget.open("a").has_room(10)
    assert not budget.open("a").has_room(11)


def test_connections_that_hold_nothing_take_no_share() -> None:
    budget = MemoryBudget(1000)
    for _ in range(100):
        with budget.open() as account:
            account.draw(1)
    budget.open("a").draw(260)
    budget.open("b").draw(245)
    assert budget.open("b").has_room(5)


def test_what_a_table_keeps_counts_for_its_caller_and_for_no_connection() -> None:
    budget = MemoryBudget(1000 * MIB)
    table = budget.open_table()
    for _ in range(100):
        budget.open().draw(2 * MIB)
    table.draw(245 * MIB, "ana")
    budget.open("b", "ben").draw(60 * MIB)
    assert table.has_room(100 * MIB, "ben")
    assert not table.has_room(6 * MIB, "ana")
    with pytest.raises(LimitExceeded, match=naming("memory budget", "quarter")):
        budget.open("a", "ana").check(6 * MIB)
    with pytest.raises(LimitExceeded, match=naming("memory budget", "quarter")):
        table.check(6 * MIB, "ana")
    table.close()
    assert budget.drawn == 260 * MIB
    budget.open("a", "ana").check(6 * MIB)


def kept(table: OldestFirst[str, None], account: TableAccount, caller: str, count: int, size: int = 100) -> None:
    for number in range(count):
        account.draw(size, caller)
        table.add(f"{caller} {number}", None, caller, size)


def table_of(account: TableAccount) -> OldestFirst[str, None]:
    calls, sizes = Quota(CUPS, 10_000), Quota(CUPS, 64 * MIB)
    return OldestFirst(calls, sizes, lambda _key, entry: account.give_back(entry[2], entry[1]))


def test_a_caller_over_its_share_of_the_budget_loses_its_stored_data() -> None:
    budget = MemoryBudget(1000)
    account = budget.open_table()
    table = table_of(account)
    kept(table, account, "ben", 2)
    kept(table, account, "ana", 4)
    table.fit(account, "ana")
    assert list(table) == ["ben 0", "ben 1", "ana 1", "ana 2", "ana 3"]
    table.fit(account, "ben", 50)
    assert len(table) == 5


def test_where_the_budget_is_used_up_who_has_most_loses_most() -> None:
    budget = MemoryBudget(1000)
    account = budget.open_table()
    table = table_of(account)
    kept(table, account, "ben", 1)
    kept(table, account, "ana", 5)
    budget.open().draw(600)
    table.fit(account, "ben")
    assert list(table) == ["ben 0", "ana 2", "ana 3", "ana 4"]
    # As much as there is.
    table.fit(account, "cem", 500)
    assert not table
    assert budget.drawn == 600


def keeping() -> tuple[MemoryBudget, Account]:
    """Return a budget, and the account of a connection that keeps bytes."""
    budget = MemoryBudget(1000)
    connection = budget.open("a")
    connection.keep(300)
    return budget, connection


def test_an_account_that_keeps_bytes_passes_them_from_one_call_to_the_next() -> None:
    budget, connection = keeping()
    connection.open(200).close()
    assert (connection.kept, drawn(budget)) == (200, 200)
    with connection.open(150):
        assert (connection.kept, drawn(budget)) == (50, 200)
    with connection.open(250):
        assert drawn(budget) == 450


def test_more_than_an_account_may_keep_is_given_back() -> None:
    budget, connection = keeping()
    connection.open(301).close()
    assert drawn(budget) == 0
    with connection.open(200), connection.open(200):
        pass
    assert drawn(budget) == 200


def test_an_account_that_is_closed_gives_back_what_it_has_kept_and_keeps_nothing_more() -> None:
    budget, connection = keeping()
    connection.open(200).close()
    running = connection.open(100)
    connection.close()
    assert drawn(budget) == 100
    running.close()
    connection.close()
    assert drawn(budget) == 0


@pytest.mark.parametrize("taking", ["an account", "a table", "one step"])
def test_over_half_of_the_budget_what_was_kept_is_given_back_before_anything_is_refused(taking: str) -> None:
    budget, connection = keeping()
    connection.open(300).close()
    if taking == "an account":
        budget.open("b").take(251)
    elif taking == "a table":
        table = budget.open_table()
        assert table.has_room(251, "b")
        table.check(251, "b")
    else:
        budget.open("b").check_step(1000)
    assert budget.statistics().refused == 0


def test_over_half_of_the_budget_nothing_is_kept() -> None:
    budget, connection = keeping()
    running = connection.open(200)
    budget.open("b").draw(400)
    running.close()
    assert drawn(budget) == 400


def test_what_an_account_has_kept_is_not_given_back_from_another_thread() -> None:
    budget, connection = keeping()
    connection.open(300).close()
    other = threading.Thread(target=budget.is_over_half, args=(1000,))
    other.start()
    other.join()
    assert (connection.kept, drawn(budget)) == (300, 300)
    assert budget.is_over_half(1000)
    assert (connection.kept, drawn(budget)) == (0, 0)


def test_threads_may_share_a_budget() -> None:
    budget = MemoryBudget(10**9)

    def work() -> None:
        for _ in range(2000):
            with budget.open("one", "ana") as account:
                account.draw(3)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert drawn(budget) == 0


@pytest.mark.parametrize(
    ("total", "kind"), [(0, ValueError), (-1, ValueError), (True, TypeError), ("1 GiB", TypeError)]
)
def test_a_budget_is_a_whole_number_of_bytes(total: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=naming("total")):
        MemoryBudget(total)


def test_the_default_is_one_for_the_process_of_a_quarter_of_what_it_may_use() -> None:
    assert process_budget() is process_budget()
    assert process_budget().total == usable_memory() // 4
    assert 0 < usable_memory() <= machine_memory()


def group(folder: Path, limits: dict[str, str], own: str) -> list[int]:
    for name, limit in limits.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(limit + "\n")
    (folder / "own").write_text(own)
    return control_group_limits(folder, folder / "own")


def test_the_limit_of_every_control_group_above_the_process_counts(tmp_path: Path) -> None:
    limits = {"a/b/memory.max": "max", "a/memory.max": "500", "memory.max": "9000"}
    assert set(group(tmp_path, limits, "0::/a/b\n")) == {500, 9000}


def test_control_groups_of_the_first_version_have_a_folder_for_memory(tmp_path: Path) -> None:
    limits = {"memory/a/memory.limit_in_bytes": "700", "cpu/a/memory.limit_in_bytes": "1"}
    assert group(tmp_path, limits, "5:cpu:/a\n4:memory,hugetlb:/a\n") == [700]


def test_a_machine_without_control_groups_has_no_such_limit(tmp_path: Path) -> None:
    assert control_group_limits(tmp_path / "none", tmp_path / "none") == []
