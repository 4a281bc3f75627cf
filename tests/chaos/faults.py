"""What goes wrong in a chaos run: each fault is an async function of the world, drawn with its strength from the seed."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import trio
from store_servers import PostgresServer, RedisServer

from chaos.stores import InFile, InServer

if TYPE_CHECKING:
    from chaos.world import World

Fault = Callable[["World", Random], Awaitable[None]]

LOCKS: Final = trio.CapacityLimiter(4)


async def kill(world: World, random: Random) -> None:
    """End a process with SIGKILL, and start another one in its place after a while."""
    process = random.choice(world.processes)
    world.story.tell(f"SIGKILL {process}")
    await process.stop(signal.SIGKILL)
    await trio.sleep(random.choice((0, 0, 1, 2)))
    await process.start()


async def terminate(world: World, random: Random) -> None:
    """End a process with SIGTERM, and start another one in its place."""
    process = random.choice(world.processes)
    world.story.tell(f"SIGTERM {process}")
    await process.stop(signal.SIGTERM)
    await process.start()


async def pause(world: World, random: Random) -> None:
    """Stop a process for a while: it lives, and does nothing."""
    process, seconds = random.choice(world.processes), random.uniform(0.2, 6)
    world.story.tell(f"SIGSTOP {process} for {seconds:.1f} s")
    with process.stopped():
        await trio.sleep(seconds)


async def lock(world: World, random: Random) -> None:
    """Keep the database locked, as another program may."""
    seconds = random.choice((0.1, 0.5, 1, 2.5, 3.5, 5.5, 8))
    world.story.tell(f"the database is locked for {seconds} s")
    await hold(file_of(world), seconds)


async def slow(world: World, random: Random) -> None:
    """Keep the database locked most of the time."""
    world.story.tell("the database is slow")
    for _ in range(random.randint(5, 15)):
        await hold(file_of(world), random.uniform(0.05, 0.4))
        await trio.sleep(random.uniform(0.01, 0.1))


def file_of(world: World) -> Path:
    assert isinstance(world.store, InFile)
    return world.store.path


async def hold(path: Path, seconds: float) -> None:
    """Hold the lock of a writer."""

    def locked() -> sqlite3.Connection | None:
        connection = sqlite3.connect(path, timeout=2, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error:
            connection.close()
            return None
        return connection

    connection = await trio.to_thread.run_sync(locked, limiter=LOCKS)
    if connection is not None:
        with closing(connection):
            await trio.sleep(seconds)


async def full(world: World, random: Random) -> None:
    """Let the files of a process grow no further for a while."""
    process, seconds = random.choice(world.processes), random.uniform(0.5, 4)
    file = file_of(world)
    files = (file, Path(f"{file}-wal"), world.ledger_path)
    size = max(each.stat().st_size if each.exists() else 0 for each in files)
    spare = random.choice((0, 8192, 65536))
    world.story.tell(f"{process} may write {spare} bytes more, for {seconds:.1f} s")
    with process.limited(size + spare):
        await trio.sleep(seconds)


async def vanish(world: World, random: Random) -> None:
    """Remove lock files of living processes, or their folder."""
    how = random.choice(("one", "all", "folder", "moved", "replaced"))
    world.story.tell(f"lock files vanish: {how}")
    try:
        do_away(Path(f"{file_of(world)}.nodes"), how)
    except FileNotFoundError:
        world.story.tell("they had vanished already")
    await trio.lowlevel.checkpoint()


def do_away(folder: Path, how: str) -> None:
    """Do away with lock files. Raises `FileNotFoundError` if something else has."""
    names = os.listdir(folder)
    match how:
        case "one" | "all":
            for name in names[:1] if how == "one" else names:
                (folder / name).unlink()
        case "folder":
            shutil.rmtree(folder, ignore_errors=True)
        case _:
            folder.rename(f"{folder}-{os.urandom(4).hex()}")
            if how == "replaced":
                folder.mkdir()


async def jump(world: World, random: Random) -> None:
    """Set the clock of a process."""
    process, seconds = random.choice(world.processes), random.choice((-60.0, -5.0, 0.0, 3.0, 60.0))
    world.story.tell(f"the clock of {process} is {seconds:+} s off")
    process.set_clock(seconds)
    await trio.lowlevel.checkpoint()


async def take_over(world: World, random: Random) -> None:
    """Let a living process look dead, and start another one that looks for what it has left."""
    await vanish(world, random)
    await (kill if random.random() < 0.5 else terminate)(world, random)


def store_of(world: World) -> InServer:
    assert isinstance(world.store, InServer)
    return world.store


def server_of(world: World) -> RedisServer | PostgresServer:
    return store_of(world).server


async def restart_store(world: World, random: Random) -> None:
    """Kill the server of the store, and start it again."""
    seconds = random.choice((0.0, 0.5, 1, 2, 4))
    async with world.store_lock:
        world.story.tell(f"the store is killed, and started again after {seconds} s")
        await trio.to_thread.run_sync(server_of(world).stop, limiter=LOCKS)
        # Also when the faults end: the store must be there then.
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)
            await trio.to_thread.run_sync(server_of(world).start, limiter=LOCKS)


async def freeze_store(world: World, random: Random) -> None:
    """Let the server of the store stand still."""
    seconds = random.choice((0.1, 0.5, 1, 2, 4))
    async with world.store_lock:
        world.story.tell(f"SIGSTOP the store for {seconds} s")
        server_of(world).signal(signal.SIGSTOP)
        try:
            await trio.sleep(seconds)
        finally:
            server_of(world).signal(signal.SIGCONT)


async def cut_connections(world: World, random: Random) -> None:
    """Close all connections to the store."""
    async with world.store_lock:
        world.story.tell("all connections to the store are closed")
        await trio.to_thread.run_sync(store_of(world).cut, limiter=LOCKS)


async def stop_for_long(world: World, random: Random) -> None:
    """Stop a process for longer than its lease, so that another one buries it; one at a time, or no other one could."""
    process, seconds = random.choice(world.processes), random.uniform(3, 6)
    async with world.burial_lock:
        world.story.tell(f"SIGSTOP {process} for {seconds:.1f} s")
        with process.stopped():
            await trio.sleep(seconds)


OF_FILES: Final[dict[Fault, int]] = {
    kill: 5,
    terminate: 3,
    pause: 2,
    lock: 4,
    slow: 3,
    full: 3,
    vanish: 2,
    take_over: 3,
    jump: 2,
}
"""How often each is drawn, among all."""

OF_SERVERS: Final[dict[Fault, int]] = {
    kill: 4,
    terminate: 2,
    pause: 2,
    jump: 2,
    stop_for_long: 2,
    restart_store: 3,
    freeze_store: 3,
    cut_connections: 3,
}
"""The same where the store is a server."""

OF_PROCESSES: Final[dict[Fault, int]] = {kill: 2, terminate: 1, jump: 1, stop_for_long: 6}
"""The same for runs in which the store stays: after an outage of it no process is buried for some seconds."""


async def harm(world: World, random: Random) -> None:
    """Let faults happen, some at the same time, until this is cancelled."""
    faults = OF_FILES
    if isinstance(world.store, InServer):
        faults = random.choice((OF_SERVERS, OF_PROCESSES))
    async with trio.open_nursery() as nursery:
        while True:
            await trio.sleep(random.choice((0.1, 0.5, 1, 1.5, 2.5)))
            (fault,) = random.choices(list(faults), list(faults.values()))
            # Drawn now, so that what a fault draws does not depend on what else happens meanwhile.
            nursery.start_soon(fault, world, Random(random.random()))
