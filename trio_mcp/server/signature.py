"""Converting a function's signature to the schema of its arguments, and a call's arguments to keyword arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from types import NoneType, UnionType
from typing import Annotated, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ..protocol.schema.json_schema import Schema
from ..types import JsonObject
from ..types.fail_fast import fail_fast_validator
from .context import Context
from .forms import MAX_PROBLEMS, error_summary
from .provide import provide_of
from .schema_checks import checked


@dataclass(frozen=True, slots=True)
class Mirrored:
    """Mark an argument that modern clients repeat in the HTTP header `Mcp-Param-<name>`, for proxies (M-HTTP-6).

    Strings, integers and booleans only: `region: Annotated[str, Mirrored("Region")]`.
    """

    name: str

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(core_schema), "x-mcp-header": self.name}


class ArgumentsModel(BaseModel):
    """The base of the models made from signatures. It rejects unknown arguments, so that a model's typo is not ignored."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a function takes from a request.

    Attributes:
        schema: JSON Schema of the arguments.
        context: the name of the parameter that takes the `Context`.
        returns: the return annotation, or `inspect.Signature.empty`.
        bind: returns validated keyword arguments. Raises `ValueError` if an argument is wrong, missing or unknown; the message
            names each, and says why. Raises `DearCheck` if that takes long to find out.
    """

    schema: JsonObject
    context: str | None
    returns: object
    bind: Callable[[JsonObject], dict[str, object]]

    @property
    def names(self) -> set[str]:
        """The names of the arguments."""
        properties = self.schema.get("properties")
        return set(properties) if isinstance(properties, dict) else set()


class Parameters(NamedTuple):
    """The parameters of a function: those that take arguments, the one for the context, and the return annotation."""

    arguments: tuple[inspect.Parameter, ...]
    context: str | None
    returns: object


def parameters_of(function: Callable[..., object]) -> Parameters:
    """Return the parameters in a function's signature.

    Raises:
        TypeError: it cannot be called with named JSON arguments; the message names the parameter.
    """
    hints = get_type_hints(function, include_extras=True)
    context: str | None = None
    arguments: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        # A parameter without an annotation is a string: most arguments are, and a schema without a type helps no model.
        annotation = hints.get(name, str)
        if provide_of(annotation, f"{function.__qualname__}: the parameter {name!r}") is not None:
            continue
        if is_context(annotation):
            context = name
            continue
        if any(map(is_context, get_args(annotation))):
            raise TypeError(f"{function.__qualname__}: {name!r} is a context or none: write `{name}: Context`")
        # Both are mistakes that would otherwise appear as an argument that every model has to invent.
        if name in ("self", "cls") or (name == "ctx" and name not in hints):
            hint = "annotate it as `ctx: Context`" if name == "ctx" else "register a bound method, or a function"
            raise TypeError(f"{function.__qualname__}: the parameter {name!r} cannot be an argument: {hint}")
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{function.__qualname__}: the parameter {name!r} must be an ordinary named parameter")
        arguments.append(parameter.replace(annotation=annotation))
    return Parameters(tuple(arguments), context, hints.get("return", inspect.Signature.empty))


def signature_arguments(function: Callable[..., object]) -> Arguments:
    """Return the arguments that a function's signature describes. Raises `TypeError` as `parameters_of` does."""
    parameters, context, returns = parameters_of(function)
    fields: dict[str, object] = {}
    names: dict[str, str] = {}
    for parameter in parameters:
        # A model cannot have a field named `json` or `_x`, and a function may well have such a parameter. An alias can be
        # anything.
        field = f"argument_{len(fields)}"
        name = names[field] = parameter.name
        fields[field] = (
            Annotated[parameter.annotation, Field(alias=name, title=name.replace("_", " ").strip().title())],
            ... if parameter.default is parameter.empty else parameter.default,
        )
    try:
        model: type[ArgumentsModel] = create_model(function.__name__, __base__=ArgumentsModel, **fields)  # type: ignore[call-overload]
        schema: JsonObject = model.model_json_schema(by_alias=True)
        validator = fail_fast_validator(model)
    except PydanticUserError as error:
        raise TypeError(f"{function.__qualname__}: {unsupported_parameters(parameters)}") from error
    # Both are the function's own, and a listing has a place for them elsewhere.
    schema.pop("title", None)
    schema.pop("description", None)

    known = frozenset(names.values())

    def bind(arguments: JsonObject) -> dict[str, object]:
        try:
            values = validator.validate_python(without_most_unknown(arguments, known)).__dict__
        except ValidationError as error:
            raise ValueError(error_summary(error)) from None
        return {name: values[field] for field, name in names.items()}

    return Arguments({"type": "object", "properties": {}, **schema}, context, returns, bind)


def without_most_unknown(arguments: JsonObject, known: AbstractSet[str]) -> JsonObject:
    """Return the arguments with at most `MAX_PROBLEMS` unknown ones: each becomes an error, and no more are shown."""
    if len(arguments) <= len(known) + MAX_PROBLEMS:
        return arguments
    unknown = islice((name for name in arguments if name not in known), MAX_PROBLEMS)
    kept = known | set(unknown)
    return {name: value for name, value in arguments.items() if name in kept}


def unsupported_parameters(parameters: Sequence[inspect.Parameter]) -> str:
    """Return which of the parameters has a type that JSON Schema cannot describe."""
    # Pydantic's error is about the whole model and does not name the field, so each is tried alone.
    for parameter in parameters:
        try:
            TypeAdapter(cast("type[object]", parameter.annotation)).json_schema()
        except PydanticUserError:
            kind = inspect.formatannotation(parameter.annotation)
            return (
                f"the parameter {parameter.name!r} has the type {kind}, which JSON cannot represent;"
                " use a pydantic model, a dataclass or a plain type"
            )
    return "the parameters cannot be described by a JSON Schema"


def schema_arguments(function: Callable[..., object], schema: JsonObject) -> Arguments:
    """Return the arguments that a JSON Schema describes; the function gets them in one parameter, as a dict.

    Raises:
        TypeError: the function does not take them in one parameter.
        ValueError: it is not a JSON Schema of an object; the message says what is wrong.
    """
    parameters, context, returns = parameters_of(function)
    if len(parameters) != 1:
        raise TypeError(f"{function.__qualname__}: with an input_schema it takes all arguments in one parameter")
    if schema.get("type") != "object":
        found = f"not {schema['type']!r}" if "type" in schema else "and it is missing"
        raise ValueError(f'input_schema: its "type" has to be "object", since arguments are one, {found}')
    compiled, name = Schema.compile(schema, "input_schema"), parameters[0].name

    def bind(arguments: JsonObject) -> dict[str, object]:
        def bound(problem: str | None) -> dict[str, object]:
            if problem is not None:
                raise ValueError(problem)
            return {name: arguments}

        return checked(compiled, arguments, bound)

    return Arguments(schema, context, returns, bind)


def is_context(annotation: object) -> bool:
    """Return whether an annotation is `Context`, or `Context | None`, for a function that is also called without one."""
    origin = get_origin(annotation) or annotation
    if origin in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not NoneType]
        return all(map(is_context, members))
    return isinstance(origin, type) and issubclass(origin, Context)
