"""Reading an OpenAPI document: from a dict, a file, text in JSON or YAML, or an application that makes one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from os import PathLike, fspath
from typing import Any, Final, Protocol, TypeAlias, cast, runtime_checkable

from ..base.checks import mistake
from ..base.named_tuples import NamedTuple
from ..base.regular_files import FileTooLarge, NotRegularFile, read_regular
from ..errors import RemoteProtocolError
from ..protocol.json_limits import JsonLimits
from ..protocol.strict_json import dumps, loads
from ..types import JsonObject, JsonValue
from .parts import OpenApiError
from .reading import Check, never_ends

# Reading YAML as OpenAPI allows it: what JSON can say, within the limits of a JSON text.
#
# The constructors of PyYAML are not used. A few lines with aliases or merge keys are millions of values to them, a number may
# have
# as many digits as the text, and nothing ends them. Here the value is made of the events of the parser, one after another.
# What an
# alias stands for counts each time that it is named, though its value is shared.
#
#     paths: &a {x: [1, 2]}    5 values and names, which are 3 levels and 9 characters
#     other: *a                as much again

NO_YAML: Final = "the document is YAML, which PyYAML reads: `pip install 'trio-mcp[yaml]'`, or give it as JSON"

CHECK_EVERY: Final = 1024
"""Events between two checks: some milliseconds."""

# The ruleset of YAML 1.2 for JSON, which OpenAPI names. So `on` is a string, and `1_000`, `12:30` and a date are, too.
NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*+)(\.[0-9]*+)?([eE][-+]?[0-9]++)?")
TAG: Final = "tag:yaml.org,2002:"
KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
}
"""The types of a value with an explicit tag."""
MERGE: Final = "<<"


class Weight(NamedTuple):
    """What a value costs where it stands: its values and names, the characters of their texts, and how deep it is nested."""

    values: int
    size: int
    depth: int


@dataclass(slots=True)
class Open:
    """An object or a list whose end has not come.

    Attributes:
        values, size: what was counted before it.
        depth: how deep its members are nested.
        name: of the member whose value is next; None if a name is.
        merged: the members of other objects, by a merge key.
    """

    value: JsonObject | list[JsonValue]
    anchor: str | None
    values: int
    size: int
    depth: int = 0
    name: str | None = None
    merged: JsonObject = field(default_factory=dict[str, JsonValue])

    def add(self, value: JsonValue, text: str | None) -> None:
        """Add the next name or value.

        Args:
            text: that of the value, if it is a plain one.
        """
        if isinstance(self.value, list):
            self.value.append(value)
        elif self.name is not None:
            self._add_member(self.name, value)
            self.name = None
        elif text is not None:
            self.name = text
        elif isinstance(value, str):
            self.name = value
        else:
            raise OpenApiError("the name of a member is a string")

    def _add_member(self, name: str, value: JsonValue) -> None:
        assert isinstance(self.value, dict)
        if name != MERGE:
            # As in JSON: which one counts would depend on the reader.
            if name in self.value:
                raise OpenApiError(f"the name {name[:80]!r} occurs twice in one object")
            self.value[name] = value
            return
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, dict):
                raise OpenApiError(f"{MERGE} takes an object, or a list of objects")
            for each, item in source.items():
                self.merged.setdefault(each, item)

    def whole(self) -> JsonValue:
        """Return the value, now that its end has come."""
        return {**self.merged, **self.value} if self.merged and isinstance(self.value, dict) else self.value


class Reading:
    """A document while it is read."""

    def __init__(self, limits: JsonLimits) -> None:
        self._limits = limits
        self._open: list[Open] = []
        self._anchors: dict[str, tuple[JsonValue, Weight]] = {}
        self._values = self._size = 0
        self.result: JsonValue = None

    def begin(self, value: JsonObject | list[JsonValue], anchor: str | None) -> None:
        """Begin an object or a list."""
        self._count(Weight(1, 0, 1))
        self._open.append(Open(value, anchor, self._values - 1, self._size))

    def end(self) -> None:
        """End the object or the list that was begun last."""
        ended = self._open.pop()
        weight = Weight(self._values - ended.values, self._size - ended.size, 1 + ended.depth)
        self._add(ended.whole(), ended.anchor, weight)

    def scalar(self, value: JsonValue, text: str, anchor: str | None) -> None:
        """Add a string, a number, a boolean or null."""
        weight = Weight(1, len(text), 0)
        self._count(weight)
        self._add(value, anchor, weight, text)

    def alias(self, anchor: str) -> None:
        """Add the value of an anchor once more."""
        if anchor not in self._anchors:
            raise OpenApiError(f"*{anchor:.80} refers to nothing, or to what it is in")
        value, weight = self._anchors[anchor]
        self._count(weight)
        self._add(value, None, weight)

    def _add(self, value: JsonValue, anchor: str | None, weight: Weight, text: str | None = None) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, weight)
        if not self._open:
            self.result = value
            return
        owner = self._open[-1]
        owner.depth = max(owner.depth, weight.depth)
        owner.add(value, text)

    def _count(self, weight: Weight) -> None:
        self._values += weight.values
        self._size += weight.size
        limits = self._limits
        for what, measured, limit in (
            ("values and names", self._values, limits.max_values),
            ("characters", self._size, limits.max_bytes),
            ("levels", len(self._open) + weight.depth, limits.max_depth),
        ):
            if measured > limit:
                raise OpenApiError(f"there are more than {limit} {what}, with what the aliases stand for")


def parse_yaml(data: bytes, limits: JsonLimits, check: Check) -> JsonValue:
    """Return the value of a YAML text.

    Args:
        check: called after every `CHECK_EVERY` events.

    Raises:
        ModuleNotFoundError: PyYAML is not installed.
        OpenApiError: it is not YAML, says what JSON cannot say, or exceeds a limit.
    """
    try:
        # An extra, which most documents do not need.
        import yaml  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ModuleNotFoundError(NO_YAML) from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    reading, documents, line = Reading(limits), 0, 0
    try:
        for number, event in enumerate(yaml.parse(data, Loader=loader)):
            if number % CHECK_EVERY == 0:
                check()
            line = event.start_mark.line + 1 if event.start_mark else line
            match event:
                case yaml.ScalarEvent():
                    plain = event.implicit[0]
                    value = scalar_value(event.value, event.tag, limits.max_number_chars, is_plain=plain)
                    reading.scalar(value, event.value, event.anchor)
                case yaml.AliasEvent():
                    reading.alias(event.anchor or "")
                case yaml.MappingStartEvent():
                    check_tag(event.tag, "map")
                    reading.begin({}, event.anchor)
                case yaml.SequenceStartEvent():
                    check_tag(event.tag, "seq")
                    reading.begin([], event.anchor)
                case yaml.CollectionEndEvent():
                    reading.end()
                case yaml.DocumentStartEvent() if (documents := documents + 1) > 1:
                    raise OpenApiError("a second document begins")
    except OpenApiError as error:
        raise OpenApiError(f"line {line} of the document: {error}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        reason = " ".join(str(error).split())[:300]
        raise OpenApiError(f"the document is neither JSON nor YAML: {reason or type(error).__name__}") from None
    return reading.result


def scalar_value(text: str, tag: str | None, max_number_chars: int, *, is_plain: bool) -> JsonValue:
    """Return the value of a scalar; only a plain one, without quotes, may be null, a boolean or a number."""
    if tag in ("!", f"{TAG}str") or (tag is None and not is_plain):
        return text
    value = plain_value(text, max_number_chars)
    if tag is not None and not isinstance(value, KINDS.get(tag.removeprefix(TAG), ())):
        raise OpenApiError(f"the tag {tag:.80} is not that of a value of JSON, or of another one")
    return value


def plain_value(text: str, max_number_chars: int) -> JsonValue:
    """Return what a text without quotes stands for."""
    if text in NULLS:
        return None
    if text[0] in "tTfF" and (lower := text[:6].lower()) in ("true", "false"):
        return lower == "true"
    number = NUMBER.fullmatch(text) if text[0] in "-0123456789" else None
    if number is None:
        return text
    if len(text) > max_number_chars:
        raise OpenApiError(f"a number has more than {max_number_chars} characters")
    if number[1] is None and number[2] is None:
        return int(text)
    if not isfinite(value := float(text)):
        raise OpenApiError(f"the number {text:.40} is too large for a double")
    return value


def check_tag(tag: str | None, kind: str) -> None:
    """Raise `OpenApiError` for an object or a list with a tag that JSON has nothing for."""
    if tag not in (None, "!", f"{TAG}{kind}"):
        raise OpenApiError(f"the tag {tag:.80} is not that of a value of JSON, or of another one")


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
