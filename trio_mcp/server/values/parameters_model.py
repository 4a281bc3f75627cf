"""A type whose members are the arguments of a tool: a pydantic model, a dataclass or a TypedDict."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import cast, get_type_hints

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import SchemaError, SchemaValidator
from typing_extensions import is_typeddict

from ... import server
from ...base.checks import signature_of
from ...types import JsonObject
from ...types.base import fail_fast_validator
from .callables import meant_arguments
from .schema_checks import MAX_PROBLEMS, error_path, error_summary
from .schemas import PlainSchema, UnknownReference, inlined
from .signature import Arguments, unknown_pattern
from .step_results import return_hint


@dataclass(frozen=True, slots=True)
class ParametersModel:
    """The schema of a type, and how to make an instance of arguments.

    Attributes:
        rejects_unknown: arguments that the type does not name are an error. They are unless its `extra` setting says otherwise.
    """

    schema: JsonObject
    _validator: SchemaValidator
    _names: frozenset[str]
    rejects_unknown: bool
    kept: str | None
    """Why the schema keeps `$ref`; None if it has none."""

    def read(self, arguments: JsonObject) -> object:
        """Return an instance.

        Raises:
            ValueError: an argument is wrong, missing or unknown; the message names each, and says why.
        """
        if self.rejects_unknown and (unknown := arguments.keys() - self._names):
            meant = server.other_names.meant
            named = [name for name in arguments if name in unknown][:MAX_PROBLEMS]
            raise ValueError(
                "; ".join(
                    f"{error_path((name,))}: Extra inputs are not permitted{meant(name, self._names)}" for name in named
                )
            )
        try:
            return cast("object", self._validator.validate_python(arguments))
        except ValidationError as error:
            as_meant = meant_arguments(arguments, self.schema)
            if as_meant is arguments:
                raise ValueError(error_summary(error)) from None
        return self.read(as_meant)

    def arguments_of(self, function: Callable[..., object]) -> Arguments:
        """Return what a function takes: an instance, and a context. Raises `TypeError` if it takes something else."""
        name, context = parameter_names(function)
        returns = return_hint(function)
        return Arguments(self.schema, context, returns, lambda arguments: {name: self.read(arguments)}, self.kept)


def parameters_model(model: object) -> ParametersModel:
    """Return what a type says about the arguments of a tool.

    Raises:
        TypeError: it is neither a pydantic model nor a dataclass nor a TypedDict, or JSON cannot represent a member.
    """
    name = getattr(model, "__name__", repr(model))
    is_model = isinstance(model, type) and issubclass(model, BaseModel)
    if not (is_model or (isinstance(model, type) and is_dataclass(model)) or is_typeddict(model)):
        raise TypeError(
            f"parameters() takes a pydantic model, a dataclass or a TypedDict, as a class, not {model!r:.80}"
        )
    kind = cast("type[object]", model)
    try:
        generated: JsonObject = TypeAdapter(kind).json_schema(by_alias=True, schema_generator=PlainSchema)
        validator = fail_fast_validator(kind)
    except UnknownReference as error:
        raise TypeError(f"parameters({name}): {error.message}") from error
    except PydanticUserError as error:
        problem = error.message.partition("\n")[0]
        raise TypeError(f"parameters({name}): {problem}; JSON Schema has to describe every member") from error
    except SchemaError as error:
        raise TypeError(f"parameters({name}): it has {unknown_pattern(error)}") from error
    schema, kept = inlined(generated)
    if schema.get("type") != "object":
        raise TypeError(
            f"parameters({name}): arguments have names, so its JSON must be an object, not {schema.get('type')!r}"
        )
    # Both are the tool's own, and a listing has a place for them elsewhere.
    for own in ("title", "description"):
        schema.pop(own, None)
    config = config_of(kind)
    rejects_unknown = config.get("extra") is None or config["extra"] == "forbid"
    if rejects_unknown:
        # In order, so that a tool has the same listing as with a function of the same parameters.
        schema = dict(sorted({**schema, "additionalProperties": False}.items()))
    names = set(cast("dict[str, object]", schema.get("properties", {})))
    if config.get("populate_by_name") or config.get("validate_by_name"):
        names.update(get_type_hints(kind))
    return ParametersModel(
        {"type": "object", "properties": {}, **schema}, validator, frozenset(names), rejects_unknown, kept
    )


def config_of(kind: type[object]) -> Mapping[str, object]:
    """Return the pydantic settings of a type."""
    name = "model_config" if issubclass(kind, BaseModel) else "__pydantic_config__"
    return cast("Mapping[str, object]", getattr(kind, name, {}))


def parameter_names(function: Callable[..., object]) -> tuple[str, str]:
    """Return the names of the two parameters of a function, for the arguments and for the context.

    Raises:
        TypeError: it has others.
    """
    parameters = list(signature_of(function).parameters.values())
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if len(parameters) != 2 or not all(parameter.kind in named for parameter in parameters):
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(f"{name} must take two parameters, the arguments and the context: `def {name}(params, ctx)`")
    return parameters[0].name, parameters[1].name
