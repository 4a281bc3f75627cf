"""Bodies of requests: JSON, forms, forms with files, text and bytes.

A file is an object: `{"data": "<base64>"}` or `{"text": "..."}`, with a `name` and a `mime_type` if they matter.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, cast

from ..base.named_tuples import NamedTuple
from ..errors import ToolError
from ..protocol.strict_json import dumps
from ..types import JsonObject, JsonValue
from .parameters import form_parts, is_json, items_of, plain
from .parts import EncodingPart, MediaTypePart, UnsupportedOperation
from .schemas import SchemaReader

BodyKind: TypeAlias = Literal["json", "multipart", "form", "text", "binary"]

FormFile: TypeAlias = tuple[str, tuple[str | None, bytes, str]]
"""A part of a multipart form: its name, and its file name, its bytes and its type."""

PREFERRED: Final[Sequence[BodyKind]] = ("json", "multipart", "form", "text", "binary")
"""The first of these that an operation takes is sent."""

FILE: Final[JsonObject] = {
    "type": "object",
    "description": "A file: its bytes in base64 as data, or its text.",
    "properties": {
        "data": {"type": "string", "contentEncoding": "base64"},
        "text": {"type": "string"},
        "name": {"type": "string"},
        "mime_type": {"type": "string"},
    },
    "oneOf": [{"required": ["data"]}, {"required": ["text"]}],
    "additionalProperties": False,
}

MAX_FILE_LEVELS: Final = 8
"""How deep arrays and alternatives are searched for files: a schema may refer to itself."""


class EncodedBody(NamedTuple):
    """A body as it is sent.

    Attributes:
        content: its bytes; None for a multipart form, which `files` has.
        content_type: None for a multipart form, whose type holds the boundary.
    """

    content: bytes | None = None
    content_type: str | None = None
    files: Sequence[FormFile] | None = None


@dataclass(frozen=True, slots=True)
class Body:
    """The body of an operation.

    Attributes:
        encodings: how the properties of a form are written.
        files: the properties of a form that are files.
    """

    media_type: str
    kind: BodyKind
    required: bool
    encodings: Mapping[str, EncodingPart] = field(default_factory=dict)
    files: frozenset[str] = frozenset()

    def encode(self, value: JsonValue) -> EncodedBody:
        """Return the body for an argument.

        Raises:
            ToolError: a file is not base64.
        """
        match self.kind:
            case "json":
                return EncodedBody(dumps(value), self.media_type)
            case "form":
                return EncodedBody(self._form(value).encode(), self.media_type)
            case "multipart":
                return EncodedBody(files=self._parts(value))
            case "text":
                return EncodedBody(plain(value).encode(), f"{self.media_type}; charset=utf-8")
            case "binary":
                _, data, mime_type = file_of("body", value)
                # The document may allow any type of a kind, as `image/*`.
                return EncodedBody(data, self.media_type if "*" not in self.media_type else mime_type)

    def _form(self, value: JsonValue) -> str:
        parts: list[str] = []
        for name, each in members_of(value):
            encoding = self.encodings.get(name, EncodingPart())
            as_json = encoding.content_type is not None and is_json(encoding.content_type)
            style = encoding.style or "form"
            explode = style == "form" if encoding.explode is None else encoding.explode
            parts += form_parts(name, dumps(each).decode() if as_json else each, style, explode=explode)
        return "&".join(parts)

    def _parts(self, value: JsonValue) -> list[FormFile]:
        parts: list[FormFile] = []
        for name, each in members_of(value):
            wanted = self.encodings.get(name, EncodingPart()).content_type
            if name in self.files:
                for item in items_of(each):
                    file_name, data, mime_type = file_of(f"body.{name}", item)
                    parts.append((name, (file_name or name, data, mime_type)))
                continue
            for item in items_of(each):
                as_json = isinstance(item, dict | list) or (wanted is not None and is_json(wanted))
                data = dumps(item) if as_json else plain(item).encode()
                parts.append((name, (None, data, wanted or ("application/json" if as_json else "text/plain"))))
        return parts


def members_of(value: JsonValue) -> Sequence[tuple[str, JsonValue]]:
    """Return the members of a form without those that are null."""
    return [(name, each) for name, each in cast("JsonObject", value).items() if each is not None]


def file_of(where: str, value: JsonValue) -> tuple[str | None, bytes, str]:
    """Return the name, the bytes and the type of a file. Raises `ToolError` if its data are not base64."""
    file = cast("Mapping[str, str]", value)
    mime_type = file.get("mime_type")
    if mime_type is not None and not all(" " <= character <= "~" for character in mime_type):
        raise ToolError(f"{where}.mime_type: it is not the name of a type, such as image/png")
    if "text" in file:
        return file.get("name"), file["text"].encode(), mime_type or "text/plain; charset=utf-8"
    try:
        data = base64.b64decode(file["data"], validate=True)
    except binascii.Error as error:
        raise ToolError(f"{where}.data: it is not base64: {error}") from None
    return file.get("name"), data, mime_type or "application/octet-stream"


def chosen_media_type(content: Mapping[str, JsonObject]) -> tuple[str, BodyKind]:
    """Return the form in which a body is sent, of all that an operation takes: JSON if it can be.

    Raises:
        UnsupportedOperation: it takes none.
    """
    kinds: list[tuple[str, BodyKind]] = [(media_type, kind_of(media_type)) for media_type in content]
    if not kinds:
        raise UnsupportedOperation("its request body has no content")
    return min(kinds, key=lambda each: PREFERRED.index(each[1]))


def kind_of(media_type: str) -> BodyKind:
    """Return how a body of a media type is written."""
    essence = media_type.partition(";")[0].strip().lower()
    if is_json(essence) or essence in ("*/*", "application/*"):
        return "json"
    if essence == "multipart/form-data":
        return "multipart"
    if essence == "application/x-www-form-urlencoded":
        return "form"
    if essence.startswith("text/") or essence.endswith(("/xml", "+xml", "/yaml")):
        return "text"
    return "binary"


def make_body(
    media_type: str, kind: BodyKind, media: MediaTypePart, schemas: SchemaReader, *, required: bool
) -> tuple[Body, JsonObject]:
    """Return how a body is sent, and the schema of its argument.

    Raises:
        UnsupportedOperation: its schema has a reference that cannot be resolved, or a form has no properties.
    """
    shown = "application/json" if "*" in media_type and kind == "json" else media_type
    if kind == "text":
        return Body(shown, kind, required), {"type": "string"}
    if kind == "binary":
        return Body(shown, kind, required), FILE
    if kind == "json":
        return Body(shown, kind, required), schemas.part(media.schema_, "request")
    form = schemas.resolved(media.schema_)
    properties = form.get("properties")
    if form.get("type", "object") != "object" or (properties is not None and not isinstance(properties, dict)):
        raise UnsupportedOperation("its request body is a form, and the schema of it is no object")
    files: dict[str, JsonValue] = {}
    if kind == "multipart":
        found = FileSchemas(schemas)
        for name, each in (properties or {}).items():
            if isinstance(each, dict) and (schema := found.find(each)) is not None:
                files[name] = schema
    schema = schemas.part({**form, "type": "object", "properties": {**(properties or {}), **files}}, "request")
    return Body(shown, kind, required, media.encoding, frozenset(files)), schema


class FileSchemas:
    """Finds the files among the properties of a form.

    Args:
        schemas: those of the document.
    """

    def __init__(self, schemas: SchemaReader) -> None:
        self._schemas = schemas
        self._known: dict[tuple[int, int], JsonObject | None] = {}
        """By the `id` of a schema of the document and the levels, since many lead to the same."""

    def find(self, schema: JsonObject, levels: int = MAX_FILE_LEVELS) -> JsonObject | None:
        """Return the schema of an argument for a property that is a file, or several; None if it is something else."""
        if levels == 0:
            return None
        key = id(schema), levels
        if key not in self._known:
            self._known[key] = self._found(self._schemas.resolved(schema), levels - 1)
        return self._known[key]

    def _found(self, found: JsonObject, levels: int) -> JsonObject | None:
        if found.get("type") == "array" and isinstance(items := found.get("items"), dict):
            item = self.find(items, levels)
            return None if item is None else {**found, "items": item}
        for composed in ("anyOf", "oneOf"):
            options = found.get(composed)
            if isinstance(options, list):
                made = [self.find(each, levels) if isinstance(each, dict) else None for each in options]
                if any(each is not None for each in made):
                    return {composed: [each or option for each, option in zip(made, options, strict=True)]}
        return file_schema(found)


def file_schema(found: JsonObject) -> JsonObject | None:
    """Return the schema of an argument for a property without `$ref` that is a file; None if it is something else."""
    is_binary = found.get("format") == "binary" or ("contentMediaType" in found and "contentEncoding" not in found)
    if not is_binary or "string" not in (
        kind := found.get("type", "string"),
        *(kind if isinstance(kind, list) else ()),
    ):
        return None
    description = found.get("description")
    return {**FILE, "description": f"{description} {FILE['description']}"} if isinstance(description, str) else FILE
