"""Everything that can be registered: functions, bound methods, `functools.partial`s and objects with a `__call__` method."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, FunctionType, SimpleNamespace
from typing import Any, Final, cast, get_type_hints

from ...base.checks import annotation_text, written_annotations
from ...errors import RemoteProtocolError
from ...protocol.strict_json import loads
from ...types import JsonObject, JsonValue

NOT_RESOLVED = (
    "import or define it at the top level of the module: a name that is local to a function, or imported only under "
    "TYPE_CHECKING, is unknown at run time"
)


def plain_function(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function or method that a partial or an object calls in the end."""
    while isinstance(function, partial):
        function = function.func
    # Classes and functions have a qualified name, their instances and partials do not.
    return function if hasattr(function, "__qualname__") else call_method(function)


def call_method(instance: object) -> Callable[..., object]:
    """Return the method that runs when an object is called."""
    return cast("Callable[..., object]", getattr(instance, "__call__"))  # noqa: B004, B009


def callable_name(function: Callable[..., object]) -> str:
    """Return what a function is called in errors."""
    return plain_function(function).__qualname__


def bound_names(function: Callable[..., object]) -> frozenset[str]:
    """Return the parameters that a partial has bound by name: its author has chosen their values, so that no caller may."""
    return frozenset(function.keywords) if isinstance(function, partial) else frozenset()


def docstring_of(function: Callable[..., object]) -> str | None:
    """Return the docstring of a function; of an object, that of its `__call__` or else of its class."""
    while isinstance(function, partial):
        function = function.func
    if hasattr(function, "__qualname__"):
        return inspect.getdoc(function)
    own = inspect.getdoc(call_method(function))
    # What a method without a docstring inherits is Python's own text about `__call__`.
    return inspect.getdoc(type(function)) if own is None or own == object.__call__.__doc__ else own


def is_async(function: Callable[..., object]) -> bool:
    """Return whether calling a function makes a coroutine."""
    return inspect.iscoroutinefunction(plain_function(function)) or inspect.iscoroutinefunction(function)


def is_generator(function: Callable[..., object]) -> bool:
    """Return whether calling a function makes a generator, async or not."""
    called = plain_function(function)
    return inspect.isasyncgenfunction(called) or inspect.isgeneratorfunction(called)


def type_hints(function: Callable[..., object]) -> dict[str, object]:
    """Return the annotations of a function, with their names resolved.

    Raises:
        TypeError: one is not a type, or has a name that cannot be resolved; the message names the function and the parameter.
    """
    called = plain_function(function)
    try:
        hints: dict[str, object] = get_type_hints(called, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise TypeError(f"{callable_name(function)}: {unresolved_annotation(called, error)}") from error
    for name, annotation in hints.items():
        if isinstance(
            annotation, str | bytes | int | float | list | dict | tuple | set | BuiltinFunctionType | FunctionType
        ):
            advice = "typing.Any" if annotation is any else "a type, such as int or list[str]"
            raise TypeError(
                f"{callable_name(function)}: the annotation of {name!r} is {annotation!r:.80}, which is not a type; "
                f"write {advice}"
            )
    return hints


def unresolved_annotation(function: Callable[..., object], error: Exception) -> str:
    """Return which annotation of a function caused an error."""
    called = inspect.unwrap(function)
    names: dict[str, Any] = getattr(called, "__globals__", {})
    for name, annotation in written_annotations(called).items():
        alone = SimpleNamespace(__annotations__={name: annotation})
        try:
            get_type_hints(alone, names)
        except (NameError, AttributeError, TypeError, SyntaxError) as cause:
            return f"the annotation of {name!r} is {annotation_text(called, name):.80}, but {cause}; {NOT_RESOLVED}"
    return f"an annotation cannot be resolved: {error}; {NOT_RESOLVED}"


# Arguments that a model or a language wrote in another way than the schema has them, and that have one meaning only.

MAX_REFERENCES: Final = 8
"""How many schemas in one another are searched for one that takes a string."""


def meant_arguments(arguments: JsonObject, schema: JsonObject) -> JsonObject:
    """Return arguments as they are meant; the same object if all of them are written as the schema has them."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return arguments
    meant = {
        name: found
        for name, value in arguments.items()
        if isinstance(value, str | float) and (found := _meant(value, properties.get(name), schema)) is not value
    }
    return {**arguments, **meant} if meant else arguments


def _meant(value: str | float, schema: JsonValue, root: JsonObject) -> JsonValue:
    if not isinstance(schema, dict):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and schema.get("type") == "integer" else value
    if value.lstrip()[:1] not in ("[", "{") or admits_string(schema, root):
        return value
    try:
        parsed = loads(value.encode())
    except RemoteProtocolError:
        return value
    return parsed if isinstance(parsed, list | dict) else value


def admits_string(schema: JsonValue, root: JsonObject, depth: int = MAX_REFERENCES) -> bool:
    """Return whether a string may be valid; True if that is unknown.

    Args:
        root: has the `$defs` that references lead to.
    """
    if not isinstance(schema, dict) or depth == 0:
        return schema is not False
    kinds = schema.get("type", "string")
    if "string" not in (kinds if isinstance(kinds, list) else [kinds]):
        return False
    if "const" in schema:
        return isinstance(schema["const"], str)
    if isinstance(choices := schema.get("enum"), list):
        return any(isinstance(each, str) for each in choices)
    if isinstance(reference := schema.get("$ref"), str):
        definitions = root.get("$defs")
        target = definitions.get(reference.removeprefix("#/$defs/"), True) if isinstance(definitions, dict) else True
        return admits_string(target, root, depth - 1)
    for keyword, decide in (("anyOf", any), ("oneOf", any), ("allOf", all)):
        options = schema.get(keyword)
        if isinstance(options, list) and not decide(admits_string(each, root, depth - 1) for each in options):
            return False
    return True
