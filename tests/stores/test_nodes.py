"""Who lives: what several that ask at once get, and what a process leaves whose own children go on."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trio_mcp.errors import ConfigurationError
from trio_mcp.stores.nodes import Nodes, has_reached_limit
from trio_mcp.stores.sqlite_notices import Notices

ASKING = 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "nodes"


@pytest.fixture
def nodes(folder: Path) -> Iterator[Nodes]:
    nodes = Nodes(folder)
    yield nodes
    nodes.leave()


@contextmanager
def locked(path: Path, kind: int) -> Iterator[None]:
    """Hold the lock of a file, as another one that asks does for a moment."""
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
        yield
    finally:
        os.close(file)


def test_all_that_ask_at_once_hear_that_a_process_is_dead(nodes: Nodes, folder: Path) -> None:
    nodes.join("here")
    answers: list[bool] = []
    for number in range(100):
        (folder / f"dead-{number}").touch()
        together = threading.Barrier(ASKING)

        def ask(name: str, together: threading.Barrier) -> None:
            together.wait()
            answers.append(nodes.is_alive(name))

        asking = [threading.Thread(target=ask, args=(f"dead-{number}", together)) for _ in range(ASKING)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    assert not any(answers)


def test_one_that_finds_a_process_dead_makes_it_look_alive_to_no_other(nodes: Nodes, folder: Path) -> None:
    nodes.join("here")
    with locked(folder / "dead", fcntl.LOCK_EX):
        assert not nodes.is_alive("dead")


def test_asking_never_makes_a_living_process_look_dead(nodes: Nodes, folder: Path) -> None:
    nodes.join("here")
    other = Nodes(folder)
    with locked(folder / "here", fcntl.LOCK_SH):
        assert other.is_alive("here")
    assert other.is_alive("here")


def test_a_name_that_lives_is_not_given_to_another_process(nodes: Nodes, folder: Path) -> None:
    nodes.join("here")
    with pytest.raises(ConfigurationError):
        Nodes(folder).join("here")
    assert Nodes(folder).is_alive("here")


def test_a_name_is_free_again_when_its_process_is_done(nodes: Nodes, folder: Path) -> None:
    nodes.join("here")
    nodes.leave()
    other = Nodes(folder)
    assert not other.is_alive("here")
    other.join("here")
    assert nodes.is_alive("here")
    other.leave()


def test_the_first_to_join_removes_the_files_of_the_dead(nodes: Nodes, folder: Path) -> None:
    folder.mkdir()
    (folder / "dead").touch()
    nodes.join("here")
    assert os.listdir(folder) == ["here"]


def remove_file(folder: Path) -> None:
    (folder / "here").unlink()


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def move_folder(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def put_another_folder_in_its_place(folder: Path) -> None:
    move_folder(folder)
    folder.mkdir()
    (folder / "here").touch()


def put_another_file_in_its_place(folder: Path) -> None:
    (folder / "new").touch()
    (folder / "new").rename(folder / "here")


GONE = [remove_file, remove_folder, move_folder, put_another_folder_in_its_place, put_another_file_in_its_place]


@pytest.mark.parametrize("do_away", GONE, ids=lambda each: each.__name__)
def test_a_process_whose_file_is_gone_recreates_it(nodes: Nodes, folder: Path, do_away: Callable[[Path], None]) -> None:
    nodes.join("here")
    do_away(folder)
    nodes.remake()
    assert nodes.remade == 1
    other = Nodes(folder)
    assert other.is_alive("here")
    other.join("other")
    assert other.is_alive("here")
    other.leave()
    nodes.leave()
    assert not other.is_alive("here")
    assert os.listdir(folder) == []


def test_an_existing_file_is_not_recreated(nodes: Nodes, folder: Path) -> None:
    nodes.join("here")
    before = (folder / "here").stat()
    nodes.remake()
    assert os.path.samestat(before, (folder / "here").stat())
    assert nodes.remade == 0


def test_a_file_that_cannot_be_recreated_is_an_error_and_the_next_try_makes_it(nodes: Nodes, folder: Path) -> None:
    nodes.join("here")
    shutil.rmtree(folder)
    folder.write_text("no folder")
    with pytest.raises(OSError):
        nodes.remake()
    folder.unlink()
    nodes.remake()
    assert Nodes(folder).is_alive("here")


def test_a_process_that_is_done_leaves_the_file_of_another_under_its_name(nodes: Nodes, folder: Path) -> None:
    nodes.join("here")
    remove_file(folder)
    other = Nodes(folder)
    other.join("here")
    nodes.leave()
    assert Nodes(folder).is_alive("here")
    other.leave()


@pytest.mark.wires
def test_a_killed_process_is_dead_although_a_child_that_it_forked_lives(nodes: Nodes, folder: Path) -> None:
    """Such as a worker of `multiprocessing`, which has every descriptor of its parent."""
    code = (
        "import os, sys, time; from pathlib import Path; from trio_mcp.stores.nodes import Nodes\n"
        "nodes = Nodes(Path(sys.argv[1])); nodes.join('parent'); read, write = os.pipe()\n"
        "child = os.fork()\n"
        "if child == 0: os.write(write, b'.'); time.sleep(60); os._exit(0)\n"
        "os.read(read, 1); print(child, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            assert nodes.is_alive("parent")
            parent.kill()
            parent.wait()
            assert not nodes.is_alive("parent")
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.usefixtures("on_windows")
def test_a_durable_store_is_refused_on_windows(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="WSL"):
        Nodes(tmp_path).join("here")
    with pytest.raises(OSError, match="WSL"):
        Notices(tmp_path)
    assert not has_reached_limit(tmp_path)
