"""Show the messages of a connection: a channel that reports each message, and a message in one line."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeAlias

from ...base.values import printable
from ...errors import RemoteProtocolError
from ...protocol.jsonrpc import (
    Answers,
    Batch,
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    Response,
    Unanswered,
    decoded,
)
from ...session import AnyChannel, Envelope, MessageChannel, Received, Sent, as_message_channel
from ...types import JsonObject, JsonValue
from .output import rich_screen, show_lines

# Messages are matched by their shape and not decoded into models: a trace must also show a message that breaks the protocol.


Arrived: TypeAlias = Sent | Received

OnMessage: TypeAlias = Callable[[str, Arrived], None]
"""Called with `client` and each message before it is sent, and with `server` and each one that was received."""

WIDTH = 120


@asynccontextmanager
async def observed(
    connection: AbstractAsyncContextManager[AnyChannel], on_message: OnMessage
) -> AsyncGenerator[MessageChannel]:
    """Open the connection's channel, and call `on_message` with every message."""
    async with connection as channel:
        yield ObservedChannel(as_message_channel(channel), on_message)


class ObservedChannel(MessageChannel):
    """A client's channel that reports every message and forwards it."""

    def __init__(self, channel: MessageChannel, on_message: OnMessage) -> None:
        self._channel = channel
        self._on_message = on_message

    async def send(self, value: Envelope) -> None:
        # Before it is sent: on a fast connection the answer could be shown first.
        self._on_message("client", value.message)
        await self._channel.send(value)

    async def receive(self) -> Envelope[Received]:
        envelope = await self._channel.receive()
        self._on_message("server", envelope.message)
        return envelope

    async def aclose(self) -> None:
        await self._channel.aclose()


def summary(message: Arrived, width: int = WIDTH) -> str:
    """Return a message in one line of at most `width` characters."""
    # Text from the server may have line breaks, and a trace has one line for each message.
    line = " ".join(message_line(message).split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def message_line(message: Arrived) -> str:
    """Return a message in one line, however long."""
    match message:
        case Request(id=request_id, method=method, params=params):
            return f"request {request_id}: {method} {request_line(decoded(params))}"
        case Notification(method=method, params=params):
            return f"{method} {notification_line(decoded(params))}"
        case Response(id=request_id, result=result):
            return f"answer to {request_id}: {result_line(decoded(result))}"
        case ErrorResponse(id=request_id, error=error):
            return f"error to {request_id}: {error.code} {error.message}"
        case Answers(answers=answers):
            return "; ".join(map(message_line, answers))
        case Batch():
            return batched(message)
        case Malformed(error=error):
            return f"no message: {error}"
        case Unanswered(id=request_id, why=why):
            return f"no answer to {request_id}: {why}"


def batched(batch: Batch) -> str:
    # A batch is parsed lazily, so that a malformed one fails here, between messages that are shown.
    try:
        return "; ".join(map(message_line, batch.messages()))
    except RemoteProtocolError as error:
        return f"no message: {error}"


def request_line(params: JsonObject) -> str:
    """Return the params of a request: a handshake; a call, perhaps with the answers of a round; a question; or any other."""
    match params:
        case {"protocolVersion": str(revision), "clientInfo": {"name": str(name)}}:
            return f"{revision}, {name}"
        case {"name": str(name), "inputResponses": dict(answers), "requestState": _}:
            return f"{name} again, with requestState and {keyed_line(answers)}"
        case {"name": str(name), "arguments": arguments}:
            return f"{name} {short(arguments)}"
        case {"message": str(question), "requestedSchema": {"properties": dict(fields)}}:
            return f"{question!r} {', '.join(fields)}"
        case {"messages": [{"content": {"text": str(prompt)}}]}:
            return repr(prompt)
        case _:
            return short(params)


def notification_line(params: JsonObject) -> str:
    match params:
        case {"progress": progress, "total": total, "message": text}:
            return f"{progress}/{total} {text}"
        case _:
            return short({key: value for key, value in params.items() if key != "progressToken"})


def result_line(result: JsonObject) -> str:
    """Return a result: of a handshake; a round of questions, a tool's text, a form's or a model's answer, or any other."""
    match result:
        case {"protocolVersion": str(revision), "serverInfo": {"name": str(name)}}:
            return f"{revision}, {name}"
        case {"supportedVersions": list(revisions)}:
            return ", ".join(map(str, revisions))
        case {"resultType": "input_required", "inputRequests": dict(questions), "requestState": _}:
            return f"input_required, requestState and {keyed_line(questions)}"
        case {"content": [{"text": str(text)}]} | {"content": {"text": str(text)}}:
            return repr(text)
        case {"action": str(action)}:
            return f"{action} {short(result.get('content'))}"
        case _:
            return short(result)


def keyed_line(members: JsonObject) -> str:
    """Return the questions or the answers of a round, each with its key."""
    return "; ".join(f"{key}: {of_round(value)}" for key, value in members.items())


def of_round(value: JsonValue) -> str:
    match value:
        case {"method": str(method), "params": dict(params)}:
            return f"{method} {request_line(params)}"
        case dict():
            return result_line(value)
        case _:
            return short(value)


def short(value: JsonValue) -> str:
    """Return JSON without `_meta`, which every modern message has."""
    if isinstance(value, dict):
        value = {key: member for key, member in value.items() if key != "_meta"}
    return json.dumps(value, ensure_ascii=False) if value else ""


# What a demonstration shows: headings, code and messages, in colours on terminals and as plain text elsewhere.

MAX_COLUMNS: Final = 100
INDENT: Final = " " * 2
BELOW: Final = " " * 6
"""Before the further lines of a message that does not fit in one."""

STYLES: Final[Mapping[str, str]] = {"client": "cyan", "server": "green", "user": "yellow", "model": "magenta"}
"""The colours of those who say something, as rich names them."""


class Transcript:
    """Writes to stdout. On a terminal lines are wrapped at its width, or at `MAX_COLUMNS`."""

    def __init__(self) -> None:
        self._screen = rich_screen() if sys.stdout.isatty() else None
        self._columns = min(shutil.get_terminal_size().columns, MAX_COLUMNS)
        self._after_line = True

    def heading(self, text: str) -> None:
        """Show a headline."""
        self.line()
        self._show([text, "=" * len(text)], "bold")
        self.line()

    def paragraph(self, text: str) -> None:
        """Show a text, wrapped at words, and an empty line."""
        self._show(textwrap.wrap(text, min(self._columns, 80)))
        self.line()

    def code(self, text: str) -> None:
        """Show Python code, and an empty line."""
        if self._screen is None:
            self._show([textwrap.indent(text.rstrip(), INDENT)])
        else:
            self._screen.show_code(text.rstrip())
            self._after_line = False
        self.line()

    def said(self, who: str, text: str) -> None:
        """Show what one of `STYLES` says; below the messages what users and models say."""
        indent = INDENT if who in ("client", "server") else BELOW
        line = f"{indent}{who} -> {text}" if indent == INDENT else f"{indent}the {who} {text}"
        lines: Sequence[str] = [line]
        if self._screen is not None:
            lines = textwrap.wrap(line, self._columns, subsequent_indent=BELOW, break_long_words=False)
        self._show(lines, STYLES[who])

    def block(self, text: str) -> None:
        """Show text as it is, indented."""
        self._show([f"{INDENT}{line}" for line in text.splitlines()])

    def line(self) -> None:
        """Show an empty line, unless the one before it is empty, or this is the first."""
        if not self._after_line:
            self._show([""])
            self._after_line = True

    def _show(self, lines: Iterable[str], style: str = "") -> None:
        self._after_line = False
        if self._screen is None:
            show_lines(list(lines))
        else:
            self._screen.show_styled(map(printable, lines), style)
