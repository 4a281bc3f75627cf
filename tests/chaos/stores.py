"""The stores of a chaos run: a file, or a separate server, with what goes wrong with each."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final

from store_servers import PostgresServer, RedisServer


class ChaosStore(ABC):
    """The store of one run.

    Args:
        home: the folder of the run.

    Attributes:
        processes: how many use it.
    """

    name: ClassVar[str]
    processes: ClassVar[int] = 3

    def __init__(self, home: Path) -> None:
        self.home = home

    @property
    @abstractmethod
    def url(self) -> str:
        """What `ServiceOptions.store` names."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start it for the length of the block."""
        yield


class InFile(ChaosStore):
    name = "sqlite"
    processes = 2

    @property
    def path(self) -> Path:
        return self.home / "state.db"

    @property
    def url(self) -> str:
        return str(self.path)


class InServer(ChaosStore):
    """A store in a server of this run."""

    server: RedisServer | PostgresServer

    @property
    def url(self) -> str:
        return self.server.url

    @contextmanager
    def running(self) -> Iterator[None]:
        self.server.start()
        try:
            yield
        finally:
            self.server.stop()

    @abstractmethod
    def cut(self) -> None:
        """Close all connections to the server, at its end."""


class InRedis(InServer):
    name = "redis"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        # What it has confirmed survives its end, though not that of the machine.
        self.server: RedisServer = RedisServer(home, "--save", "", "--appendonly", "yes")

    def cut(self) -> None:
        for kind in ("normal", "pubsub"):
            self.server.say("CLIENT", "KILL", "TYPE", kind)


class InPostgres(InServer):
    name = "postgres"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        # It may belong to another user, who cannot look into the folders of pytest.
        self._folder = tempfile.TemporaryDirectory()
        Path(self._folder.name).chmod(0o755)
        inner = Path(self._folder.name, "postgres")
        inner.mkdir()
        self.server: PostgresServer = PostgresServer(inner)

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._folder:
            self.server.make()
            with super().running():
                yield

    def cut(self) -> None:
        self.server.say(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where pid <> pg_backend_pid() and backend_type = 'client backend'"
        )


STORES: Final[dict[str, type[ChaosStore]]] = {each.name: each for each in (InFile, InRedis, InPostgres)}
