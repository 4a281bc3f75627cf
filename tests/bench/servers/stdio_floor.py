"""A floor on stdio: lines over Trio's own streams. `python -m bench.servers.stdio_floor`."""

from __future__ import annotations

import os

import orjson
import trio

from .floor_answers import answer

READ_BYTES = 1 << 18


async def main() -> None:
    reading, writing = trio.lowlevel.FdStream(os.dup(0)), trio.lowlevel.FdStream(os.dup(1))
    buffer = bytearray()
    while data := await reading.receive_some(READ_BYTES):
        buffer += data
        if b"\n" not in data:
            continue
        lines = bytes(buffer).split(b"\n")
        buffer = bytearray(lines.pop())
        answers = [orjson.dumps(answer(message)) for message in map(orjson.loads, lines) if "id" in message]
        if answers:
            await writing.send_all(b"\n".join([*answers, b""]))


if __name__ == "__main__":
    trio.run(main)
