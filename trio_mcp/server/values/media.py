"""Images, audio and files in the results of tools and prompts, from a path or from bytes.

A file is read when its function has returned, in a thread. `MAX_FILE` limits it, since a result is one message.
"""

from __future__ import annotations

import mimetypes
from abc import ABC, abstractmethod
from base64 import b64encode
from contextvars import ContextVar
from os import PathLike, fspath
from pathlib import PurePath
from typing import ClassVar, Final, TypeAlias
from urllib.parse import quote

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from ...base.checks import mistake
from ...base.regular_files import FileTooLarge, NotRegularFile, read_regular
from ...errors import LimitExceeded
from ...types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    TextResourceContents,
)

MAX_FILE: Final = 10 * 1024 * 1024
"""Bytes of a file in a result. Base64 takes a third more, and our client accepts messages of 16 MiB."""

SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"ID3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)
"""The first bytes of the formats that most tools make."""
RIFF_FORMATS: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}

MediaBlock: TypeAlias = ImageContent | AudioContent | EmbeddedResource
StrPath: TypeAlias = str | PathLike[str]

may_read: ContextVar[bool] = ContextVar("may_read", default=False)
"""Whether this is a thread in which a file may be read; the event loop must not wait for one."""


class FileToRead(Exception):
    """A result has a file, which has to be read in a thread."""


class Media(ABC):
    """The bytes of a content block, or the path of the file that has them. `mime_type` may be changed until it is returned."""

    __slots__ = ("annotations", "data", "mime_type", "path")

    def __init__(
        self, path: StrPath | None, data: bytes | None, mime_type: str | None, annotations: Annotations | None
    ) -> None:
        what = type(self).__name__
        if (path is None) == (data is None):
            raise TypeError(f"{what} takes either a path, or its bytes as data=")
        if path is not None and not isinstance(path, str | PathLike):
            raise TypeError(
                mistake(f"the path of {what}", "a string or a Path", path, "bytes go by their keyword, data=")
            )
        if data is not None and not isinstance(data, bytes):
            raise TypeError(mistake(f"the data of {what}", "bytes, before any base64", data))
        self.path = None if path is None else fspath(path)
        self.data = data
        self.mime_type = mime_type
        self.annotations = annotations

    @abstractmethod
    def block(self) -> MediaBlock:
        """Return the content block. A file is read now, so that async code calls this in a thread.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not a regular file.
            LimitExceeded: it has more than `MAX_FILE` bytes.
        """

    def read(self) -> bytes:
        """Return the bytes. Raises as `block` does."""
        data = self.data
        if data is None:
            assert self.path is not None
            try:
                return read_regular(self.path, MAX_FILE)
            except FileTooLarge:
                raise too_large() from None
            except NotRegularFile as error:
                taken = f"{type(self).__name__}(path={self.path!r}) takes a regular file"
                raise ValueError(f"{taken}: {error.strerror}") from None
        if len(data) > MAX_FILE:
            raise too_large()
        return data

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.is_instance_schema(cls)

    def __repr__(self) -> str:
        content = self.path if self.data is None else f"{len(self.data)} bytes"
        return f"<{type(self).__name__} {self.mime_type} {content}>"


class _Shown(Media):
    """An image or audio.

    Args:
        path: of a file, which is read after the function has returned.
        data: the bytes, in place of a path.
        mime_type: such as "image/png". It may be left out where the name of the file or the first bytes show it.
        format: the second part of the type instead, such as "png".

    Raises:
        TypeError: neither or both of `path` and `data` were given, or one has a wrong type.
        ValueError: the type is not known, or not one of this kind.
    """

    __slots__ = ()

    _family: ClassVar[str]

    def __init__(
        self,
        path: StrPath | None = None,
        *,
        data: bytes | None = None,
        mime_type: str | None = None,
        format: str | None = None,
        annotations: Annotations | None = None,
    ) -> None:
        super().__init__(path, data, mime_type, annotations)
        what, family = type(self).__name__, self._family
        if mime_type is None and format is not None:
            mime_type = mimetypes.guess_type(f"x.{format}")[0] or f"{family}/{format}"
        found = mime_type or type_of(self.path, data)
        if found is None or not found.startswith(f"{family}/"):
            known = "is unknown" if found is None else f"is {found}"
            raise ValueError(f"{what}: its type {known}; give mime_type=, such as {self._example!r}")
        self.mime_type = found

    _example: ClassVar[str]


class Image(_Shown):
    __doc__ = _Shown.__doc__

    __slots__ = ()
    _family = "image"
    _example = "image/png"

    def block(self) -> ImageContent:
        data = b64encode(self.read()).decode()
        return ImageContent(data=data, mime_type=str(self.mime_type), annotations=self.annotations)


class Audio(_Shown):
    __doc__ = _Shown.__doc__

    __slots__ = ()
    _family = "audio"
    _example = "audio/wav"

    def block(self) -> AudioContent:
        data = b64encode(self.read()).decode()
        return AudioContent(data=data, mime_type=str(self.mime_type), annotations=self.annotations)


class File(Media):
    """A file in a result, as an embedded resource: text if it has a text type and is UTF-8, otherwise a blob.

    Args:
        path: of a file, which is read after the function has returned.
        data: the bytes, in place of a path; with a `name`.
        name: the name to show; that of the file by default. A client never sees the folder.
        mime_type: by default the one that belongs to the ending of the name.
        uri: by default `file:///` and the name.

    Raises:
        TypeError: neither or both of `path` and `data` were given, or one has a wrong type; or there is no name.
    """

    __slots__ = ("uri",)

    def __init__(
        self,
        path: StrPath | None = None,
        *,
        data: bytes | None = None,
        name: str | None = None,
        mime_type: str | None = None,
        uri: str | None = None,
        annotations: Annotations | None = None,
    ) -> None:
        super().__init__(path, data, mime_type, annotations)
        if name is None and self.path is not None:
            name = PurePath(self.path).name
        if name is None and uri is None:
            raise TypeError("File: bytes have no name; give name=, such as 'report.csv', or uri=")
        self.mime_type = mime_type or (name and mimetypes.guess_type(name)[0]) or "application/octet-stream"
        self.uri = uri or f"file:///{quote(name or '')}"

    def block(self) -> EmbeddedResource:
        data, mime_type = self.read(), str(self.mime_type)
        contents: TextResourceContents | BlobResourceContents | None = None
        if is_text(mime_type):
            try:
                contents = TextResourceContents(uri=self.uri, mime_type=mime_type, text=data.decode())
            except UnicodeDecodeError:
                contents = None
        if contents is None:
            contents = BlobResourceContents(uri=self.uri, mime_type=mime_type, blob=b64encode(data).decode())
        return EmbeddedResource(resource=contents, annotations=self.annotations)


def media_block(media: Media) -> MediaBlock:
    """Return the content block of something that a function returned. Raises `FileToRead` in the event loop for a file."""
    if media.path is not None and not may_read.get():
        raise FileToRead
    return media.block()


def too_large() -> LimitExceeded:
    """Return the error for a file of more than `MAX_FILE` bytes."""
    return LimitExceeded(f"a file in the result has more than {MAX_FILE} bytes, which is the limit")


def type_of(path: str | None, data: bytes | None) -> str | None:
    """Return the MIME type that the name of a file or the first bytes show, or None."""
    if path is not None:
        return mimetypes.guess_type(path)[0]
    assert data is not None
    if data.startswith(b"RIFF"):
        return RIFF_FORMATS.get(data[8:12])
    return next((mime_type for signature, mime_type in SIGNATURES if data.startswith(signature)), None)


def is_text(mime_type: str) -> bool:
    """Return whether contents of this type are text."""
    mime_type = mime_type.lower()
    return mime_type.startswith("text/") or mime_type.endswith(("/json", "+json", "/xml", "+xml"))
