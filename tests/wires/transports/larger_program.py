"""A program that serves, and after a signal has some other work to finish, which takes longer than a shutdown may.

Usage: larger_program.py serve | run. `serve` works in another thread, `run` in the main thread.
"""

from __future__ import annotations

import sys
import threading
import time
from functools import partial

import trio

from trio_mcp import Server
from trio_mcp_transports.hypercorn import serve as serving

HARD_END_AFTER = 0.5
OPTIONS = {"port": 0, "drain": 0.1, "announce": False}

server = Server("part of a larger program")


class Started(trio.TaskStatus[object]):
    def started(self, value: object = None) -> None:
        print("serving", file=sys.stderr, flush=True)


def finish_own_work() -> None:
    time.sleep(HARD_END_AFTER * 5)
    print("the work is done", file=sys.stderr, flush=True)


if __name__ == "__main__":
    vars(serving).update({"HARD_END_AFTER": HARD_END_AFTER})
    if sys.argv[1] == "run":
        server.run("http", task_status=Started(), **OPTIONS)
        finish_own_work()
    else:
        trio.run(partial(server.serve, "http", task_status=Started(), **OPTIONS))
        threading.Thread(target=finish_own_work).start()
