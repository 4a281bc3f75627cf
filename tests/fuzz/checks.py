"""What has to hold after every input: valid answers, a bystander that is served, a short log, and nothing left behind."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import trio
from jsonschema import ValidationError
from log_limits import SHOWN, new_records
from peer import Json, text_of
from spec_schemas import SPEC_DIR, VERSIONS, definitions, request_definitions, validator
from talk import Talk
from trio.testing import wait_all_tasks_blocked
from wire_oracle import general_definition, result_definition
from wire_terms import MODERN, NEWEST_LEGACY, PROTOCOL_VERSION

from trio_mcp import CancelReason
from trio_mcp.session import MemoryBudget, ServiceStatistics

TURNS = 60
"""Turns of the event loop that a bystander's call may take."""
RECORDS_OF_A_KIND = 3
"""Warnings of one kind about one connection: the first one, one at the end, and one more for the whole service."""
PROTOCOL = "trio_mcp.protocol"
"""The logger of what reads and writes JSON."""
RECORD_CHARACTERS = 8_000


class Failed(AssertionError):
    """An input broke one of the rules of this folder."""


def check(holds: object, what: str, *about: object) -> None:
    if not holds:
        raise Failed(what + ": " + ", ".join(repr(each)[:2000] for each in about))


_ID = re.compile(rb'"id"\s*:\s*(-?(?:0|[1-9][0-9]{0,15})|"(?:[^"\\\x00-\x1f]|\\.){0,256}")')


class Oracle:
    """The messages of one connection: ours are held against the schema files of the revisions that its requests name.

    A peer may number two requests alike and speak two eras on one connection, so that a message of ours is right if it is
    right for one of the requests that it may belong to.
    """

    def __init__(self) -> None:
        self._requests: dict[str, list[tuple[str, str | None]]] = {}
        self._answers: Counter[str] = Counter()
        self._agreed: set[str] = set()
        self._named: set[str] = set()

    def sent(self, data: bytes, named: str | None = None) -> None:
        """Note the requests of a message of the fuzzer, if it can be read at all, and a revision that was named beside it."""
        if named in VERSIONS:
            self._named.add(named)
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            # Over a limit before it was found to be malformed: then it may be rejected under an id that was found in it.
            for found in _ID.findall(data):
                with suppress(ValueError):
                    self._requests.setdefault(key_of(json.loads(found)), []).append(("", None))
            return
        for each in message if isinstance(message, list) else [message]:
            if not isinstance(each, dict) or "id" not in each:
                continue
            params = each.get("params")
            meta = params.get("_meta") if isinstance(params, dict) else None
            version = meta.get(PROTOCOL_VERSION) if isinstance(meta, dict) else None
            spoken = version if isinstance(version, str) and version in VERSIONS else None
            self._requests.setdefault(key_of(each["id"]), []).append((str(each.get("method")), spoken))

    def heard(self, message: Any) -> None:
        """Raise `Failed` unless this message of ours is valid."""
        if isinstance(message, list):
            check(message, "an empty array was sent")
            for each in message:
                self.heard(each)
            return
        check(isinstance(message, dict), "no message was sent", message)
        if "id" in message and "method" not in message:
            self._count_answer(key_of(message["id"]), message)
        if SPEC_DIR.is_dir():
            self._check_form(message)

    def _count_answer(self, key: str, message: Json) -> None:
        self._answers[key] += 1
        check(self._answers[key] <= len(self._requests.get(key, [])), "more answers than requests", message)
        if any(method == "initialize" for method, _ in self._requests[key]):
            version = message.get("result", {}).get("protocolVersion")
            self._agreed |= {version} - {None}

    def _check_form(self, message: Json) -> None:
        if "method" in message:
            self._valid(message, [(version, method_definition(version, message)) for version in self._versions])
        elif "error" in message:
            self._valid({"id": 0, **message}, [(each, general_definition(each, message)) for each in self._versions])
        else:
            self._check_result(message, message["result"])

    def _check_result(self, message: Json, result: Json) -> None:
        possible = []
        for method, named in self._requests[key_of(message["id"])]:
            for version in [named] if named else self._versions:
                definition = request_definitions(SPEC_DIR, version).get(method)
                if definition is not None:
                    possible.append((version, result_definition(SPEC_DIR, version, definition, result)))
        self._valid(result, possible)
        versions = {version for version, _ in possible}
        self._valid(message, [(version, general_definition(version, message)) for version in versions])

    @property
    def _versions(self) -> list[str]:
        named = {version for requests in self._requests.values() for _, version in requests if version}
        return sorted(named | self._named | (self._agreed or {NEWEST_LEGACY, MODERN}))

    def _valid(self, message: Json, possible: list[tuple[str, str]]) -> None:
        text = json.dumps(message)
        check(any(is_valid(text, *each) for each in set(possible)), "not valid", message, possible)


def key_of(request_id: object) -> str:
    """Return what tells ids apart; 1.0 is the number 1."""
    whole = isinstance(request_id, float) and request_id.is_integer()
    return repr(int(request_id) if whole else request_id)


def method_definition(version: str, message: Json) -> str:
    return request_definitions(SPEC_DIR, version).get(message["method"], "")


@lru_cache(maxsize=20_000)
def is_valid(text: str, version: str, definition: str) -> bool:
    if definition not in definitions(SPEC_DIR, version):
        return False
    try:
        validator(SPEC_DIR, version, definition).validate(json.loads(text))
    except ValidationError:
        return False
    return True


class Bystander:
    """Another connection to the same server, with one call in flight; it has to be served whatever the others do."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._in_flight: Any = None

    async def start(self) -> None:
        await self._talk.initialize()
        self._talk.cancel(self._talk.call("wait"))  # starts what a service starts once
        await wait_all_tasks_blocked()
        self._in_flight = self._talk.call("wait", {"name": "bystander"})
        await self.works()

    async def works(self) -> None:
        """Raise `Failed` unless a call gets its answer, and no other, within `TURNS` turns of the loop."""
        request_id = self._talk.call("echo", {"text": "here"})
        (answer,) = await self._messages()
        check(
            answer.get("id") == request_id and text_of(answer["result"]) == "here",
            "a bystander got another answer",
            answer,
        )

    async def end(self, go_on: trio.Event) -> None:
        go_on.set()
        (answer,) = await self._messages()
        right = answer.get("id") == self._in_flight and text_of(answer["result"]) == "waited"
        check(right, "a bystander that waited got another answer", answer)

    def leave(self) -> None:
        with self._talk.outbox:
            self._talk.session.close(CancelReason.DISCONNECT)

    async def _messages(self) -> list[Json]:
        for _ in range(TURNS):
            if messages := self._talk.waiting():
                return messages
            await trio.lowlevel.checkpoint()
        raise Failed(f"a bystander was not answered within {TURNS} turns of the event loop")


class Records(logging.Handler):
    """What was logged. Each record is formatted, as the handler of an application does it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._kinds: Counter[tuple[str, str]] = Counter()
        self._wrong: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if len(text) > RECORD_CHARACTERS or re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text):
            self._wrong.append(text)
        if record.levelno >= logging.WARNING:
            self._kinds[record.name, str(record.msg)] += 1
        if record.levelno >= logging.ERROR:
            self._wrong.append(logging.Formatter().format(record))

    def check(self, connections: int = 1) -> None:
        check(not self._wrong, "an error, a long record, or control characters in the log", *self._wrong[:3])
        # What reads and writes JSON knows no connection. Its records are limited over all of them.
        limits = {PROTOCOL: SHOWN}
        many = {
            kind: count
            for kind, count in self._kinds.items()
            if count > limits.get(kind[0], RECORDS_OF_A_KIND * connections)
        }
        check(not many, "the log was filled", many)


@contextmanager
def records() -> Iterator[Records]:
    handler, logger = Records(), logging.getLogger("trio_mcp")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    # Each case begins with the whole of what all connections may log in a minute, so that one that fails does so again.
    of_all = new_records(PROTOCOL, lines=SHOWN)
    try:
        with patch("trio_mcp.protocol.shown_text.records", of_all):
            yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def check_nothing_left(statistics: ServiceStatistics) -> None:
    """Raise `Failed` unless nothing of any peer is left in a service."""
    actors = statistics.actors
    left = (actors.running, actors.parked, actors.stuck, statistics.open_questions)
    check(left == (0,) * 4, "calls or questions are left", statistics)


def check_budget(budget: MemoryBudget, before: int) -> None:
    """Raise `Failed` unless a server that has ended gave back all that it drew; `before` it began so much was drawn."""
    check(budget.drawn == before, "bytes of the memory budget are left", budget)
