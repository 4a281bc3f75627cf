"""Showing what a server sends: results on stdout, progress, log messages and the state of tasks on stderr."""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...base.values import one_line, printable
from ...types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    LoggingMessageNotificationParams,
    ProgressNotificationParams,
    ResourceLink,
    Task,
    TextContent,
    TextResourceContents,
    UnknownContent,
)
from ..command import CommandError
from .output import is_terminal, note, rich_screen

if TYPE_CHECKING:
    from .rich_output import Bar


def show_result(result: CallToolResult) -> None:
    """Write a result to stdout, without control characters if that is a terminal; an error result to stderr."""
    text = "\n".join(as_text(block) for block in result.content)
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    if result.is_error:
        note(f"the tool answered with an error: {text}")
    # Into a file or a pipe go the bytes that the tool returned: a program reads them, and no terminal.
    elif text:
        sys.stdout.write((printable(text) if sys.stdout.isatty() else text) + "\n")
        sys.stdout.flush()


def as_text(block: ContentBlock) -> str:
    """Return a block as text; of an image, audio or binary resource only a description."""
    match block:
        case TextContent(text=text):
            return text
        case ImageContent(mime_type=mime_type, data=data) | AudioContent(mime_type=mime_type, data=data):
            return f"[{mime_type}, {len(data) * 3 // 4 - data.count('=', -2)} bytes]"
        case ResourceLink(uri=uri):
            return f"[{uri}]"
        case EmbeddedResource(resource=TextResourceContents(text=text)):
            return text
        case EmbeddedResource(resource=resource):
            return f"[{resource.uri}]"
        case UnknownContent():
            # In ASCII: its members may hold anything that commands a terminal.
            return json.dumps(block.wire())


def show_progress(report: ProgressNotificationParams) -> None:
    """Write a progress notification to stderr, unless it is a heartbeat, which repeats the last one."""
    if report.is_heartbeat:
        return
    of = "" if report.total is None else f"/{report.total:g}"
    note(f"[{shown_progress(report.progress):g}{of}] {report.message or ''}".rstrip())


def shown_progress(value: float) -> float:
    """Return what to show of a value: 0 for one that is above 0 only because a heartbeat came before it."""
    return 0 if abs(value) < sys.float_info.min else value


def show_change(task: Task) -> None:
    """Write the state of a task to stderr."""
    note(f"[{task.status}] {task.status_message or ''}".rstrip())


LEVELS: Final = {
    "debug": "bright_black",
    "warning": "yellow",
    "error": "red",
    "critical": "red",
    "alert": "red",
    "emergency": "red",
}
"""The colours of the levels of log messages."""


def show_log(entry: LoggingMessageNotificationParams) -> None:
    """Write a log message of the server to stderr."""
    source = f" {entry.logger}:" if entry.logger else ""
    data = entry.data if isinstance(entry.data, str) else json.dumps(entry.data, ensure_ascii=False)
    note(f"[{entry.level}]{source} {data}", colour=LEVELS.get(entry.level))


# The progress of a call on stderr: a bar on a terminal, and a line for each report elsewhere.

OnProgress = Callable[[ProgressNotificationParams], None]


class ProgressDisplay:
    """Shows the progress of one call. A bar is there from the first report to the end, but not during a question."""

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._is_hidden = False

    @contextmanager
    def reports(self) -> Generator[OnProgress]:
        """Yield what takes the reports of a call; the bar is gone after the block."""
        if not is_terminal():
            yield show_progress
            return
        try:
            yield self._draw
        finally:
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    @contextmanager
    def hidden(self) -> Generator[None]:
        """Take the bar away for a block: a question needs the last line of the terminal."""
        self._is_hidden = True
        if self._bar is not None:
            self._bar.stop()
        try:
            yield
        finally:
            self._is_hidden = False
            if self._bar is not None:
                self._bar.start()

    def _draw(self, report: ProgressNotificationParams) -> None:
        if self._is_hidden:
            return
        if self._bar is None:
            self._bar = rich_screen().bar()
            self._bar.start()
        # A heartbeat shows that the server is alive: the bar moves, with the message of the last report.
        self._bar.update(shown_progress(report.progress), report.total, one_line(report.message or ""))


# Writing the images, the audio and the files of a result to disk: `trio-mcp call --save FILE`.


def save_files(result: CallToolResult, path: Path) -> None:
    """Write each image, audio and embedded file of a result: the first to `path`, the next to `name-2.png` and so on.

    Raises:
        CommandError: there is none, or a file cannot be written.
    """
    found = [data for block in result.content for data in data_of(block)]
    if not found:
        raise CommandError("--save: the result has no image, no audio and no file")
    for number, data in enumerate(found, 1):
        file = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
        try:
            file.write_bytes(data)
        except OSError as error:
            raise CommandError(f"--save: {file} cannot be written: {error.strerror}") from error
        note(f"saved {file} ({len(data)} bytes)")


def data_of(block: ContentBlock) -> Iterator[bytes]:
    """Yield the bytes of a block that is a file. Raises `CommandError` if its server has not encoded them."""
    match block:
        case (
            ImageContent(data=data)
            | AudioContent(data=data)
            | EmbeddedResource(resource=BlobResourceContents(blob=data))
        ):
            try:
                yield b64decode(data, validate=True)
            except ValueError as error:
                raise CommandError(f"--save: the server sent what is not base64: {error}") from error
        case EmbeddedResource(resource=TextResourceContents(text=text)):
            yield text.encode()
