"""The ids of tasks: what a process can tell of one that it has no record of."""

from __future__ import annotations

import base64

import pytest

from trio_mcp.session import KeyRing
from trio_mcp.session.tasks.record import ID_CHARACTERS, TaskIds, TaskLife, is_storage_key, storage_key

OLD, NEW = b"o" * 32, b"n" * 32


def ids(*keys: bytes, audience: str = "server") -> TaskIds:
    return TaskIds(KeyRing(keys or (OLD,)), audience)


def test_another_process_knows_for_how_long_the_task_exists() -> None:
    task_id = ids().new("alice", 1000.0, 1060.5)
    assert ids().life_in_another_process(task_id, "alice") == TaskLife(1000.0, 1060.5)


def test_the_process_itself_knows_that_there_is_no_such_task_any_more() -> None:
    own = ids()
    assert own.life_in_another_process(own.new("alice", 1.0, 2.0), "alice") is None


@pytest.mark.parametrize("owner", ["", "bob", "alice2", "alic"])
def test_only_the_owner_is_notified(owner: str) -> None:
    task_id = ids().new("alice", 1.0, 2.0)
    assert ids().life_in_another_process(task_id, owner) is None


def test_another_server_with_the_same_keys_does_not_know_it() -> None:
    task_id = ids(audience="one").new("alice", 1.0, 2.0)
    assert ids(audience="two").life_in_another_process(task_id, "alice") is None
    # Where one name ends and the other begins, counts.
    assert ids(audience="eone").life_in_another_process(task_id, "alic") is None


def test_an_older_key_is_recognised_and_the_newest_signs() -> None:
    old = ids(OLD).new("alice", 1.0, 2.0)
    assert ids(NEW, OLD).life_in_another_process(old, "alice") is not None
    new = ids(NEW, OLD).new("alice", 1.0, 2.0)
    assert ids(OLD).life_in_another_process(new, "alice") is None


def test_an_id_that_was_changed_is_not_known() -> None:
    task_id = ids().new("alice", 1.0, 2.0)
    for at in range(0, ID_CHARACTERS, 5):
        changed = task_id[:at] + ("A" if task_id[at] != "A" else "B") + task_id[at + 1 :]
        assert ids().life_in_another_process(changed, "alice") is None


def test_no_id_begins_as_an_option_of_a_command() -> None:
    own = ids()
    assert not [each for each in (own.new("alice", 1.0, 2.0) for _ in range(1_000)) if not each[0].isalnum()]


def test_ids_are_random_and_their_keys_in_a_store_are_not_them() -> None:
    own = ids()
    many = [own.new("alice", 1.0, 2.0) for _ in range(100)]
    assert len({base64.urlsafe_b64decode(each + "==")[:16] for each in many}) == 100
    keys = [storage_key(each) for each in many]
    assert all(key is not None and is_storage_key(key) for key in keys)
    assert not any(base64.urlsafe_b64decode(each + "==").hex()[:16] in str(keys) for each in many)


def test_the_keys_in_a_store_sort_by_the_time_of_creation() -> None:
    own = ids()
    keys = [storage_key(own.new("alice", created, 1e9)) for created in (1.0, 1.5, 300.0, 1_800_000_000.0)]
    assert keys == sorted(keys)  # type: ignore[type-var]


@pytest.mark.parametrize("text", ["", "x", "A" * (ID_CHARACTERS - 1), "A" * (ID_CHARACTERS + 1), "ä" * ID_CHARACTERS])
def test_an_invalid_id_has_no_key(text: str) -> None:
    assert storage_key(text) is None
    assert ids().life_in_another_process(text, "alice") is None
