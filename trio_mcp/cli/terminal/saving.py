"""Writing the images, the audio and the files of a result to disk: `trio-mcp call --save FILE`."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

from ...types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextResourceContents,
)
from ..errors import CommandError
from .output import note


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
