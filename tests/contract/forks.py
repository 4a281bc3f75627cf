"""The contract's server as a new process for each case, without importing everything and building the server each time.

One parent process does that once, and forks for every connection. What the client starts is `launcher.py`, which hands its stdin,
stdout and stderr over, passes signals on, and ends as the fork does.

    forks.py PATH KIND    be the parent, listening on a Unix socket at this path; KIND is "stdio" or "uvicorn"
"""

from __future__ import annotations

import gc
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LAUNCHER = Path(__file__).with_name("launcher.py")


@contextmanager
def forking_parent(path: Path, environment: dict[str, str], kind: str = "stdio") -> Iterator[list[str]]:
    """Run the parent process for the length of the block; gives the command that starts a fork, but for its arguments."""
    command = [sys.executable, "-W", "error", __file__, str(path), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | environment) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"listening\n"
            yield [sys.executable, "-I", "-S", str(LAUNCHER), str(path)]
        finally:
            parent.terminate()


def program(kind: str) -> Callable[..., None]:
    """Return the function that a fork runs with the arguments of its launcher; everything that it needs is loaded now."""
    if kind == "uvicorn":
        import uvicorn_child

        return uvicorn_child.run
    import stdio_child
    import trio

    return lambda port: trio.run(stdio_child.main, int(port))


def main(path: str, kind: str) -> None:
    from lending import build_spare

    serve = program(kind)
    build_spare()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks need no waiting for
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(100)
    print("listening", flush=True)
    while True:
        connection, _ = listener.accept()
        arguments, descriptors, _, _ = socket.recv_fds(connection, 1000, 3)
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            random.seed()
            connection.send(str(os.getpid()).encode())
            code = 1
            try:
                serve(*arguments.decode().split())
                code = 0
            except BaseException:  # noqa: BLE001  as the interpreter does
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stderr.flush()
                connection.send(bytes([code]))
                os._exit(code)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
