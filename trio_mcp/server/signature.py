"""From a function's signature to the schema of its arguments, and from a call's arguments to keyword arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from ..types import JsonObject
from .context import Context
from .forms import explained

__all__ = ["Signature", "read_signature"]


class Arguments(BaseModel):
    """The base of the models made from signatures: unknown arguments are refused."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class Signature:
    """The arguments a function takes from a call.

    Attributes:
        schema: their JSON Schema.
        context: the name of the parameter that takes the `Context`, or None.
        returns: the return annotation, or `inspect.Signature.empty`.
    """

    __slots__ = ("_model", "_names", "context", "returns", "schema")

    def __init__(self, model: type[Arguments], names: dict[str, str], context: str | None, returns: object) -> None:
        self._model = model
        self._names = names
        self.context = context
        self.returns = returns
        self.schema = argument_schema(model)

    def bind(self, arguments: JsonObject) -> dict[str, object]:
        """Validated keyword arguments.

        Raises:
            ValueError: the message names each argument that is wrong, missing or unknown, and why.
        """
        try:
            validated = self._model.model_validate(arguments)
        except ValidationError as error:
            raise ValueError(explained(error)) from None
        values = validated.__dict__
        return {name: values[field] for field, name in self._names.items()}


def read_signature(function: Callable[..., object]) -> Signature:
    """Read a tool function's signature.

    Raises:
        TypeError: it cannot be called with named JSON arguments; the message says which parameter is in the way.
    """
    hints = get_type_hints(function, include_extras=True)
    context: str | None = None
    fields: dict[str, object] = {}
    names: dict[str, str] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = hints.get(name, str)
        if is_context(annotation):
            context = name
            continue
        if name in ("self", "cls") or (name == "ctx" and name not in hints):
            hint = "annotate it as `ctx: Context`" if name == "ctx" else "offer a bound method, or a function"
            raise TypeError(f"{function.__qualname__}: the parameter {name!r} cannot be an argument: {hint}")
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{function.__qualname__}: the parameter {name!r} must be an ordinary named parameter")
        default = ... if parameter.default is parameter.empty else parameter.default
        field = f"argument_{len(fields)}"  # a model cannot have a field named `json` or `_x`; its alias can be anything
        names[field] = name
        fields[field] = (
            Annotated[annotation, Field(alias=name, title=name.replace("_", " ").strip().title())],
            default,
        )
    model = create_model(function.__name__, __base__=Arguments, **fields)  # type: ignore[call-overload]
    return Signature(model, names, context, hints.get("return", inspect.Signature.empty))


def argument_schema(model: type[Arguments]) -> JsonObject:
    schema: JsonObject = model.model_json_schema(by_alias=True)
    schema.pop("title", None)
    schema.pop("description", None)
    return {"type": "object", "properties": {}, **schema}


def is_context(annotation: object) -> bool:
    origin = get_origin(annotation) or annotation
    return isinstance(origin, type) and issubclass(origin, Context)
