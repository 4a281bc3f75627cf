"""The folder of the workers of one command: it is there for as long as one of them lives."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from trio_mcp.cli.command import CommandError
from trio_mcp.cli.workers import check_many

if sys.platform == "win32":
    pytest.skip("there are no workers on Windows", allow_module_level=True)

import fcntl

from trio_mcp.cli.worker_folder import MOST_PATH, PREFIX, FolderLock, worker_folder


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("w")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_it_is_private_and_gone_at_the_end() -> None:
    with worker_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert [(each.name, each.stat().st_mode & 0o777) for each in folder.iterdir()] == [("keys", 0o600)]
    assert not folder.exists()


def test_the_last_that_leaves_it_removes_it(temporary: Path) -> None:
    folder = temporary / "left"
    folder.mkdir()
    locks = [FolderLock(folder) for _ in range(3)]
    for lock in locks:
        assert folder.exists()
        lock.leave()
    assert not folder.exists()


def test_a_folder_that_no_process_uses_goes_with_the_next_start(temporary: Path) -> None:
    left = temporary / f"{PREFIX}left"
    left.mkdir()
    (left / "state.db").touch()
    with worker_folder() as used, worker_folder() as folder:
        assert {*temporary.iterdir()} == {used, folder}


def test_no_link_is_followed_and_nothing_else_is_removed(temporary: Path) -> None:
    other = temporary / "other"
    other.mkdir()
    link = temporary / f"{PREFIX}link"
    link.symlink_to(other)
    file = temporary / f"{PREFIX}file"
    file.touch()
    with worker_folder():
        pass
    assert {*temporary.iterdir()} == {other, link, file}


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root makes folders of other users")
def test_the_folder_of_another_user_is_left_alone(temporary: Path) -> None:
    foreign = temporary / f"{PREFIX}foreign"
    foreign.mkdir()
    os.chown(foreign, 65534, 65534)
    with worker_folder():
        pass
    assert foreign.exists()


def test_a_lock_of_a_folder_that_has_gone_is_an_error(temporary: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FolderLock(temporary / "gone")


def test_a_path_that_is_too_long_for_sockets_is_refused(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = temporary / ("x" * MOST_PATH)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(CommandError, match="TMPDIR"), worker_folder():
        pass
    assert [*long.iterdir()] == []


def test_no_place_for_it_is_an_error_of_the_command(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "none"))
    with pytest.raises(CommandError), worker_folder():
        pass


def test_a_folder_that_another_start_has_removed_before_it_was_locked_is_made_again(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, removed = fcntl.flock, list[Path]()

    def late(file: int, kind: int) -> None:
        if not removed:
            removed.extend(temporary.iterdir())
            removed[0].rmdir()
        flock(file, kind)

    monkeypatch.setattr(fcntl, "flock", late)
    with worker_folder() as folder:
        assert removed != [folder]
        assert folder.exists()


@pytest.mark.usefixtures("on_windows")
def test_commands_with_several_processes_are_refused_on_windows() -> None:
    with pytest.raises(CommandError, match="--workers"):
        check_many(2)
    with pytest.raises(CommandError, match="WSL"), worker_folder():
        pytest.fail("it was made")
