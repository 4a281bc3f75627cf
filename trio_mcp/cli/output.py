"""What a command shows: results on stdout, everything else on stderr.

Most of it was written by the server, so no control characters of it reach a terminal: they could move the cursor,
rewrite what is on the screen, or turn the direction of the text.
"""

from __future__ import annotations

import json
import re
import sys

from ..types import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    JsonValue,
    LoggingMessageNotificationParams,
    ProgressNotificationParams,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def show_result(result: CallToolResult) -> None:
    """The result: on stdout as it is, or made safe if that is a terminal; an error result on stderr."""
    text = "\n".join(as_text(block) for block in result.content)
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    if result.is_error:
        note(f"the tool answered with an error: {text}")
    elif text:
        sys.stdout.write((clean(text) if sys.stdout.isatty() else text) + "\n")
        sys.stdout.flush()


def as_text(block: ContentBlock) -> str:
    """A block as text; what is not text is only named."""
    match block:
        case TextContent(text=text):
            return text
        case ImageContent(mime_type=mime_type, data=data) | AudioContent(mime_type=mime_type, data=data):
            return f"[{mime_type}, {len(data) * 3 // 4} bytes]"
        case ResourceLink(uri=uri):
            return f"[{uri}]"
        case EmbeddedResource(resource=TextResourceContents(text=text)):
            return text
        case EmbeddedResource(resource=resource):
            return f"[{resource.uri}]"


def show_progress(report: ProgressNotificationParams) -> None:
    of = "" if report.total is None else f"/{report.total:g}"
    note(f"[{report.progress:g}{of}] {report.message or ''}".rstrip())


def show_log(entry: LoggingMessageNotificationParams) -> None:
    source = f" {entry.logger}:" if entry.logger else ""
    note(f"[{entry.level}]{source} {as_line(entry.data)}")


def as_line(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def note(text: str, end: str = "\n") -> None:
    """Something to know, on stderr."""
    sys.stderr.write(clean(text) + end)
    sys.stderr.flush()


def clean(text: str) -> str:
    """The text without what a terminal would obey."""
    return UNSAFE.sub("\ufffd", text)
