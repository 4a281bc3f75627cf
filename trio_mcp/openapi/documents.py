"""Reading an OpenAPI document: from a dict, a file, text in JSON or YAML, or an application that makes one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any, Final, Protocol, TypeAlias, cast, runtime_checkable

from ..checks import mistake
from ..errors import RemoteProtocolError
from ..protocol.strict_json import JsonLimits, dumps, loads
from ..regular_files import FileTooLarge, NotRegularFile, read_regular
from ..types import JsonObject, JsonValue
from .errors import OpenApiError
from .reading import Check, never_ends
from .yaml_text import parse_yaml

MAX_DEPTH: Final = 128
MAX_VALUES: Final = 2_000_000
SUPPORTED: Final = re.compile(r"3\.[01](\.|$)")


@runtime_checkable
class MakesOpenApi(Protocol):
    """An application that describes itself, as a `fastapi.FastAPI` does."""

    def openapi(self) -> Mapping[str, Any]:
        """Return the OpenAPI document."""
        ...


DocumentSource: TypeAlias = Mapping[str, Any] | str | PathLike[str] | MakesOpenApi
"""A document: as a dict, as text in JSON or YAML, the path of a file with it, or an application such as `fastapi.FastAPI`."""


def load_document(source: DocumentSource, max_bytes: int) -> JsonObject:
    """Return a document, in JSON values only.

    A string is text if it has a line break or begins with `{`, and otherwise a path.

    Raises:
        OpenApiError: it is not an OpenAPI 3.0 or 3.1 document, is too large, or cannot be parsed.
        OSError: the file cannot be read.
        TypeError: this is not a document.
        ModuleNotFoundError: it is YAML, and PyYAML is not installed.
    """
    if isinstance(source, str) and source.startswith(("http://", "https://")):
        raise OpenApiError(
            f"{source:.200} is a URL: write `await fetch_openapi({source!r:.200}, client)` for its document"
        )
    if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
        return parse_document(source.encode(), max_bytes)
    if isinstance(source, str | PathLike):
        try:
            return parse_document(read_regular(source, max_bytes), max_bytes)
        except (NotRegularFile, FileTooLarge) as error:
            limit = " (max_document)" if isinstance(error, FileTooLarge) else ""
            raise OpenApiError(f"{fspath(source):.200}: {error.strerror}{limit}") from None
    value = source.openapi() if isinstance(source, MakesOpenApi) else source
    if not isinstance(value, Mapping):
        expected = "an OpenAPI document: a dict, text, the path of a file, or an application with a method openapi()"
        raise TypeError(mistake("document", expected, source))
    return checked(with_text_keys(cast("JsonValue", dict(value))), max_bytes)


def parse_document(data: bytes, max_bytes: int, check: Check = never_ends) -> JsonObject:
    """Return the document in a text, which is JSON if it begins with `{`, and otherwise YAML. Raises as `load_document` does.

    Args:
        check: raises what ends the reading early.
    """
    if len(data) > max_bytes:
        raise OpenApiError(f"the document has more than {max_bytes} bytes (max_document)")
    limits = JsonLimits(max_bytes=max_bytes, max_depth=MAX_DEPTH, max_values=MAX_VALUES)
    if data.lstrip().startswith(b"{"):
        return checked(parsed_json(data, limits), max_bytes, encoded=data)
    return checked(parse_yaml(data, limits, check), max_bytes)


def parsed_json(data: bytes, limits: JsonLimits) -> JsonValue:
    try:
        return loads(data, limits)
    except RemoteProtocolError as error:
        raise OpenApiError(f"the document is not JSON, or exceeds a limit: {error}") from None


def with_text_keys(value: JsonValue) -> JsonValue:
    """Return a value whose objects have strings as names: an author may write the status 200 as a number.

    Raises:
        OpenApiError: it has too many values, or is nested too deep.
    """
    left = MAX_VALUES

    def copied(value: JsonValue, depth: int) -> JsonValue:
        nonlocal left
        left -= 1
        if left < 0:
            raise OpenApiError(f"the document has more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise OpenApiError(f"the document is nested deeper than {MAX_DEPTH}, or contains itself")
        if isinstance(value, Mapping):
            return {key_text(key): copied(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [copied(item, depth + 1) for item in value]
        return value

    return copied(value, 0)


def key_text(key: object) -> str:
    if isinstance(key, bool) or key is None:
        return {True: "true", False: "false", None: "null"}[key]
    return str(key)


def checked(value: JsonValue, max_bytes: int, encoded: bytes | None = None) -> JsonObject:
    """Return a value if it is a document of a supported version.

    Args:
        encoded: its text, if that was JSON.
    """
    if not isinstance(value, dict):
        raise OpenApiError("the document is not an object")
    if encoded is None:
        try:
            size = len(dumps(value, "document"))
        except ValueError as error:
            raise OpenApiError(f"the document is not JSON: {error}") from None
        if size > max_bytes:
            raise OpenApiError(f"the document has {size} bytes; the limit is {max_bytes} (max_document)")
    check_version(value)
    return value


def check_version(document: JsonObject) -> None:
    """Raise `OpenApiError` unless this is OpenAPI 3.0 or 3.1 with the usual dialect of schemas."""
    version = document.get("openapi")
    if not isinstance(version, str) or not SUPPORTED.match(version):
        found = f"OpenAPI {version}" if version is not None else None
        if "swagger" in document:
            found = f"Swagger {document['swagger']}"
        raise OpenApiError(
            f"the document is {found or 'no OpenAPI document: it has no member openapi'}; OpenAPI 3.0 and 3.1 are supported"
            + ("; convert it first" if found else "")
        )
    dialect = document.get("jsonSchemaDialect", "")
    known = ("", "https://spec.openapis.org/oas/3.1/dialect/base", "https://json-schema.org/draft/2020-12/schema")
    if not isinstance(dialect, str) or dialect.rstrip("#") not in known:
        raise OpenApiError(f"the document has schemas of the dialect {dialect!r:.200}, which is not supported")
