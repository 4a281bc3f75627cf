"""JSON to models: what a peer wrote, as the types say it; and what is made of it where a peer wrote something odd.

The strict way is tried first, and is all that most values need. Where it fails, members are read as they are meant if they have
one meaning only, and a member of a list that cannot be read is left out of the list:

    {"name": "t", "title": null}                 null stands for an absent member
    {"capabilities": []}                         an empty object, as PHP writes it
    {"capabilities": {"tools": true}}            the same: the capability is declared
    {"tools": null}                              an empty list, as Go writes it
    {"requestId": 1.0}                           an integer, as languages without integers write it
    {"tools": [{"name": "a", ...}, {"name": 5}]}     the tool "a", and a `Dropped` for the other one
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar, cast, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails, SchemaValidator

from ...base.named_tuples import NamedTuple
from ...errors import RemoteProtocolError
from ...types import CallToolRequestParams, JsonObject, JsonValue, Model
from ...types.base import fail_fast_validator
from ..jsonrpc import INVALID_PARAMS
from ..strict_json import dumps

M = TypeVar("M", bound=Model)

SHOWN: Final = 64
"""Characters of a wrong value that its error shows."""

MAX_PASSES: Final = 8
"""How often a value is corrected and validated again: a container reports one wrong item at a time."""

NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})


class Dropped(NamedTuple):
    """A member of a list of a peer that was left out, since it cannot be read.

    Attributes:
        kind: what it is: "tool", "resource", "content block" and so on.
        name: its name or URI; where it has none that can be read, its place in the list.
        why: what is wrong with it.
    """

    kind: str
    name: str
    why: str


class ListMember(NamedTuple):
    """The list in a result whose items are independent of each other.

    Attributes:
        field, member: its name in Python and on the wire.
        kind: what an item is called.
        key: the member of an item that names it.
        within: the member of the result that holds the list; None if it is in the result itself.
    """

    field: str
    member: str
    kind: str
    key: str
    within: str | None = None


LISTS: Final[Mapping[str, ListMember]] = {
    "ListToolsResult": ListMember("tools", "tools", "tool", "name"),
    "ListPromptsResult": ListMember("prompts", "prompts", "prompt", "name"),
    "ListResourcesResult": ListMember("resources", "resources", "resource", "uri"),
    "ListResourceTemplatesResult": ListMember(
        "resource_templates", "resourceTemplates", "resource template", "uriTemplate"
    ),
    "ListTasksResult": ListMember("tasks", "tasks", "task", "taskId"),
    "CallToolResult": ListMember("content", "content", "content block", "type"),
    "GetPromptResult": ListMember("messages", "messages", "prompt message", "role"),
    "ReadResourceResult": ListMember("contents", "contents", "part of a resource", "uri"),
    "CompleteResult": ListMember("values", "values", "suggestion", "value", within="completion"),
}
"""By the names of the types, which are not loaded for it."""


LOSSY: Final = frozenset(("InitializeResult", "DiscoverResult", *LISTS))
"""Results of which a client leaves out any member that it need not have, by the names of the types."""

DECISIVE: Final = frozenset(("isError", "resultType"))
"""Members that decide how a result is read: without them it would mean something else."""

NAMELESS: Final[JsonObject] = {"name": "", "version": ""}

NEEDED: Final[Mapping[str | int, JsonObject]] = {"serverInfo": NAMELESS, "capabilities": {}}
"""What takes the place of a member that a server says of itself and that has to be there."""


def validated(
    model: type[M],
    value: JsonValue,
    path: str,
    written: Mapping[str, str] = NO_NAMES,
    dropped: list[Dropped] | None = None,
) -> M:
    """Return `value` as a `model`; `path` is its name in errors, for example "params".

    Args:
        written: members that the peer wrote under other names, which errors then use.
        dropped: receives the invalid members and items that were removed; with None, the value is rejected instead.

    Raises:
        RemoteProtocolError: -32602; the message names the first wrong member, as the peer wrote it, and the reason.
    """
    try:
        # Without the Python function `model_validate`, which does nothing more and costs as much as a small model.
        valid: M = model.__pydantic_validator__.validate_python(value, by_alias=True, by_name=False)
        return valid
    except ValidationError as error:
        # Its traceback would refer to this frame: a cycle.
        found: object = error.with_traceback(None)
    validator = cast("SchemaValidator", model.__pydantic_validator__)
    lost: list[Dropped] | None = [] if dropped is not None and model.__name__ in LOSSY else None
    listed = LISTS.get(model.__name__)
    if lost is not None and listed is not None and isinstance(value, dict):
        value = _without_unreadable(model, value, listed, path, written, lost)
        # The error of what remains.
        found = _attempted(validator, value)
    if isinstance(found, ValidationError):
        found = _corrected(validator, value, found, lost)
    if isinstance(found, ValidationError):
        raise _invalid(found, value, path, written)
    if dropped is not None and lost:
        dropped += lost
    return cast("M", found)


class PlainCall(NamedTuple):
    """The params of a `tools/call` that has a name, arguments and `_meta`, and nothing else. Its model is built by what needs it.

    Attributes:
        members: as they came.
    """

    name: str
    arguments: JsonObject
    members: JsonObject

    @property
    def model(self) -> CallToolRequestParams:
        """The params as every other route gets them."""
        return validated(CallToolRequestParams, self.members, "params")


PLAIN_METHOD: Final = "tools/call"


Params: TypeAlias = Model | PlainCall
"""What a request asks for; a plain call only where the route of its method takes one."""


def model_of(params: Params) -> Model:
    """Return the model of params."""
    return params.model if isinstance(params, PlainCall) else params


def _invalid(error: ValidationError, value: JsonValue, path: str, written: Mapping[str, str]) -> RemoteProtocolError:
    # Only the first: the further branches of a union fail too, and would bury it.
    first = error.errors(include_url=False, include_context=False)[0]
    where = path + _located(first["loc"], value, written)
    return RemoteProtocolError(f"{where}: {first['msg'][:200]}{_instead(first)}", code=INVALID_PARAMS)


def _instead(problem: ErrorDetails) -> str:
    """Return the wrong value for the message, if there is one and it is short."""
    given = problem["input"]
    if problem["type"] == "missing" or not isinstance(given, str | int | float | None):
        return ""
    return f", not {given[:SHOWN]!r}" if isinstance(given, str) else f", not {dumps(given).decode()[:SHOWN]}"


def _located(steps: Sequence[str | int], value: JsonValue, written: Mapping[str, str]) -> str:
    """Return the path of a member, like `.rows[3].price`."""
    located = ""
    for step in _path(steps, value):
        located += f"[{step}]" if isinstance(step, int) else f".{written.get(step, step)[:64]}"
    return located


def _path(steps: Sequence[str | int], value: JsonValue) -> list[str | int]:
    """Return the steps that lead to a member of a value, or to one that is missing."""
    # pydantic's location also has steps for branches of unions and for validators, which the peer has never seen: only those
    # that lead to a member of the value count.
    path: list[str | int] = []
    for position, step in enumerate(steps):
        if isinstance(value, dict) and isinstance(step, str) and step in value:  # noqa: SIM114
            path.append(step)
            value = value[step]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            path.append(step)
            value = value[step]
        elif isinstance(value, dict) and position == len(steps) - 1:
            path.append(str(step))
    return path


# What has one meaning only


def _corrected(
    validator: SchemaValidator, value: JsonValue, error: ValidationError, lost: list[Dropped] | None = None
) -> object:
    """Return what a value means to a validator that has rejected it; the error if it means nothing.

    Args:
        lost: gets the members without which it means something; None if none may be left out.
    """
    for _ in range(MAX_PASSES):
        before = value
        for problem in error.errors(include_url=False, include_context=False):
            path = _path(problem["loc"], value)
            replaced = _replaced(value, path, problem)
            if replaced is value and lost is not None and DECISIVE.isdisjoint(map(str, path)):
                lost.append(Dropped("member", ".".join(map(str, path)), problem["msg"][:200]))
                replaced = _left_out(value, path)
            value = replaced
        if value is before:
            break
        found = _attempted(validator, value)
        if not isinstance(found, ValidationError):
            return found
        error = found
    return error


def _attempted(validator: SchemaValidator, value: JsonValue) -> object:
    """Return a value as a model, or why it is none."""
    try:
        return validator.validate_python(value, by_alias=True, by_name=False)
    except ValidationError as error:
        return error.with_traceback(None)


def _replaced(value: JsonValue, path: Sequence[str | int], problem: ErrorDetails) -> JsonValue:
    """Return a value with another member at the end of a path; the value itself if the member has no other meaning."""
    if not path:
        return value
    step, *rest = path
    inner = cast("JsonValue", cast("Any", value)[step]) if _has(value, step) else None
    if rest:
        return value if (made := _replaced(inner, rest, problem)) is inner else _with(value, step, made)
    if not _has(value, step) or inner is not problem["input"]:
        return value
    kind = problem["type"]
    if inner is None:
        return _with(value, step, []) if kind in _LISTS_EXPECTED else _without(value, step)
    if isinstance(inner, bool) and kind in _OBJECTS_EXPECTED:
        return _with(value, step, {}) if inner else _without(value, step)
    if isinstance(inner, float) and inner.is_integer() and kind.startswith("int"):
        return _with(value, step, int(inner))
    return _with(value, step, {}) if inner == [] and kind in _OBJECTS_EXPECTED else value


def _left_out(value: JsonValue, path: Sequence[str | int]) -> JsonValue:
    """Return a value without the member at the end of a path, or the list on the way to it; a name that is needed is empty."""
    if not path:
        return value
    step, *rest = path
    if rest and isinstance(rest[0], str):
        return _with(value, step, _left_out(cast("Any", value)[step], rest))
    if step in NAMELESS:
        return _with(value, step, "")
    if step in NEEDED:
        return _with(value, step, NEEDED[step])
    return _without(value, step)


_LISTS_EXPECTED: Final = frozenset(("list_type", "iterable_type", "tuple_type"))
_OBJECTS_EXPECTED: Final = frozenset(("dict_type", "model_type", "model_attributes_type"))


def _has(value: JsonValue, step: str | int) -> bool:
    return step in value if isinstance(value, dict) else isinstance(value, list)


def _with(value: JsonValue, step: str | int, made: JsonValue) -> JsonValue:
    # The value belongs to the message, which may be read again.
    if isinstance(value, dict):
        return {**value, str(step): made}
    assert isinstance(value, list)
    return [made if index == step else each for index, each in enumerate(value)]


def _without(value: JsonValue, step: str | int) -> JsonValue:
    return {name: each for name, each in value.items() if name != step} if isinstance(value, dict) else value


# Lists whose items are independent of each other


def _without_unreadable(
    model: type[Model],
    value: JsonObject,
    listed: ListMember,
    path: str,
    written: Mapping[str, str],
    dropped: list[Dropped],
) -> JsonObject:
    """Return a result without the items of its list that cannot be read."""
    if (within := listed.within) is not None:
        holder = value.get(within)
        if not isinstance(holder, dict):
            return value
        inner = cast("type[Model]", model.model_fields[within].annotation)
        path, listed = f"{path}.{within}", listed._replace(within=None)
        return {**value, within: _without_unreadable(inner, holder, listed, path, written, dropped)}
    items = value.get(listed.member)
    if listed.member not in value and "structuredContent" in value:
        return {**value, listed.member: []}
    if not isinstance(items, list):
        return value
    validator = _item_validator(model, listed.field)
    kept: list[JsonValue] = []
    for index, item in enumerate(items):
        try:
            # One by one, so that a list in which everything is wrong takes no more than linear time.
            validator.validate_python(item, by_alias=True, by_name=False)
        except ValidationError as error:
            found = _corrected(validator, item, error.with_traceback(None))
        else:
            kept.append(item)
            continue
        if isinstance(found, ValidationError):
            name = item.get(listed.key) if isinstance(item, dict) else None
            shown = name if isinstance(name, str) and name else f"{listed.member}[{index}]"
            why = str(_invalid(found, item, f"{path}.{listed.member}[{index}]", written))
            dropped.append(Dropped(listed.kind, shown, why))
        else:
            # Validated again with the others, as what it means.
            kept.append(found.wire() if isinstance(found, Model) else cast("JsonValue", found))
    return {**value, listed.member: kept}


@cache
def _item_validator(model: type[Model], field: str) -> SchemaValidator:
    annotation: Any = model.model_fields[field].annotation
    return fail_fast_validator(get_args(annotation)[0])
