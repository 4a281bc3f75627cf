"""From a function's signature to the schema of its arguments, and from a call's arguments to keyword arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Annotated, NamedTuple, Protocol, Union, cast, get_args, get_origin, get_type_hints

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
from .context import Context
from .forms import error_summary


class Mirrored:
    """Marks an argument that modern clients repeat in an HTTP header, `Mcp-Param-<name>`, for intermediaries (M-HTTP-6).

    Strings, integers and booleans only: `region: Annotated[str, Mirrored("Region")]`.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(core_schema), "x-mcp-header": self.name}

    def __repr__(self) -> str:
        return f"Mirrored({self.name!r})"


class ArgumentsModel(BaseModel):
    """The base of the models made from signatures: unknown arguments are refused."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class Arguments(Protocol):
    """What a function takes from a request."""

    @property
    def schema(self) -> JsonObject:
        """JSON Schema of the arguments."""
        ...

    @property
    def context(self) -> str | None:
        """The name of the parameter that takes the `Context`."""
        ...

    @property
    def returns(self) -> object:
        """The return annotation, or `inspect.Signature.empty`."""
        ...

    def bind(self, arguments: JsonObject) -> dict[str, object]:
        """Validated keyword arguments.

        Raises:
            ValueError: the message names each argument that is wrong, missing or unknown, and why.
        """
        ...


class SignatureArguments:
    """The arguments that a signature describes."""

    __slots__ = ("_model", "_names", "context", "returns", "schema")

    def __init__(
        self, model: type[ArgumentsModel], names: dict[str, str], context: str | None, returns: object
    ) -> None:
        self._model = model
        self._names = names
        self.context = context
        self.returns = returns
        self.schema = argument_schema(model)

    def bind(self, arguments: JsonObject) -> dict[str, object]:
        try:
            validated = self._model.model_validate(arguments)
        except ValidationError as error:
            raise ValueError(error_summary(error)) from None
        values = validated.__dict__
        return {name: values[field] for field, name in self._names.items()}


class SchemaArguments:
    """Arguments that a JSON Schema describes; the function takes them as they are, in one parameter."""

    __slots__ = ("_checked", "_name", "context", "returns", "schema")

    def __init__(self, schema: JsonObject, name: str, context: str | None, returns: object) -> None:
        self._checked = Schema.compile(schema, "input_schema")
        self._name = name
        self.context = context
        self.returns = returns
        self.schema = schema

    def bind(self, arguments: JsonObject) -> dict[str, object]:
        problem = self._checked.check(arguments)
        if problem is not None:
            raise ValueError(problem)
        return {self._name: arguments}


class Parameter(NamedTuple):
    """A parameter of a function that takes an argument; its default is `inspect.Parameter.empty` when it has none."""

    name: str
    annotation: object
    default: object


class Parameters(NamedTuple):
    """The parameters of a function: those that take arguments, the one for the context, and the return annotation."""

    arguments: tuple[Parameter, ...]
    context: str | None
    returns: object


def parameters_of(function: Callable[..., object]) -> Parameters:
    """Read a function's signature.

    Raises:
        TypeError: it cannot be called with named JSON arguments; the message says which parameter is in the way.
    """
    hints = get_type_hints(function, include_extras=True)
    context: str | None = None
    arguments: list[Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = hints.get(name, str)
        if is_context(annotation):
            context = name
            continue
        if any(map(is_context, get_args(annotation))):
            raise TypeError(
                f"{function.__qualname__}: the parameter {name!r} is a context or none: write `{name}: Context`"
            )
        if name in ("self", "cls") or (name == "ctx" and name not in hints):
            hint = "annotate it as `ctx: Context`" if name == "ctx" else "offer a bound method, or a function"
            raise TypeError(f"{function.__qualname__}: the parameter {name!r} cannot be an argument: {hint}")
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{function.__qualname__}: the parameter {name!r} must be an ordinary named parameter")
        arguments.append(Parameter(name, annotation, parameter.default))
    return Parameters(tuple(arguments), context, hints.get("return", inspect.Signature.empty))


def signature_arguments(function: Callable[..., object]) -> Arguments:
    """The arguments that a function's signature describes. Raises `TypeError` as `parameters_of` does."""
    taken, context, returns = parameters_of(function)
    fields: dict[str, object] = {}
    names: dict[str, str] = {}
    for name, annotation, default in taken:
        field = f"argument_{len(fields)}"  # a model cannot have a field named `json` or `_x`; its alias can be anything
        names[field] = name
        fields[field] = (
            Annotated[annotation, Field(alias=name, title=name.replace("_", " ").strip().title())],
            ... if default is inspect.Parameter.empty else default,
        )
    try:
        model = create_model(function.__name__, __base__=ArgumentsModel, **fields)  # type: ignore[call-overload]
        return SignatureArguments(model, names, context, returns)
    except PydanticUserError as error:
        raise TypeError(f"{function.__qualname__}: {unsupported_parameters(taken)}") from error


def unsupported_parameters(taken: Sequence[Parameter]) -> str:
    """Which of the parameters no JSON Schema can describe."""
    for name, annotation, _ in taken:
        try:
            TypeAdapter(cast("type[object]", annotation)).json_schema()
        except PydanticUserError:
            return (
                f"the parameter {name!r} has the type {inspect.formatannotation(annotation)}, which no JSON can be made into;"
                " use a pydantic model, a dataclass or a plain type"
            )
    return "the parameters cannot be described by a JSON Schema"


def schema_arguments(function: Callable[..., object], schema: JsonObject) -> Arguments:
    """Arguments that a JSON Schema describes.

    Raises:
        TypeError: the function does not take them in one parameter.
        ValueError: it is no JSON Schema of an object; the message says what is wrong.
    """
    taken, context, returns = parameters_of(function)
    if len(taken) != 1:
        raise TypeError(
            f"{function.__qualname__}: with an input_schema the function takes all arguments in one parameter"
        )
    if schema.get("type") != "object":
        found = f"not {schema['type']!r}" if "type" in schema else "and it is missing"
        raise ValueError(f'input_schema: its "type" has to be "object", since arguments are one, {found}')
    return SchemaArguments(schema, taken[0].name, context, returns)


def argument_schema(model: type[ArgumentsModel]) -> JsonObject:
    schema: JsonObject = model.model_json_schema(by_alias=True)
    schema.pop("title", None)
    schema.pop("description", None)
    return {"type": "object", "properties": {}, **schema}


def is_context(annotation: object) -> bool:
    """A `Context`; `Context | None` too, for a function that its author calls himself without one."""
    origin = get_origin(annotation) or annotation
    if origin in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not NoneType]
        return all(map(is_context, members))
    return isinstance(origin, type) and issubclass(origin, Context)
