"""Reading YAML as OpenAPI allows it: what JSON can say, within the limits of a JSON text.

The constructors of PyYAML are not used. A few lines with aliases or merge keys are millions of values to them, a number may have
as many digits as the text, and nothing ends them. Here the value is made of the events of the parser, one after another. What an
alias stands for counts each time that it is named, though its value is shared.

    paths: &a {x: [1, 2]}    5 values and names, which are 3 levels and 9 characters
    other: *a                as much again
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, NamedTuple

from ..protocol.json_limits import JsonLimits
from ..types import JsonObject, JsonValue
from .errors import OpenApiError
from .reading import Check

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
