"""Converting a function's signature to the schema of its arguments, and a call's arguments to keyword arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from itertools import islice
from types import NoneType, UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PydanticUserError,
    ValidationError,
    create_model,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticUndefined, SchemaError, SchemaValidator, core_schema
from pydantic_core.core_schema import DefinitionsSchema, ModelFieldsSchema, ModelSchema

from ...base.checks import signature_of
from ...base.named_tuples import NamedTuple
from ...protocol.schema.json_schema import Schema
from ...types import JsonObject
from ...types.base import fail_fast_schema, validator_of
from ..unawaited import Reporter
from .callables import bound_names, callable_name, is_async, meant_arguments, type_hints
from .provide import provide_of
from .schema_checks import MAX_PROBLEMS, checked, error_summary
from .schemas import PlainSchema, UnknownReference, inlined, unencodable


class Mirrored(NamedTuple):
    """Mark an argument that modern clients repeat in the HTTP header `Mcp-Param-<name>`, for proxies (M-HTTP-6).

    Strings, integers and booleans only: `region: Annotated[str, Mirrored("Region")]`.
    """

    name: str

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(core_schema), "x-mcp-header": self.name}


class ArgumentsModel(BaseModel):
    """The base of the models made from signatures. It rejects unknown arguments, so that a model's typo is not ignored."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class Arguments(NamedTuple):
    """What a function takes from a request.

    Attributes:
        schema: JSON Schema of the arguments.
        context: the name of the parameter that takes the `Context`.
        returns: the return annotation, or `inspect.Signature.empty`.
        bind: returns validated keyword arguments. Raises `ValueError` if an argument is wrong, missing or unknown; the message
            names each, and says why. Raises `DeferredCheck` if that takes long to find out.
        kept: why the schema keeps `$ref`; None if it has none, or its author wrote it.
    """

    schema: JsonObject
    context: str | None
    returns: object
    bind: Callable[[JsonObject], dict[str, object]]
    kept: str | None = None

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
    """Return the parameters in a function's signature, without those that a `functools.partial` has bound.

    Raises:
        TypeError: it cannot be called with named JSON arguments; the message names the parameter.
    """
    hints, bound = type_hints(function), bound_names(function)
    where = callable_name(function)
    context: str | None = None
    arguments: list[inspect.Parameter] = []
    for name, parameter in signature_of(function).parameters.items():
        if name in bound:
            continue
        # A parameter without an annotation takes any JSON, as an untyped parameter in Python takes anything.
        annotation = hints.get(name, Any)
        if provide_of(parameter, annotation, f"{where}: the parameter {name!r}") is not None:
            continue
        if is_context(annotation):
            if context is not None:
                raise TypeError(
                    f"{where}: {context!r} and {name!r} are both annotated `Context`: a call has one, so keep one"
                )
            check_context(function, name, annotation)
            context = name
            continue
        if any(map(is_context, get_args(annotation))):
            raise TypeError(f"{where}: {name!r} is a context or something else: write `{name}: Context`")
        # Both are mistakes that would otherwise appear as an argument that every model has to invent.
        if name in ("self", "cls") or (name == "ctx" and name not in hints):
            hint = "annotate it as `ctx: Context`" if name == "ctx" else "register a bound method, or a function"
            raise TypeError(f"{where}: the parameter {name!r} cannot be an argument: {hint}")
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{where}: the parameter {name!r} must be an ordinary named parameter")
        arguments.append(parameter.replace(annotation=annotation))
    return Parameters(tuple(arguments), context, hints.get("return", inspect.Signature.empty))


def signature_arguments(function: Callable[..., object]) -> Arguments:
    """Return the arguments that a function's signature describes. Raises `TypeError` as `parameters_of` does."""
    parameters, context, returns = parameters_of(function)
    where = callable_name(function)
    fields: dict[str, object] = {}
    names: dict[str, str] = {}
    known: dict[str, str] = {}
    for parameter in parameters:
        # A model cannot have a field named `json` or `_x`, and a function may well have such a parameter. An alias can be
        # anything.
        field, wire = f"argument_{len(fields)}", argument_name(where, parameter)
        if wire in known:
            raise TypeError(f"{where}: the parameters {known[wire]!r} and {parameter.name!r} are both called {wire!r}")
        known[wire] = names[field] = parameter.name
        fields[field] = (
            Annotated[described(parameter.annotation), Field(alias=wire)],
            ... if parameter.default is parameter.empty else parameter.default,
        )
    try:
        model: type[ArgumentsModel] = create_model("Arguments", __base__=ArgumentsModel, **fields)  # type: ignore[call-overload]
        generated: JsonObject = model.model_json_schema(by_alias=True, schema_generator=PlainSchema)
        schema = fail_fast_schema(model)
    except (PydanticUserError, SchemaError) as error:
        raise TypeError(f"{where}: {unsupported_parameters(parameters)}") from error
    check_defaults(where, model, schema, dict(zip(fields, parameters, strict=True)))
    validator = validator_of(keywords_schema(schema, names))
    try:
        listed, kept = inlined(generated)
    except ValueError:
        # Its size was needed. Here the member is named that JSON cannot hold.
        raise ValueError(f"the parameters of {where}: {unencodable(generated)}") from None
    wire_names = frozenset(known)
    # Both are the function's own, and a listing has a place for them elsewhere.
    listed.pop("title", None)
    listed.pop("description", None)

    def bind(arguments: JsonObject) -> dict[str, object]:
        try:
            # Nearly no call has more.
            if len(arguments) > len(wire_names):
                arguments = without_most_unknown(arguments, wire_names)
            keywords: dict[str, object] = validator.validate_python(arguments)
            return keywords
        except ValidationError as error:
            meant = meant_arguments(arguments, listed)
            if meant is arguments:
                raise ValueError(error_summary(error, known=wire_names)) from None
        return bind(meant)

    return Arguments({"type": "object", "properties": {}, **listed}, context, returns, bind, kept)


def keywords_schema(schema: CoreSchema, names: Mapping[str, str]) -> CoreSchema:
    """Return a core schema that validates what that of a model does, and makes a dict of keyword arguments.

    No model is made for a call then, whose members would only be read into such a dict.

    Args:
        names: the names of the parameters by the fields of the model.
    """
    if schema["type"] == "definitions":
        whole = cast("DefinitionsSchema", schema)
        return core_schema.definitions_schema(keywords_schema(whole["schema"], names), whole["definitions"])
    assert schema["type"] == "model", schema["type"]
    model = cast("ModelSchema", schema)
    members = cast("ModelFieldsSchema", model["schema"])
    assert members["type"] == "model-fields", members["type"]
    fields = {
        names[field]: core_schema.typed_dict_field(
            member["schema"],
            required=member["schema"]["type"] != "default",
            validation_alias=member.get("validation_alias"),
        )
        for field, member in members["fields"].items()
    }
    return core_schema.typed_dict_schema(fields, extra_behavior="forbid", config=model.get("config"))


def described(annotation: object) -> Any:
    """Return an annotation in which a bare string describes the parameter: `Annotated[str, "The city"]`."""
    description = next((each for each in get_args(annotation)[1:] if isinstance(each, str)), None)
    if get_origin(annotation) is not Annotated or description is None:
        return annotation
    # The last description counts, so that one in a `Field` of the author, or in the default, has precedence.
    kind, *metadata = get_args(annotation)
    return Annotated[(kind, Field(description=description), *metadata)]


def argument_name(where: str, parameter: inspect.Parameter) -> str:
    """Return the name under which a call passes a parameter: its own, or the alias of its `Field`.

    Raises:
        TypeError: the alias is a path, or a choice of several.
    """
    name = parameter.name
    for field in (*get_args(parameter.annotation), parameter.default):
        if isinstance(field, FieldInfo) and (alias := field.validation_alias or field.alias) is not None:
            if not isinstance(alias, str):
                raise TypeError(
                    f"{where}: the parameter {name!r} has the alias {alias!r}; an argument has one name: "
                    f'write Field(alias="...")'
                )
            name = alias
    return name


def check_defaults(
    where: str,
    model: type[BaseModel],
    schema: CoreSchema,
    parameters: dict[str, inspect.Parameter],
) -> None:
    """Raise `TypeError` for a default that a caller could not pass.

    Args:
        schema: the core schema of `model`.
        parameters: by the field of the model that has its value.
    """
    validator: SchemaValidator | None = None
    for field, parameter in parameters.items():
        default = parameter.default.default if isinstance(parameter.default, FieldInfo) else parameter.default
        if any(default is absent for absent in (parameter.empty, PydanticUndefined, ...)):
            continue
        advice = f"`{parameter.name}: {inspect.formatannotation(parameter.annotation)} | None = None`"
        problem = f"{where}: the parameter {parameter.name!r} has the default {default!r:.80}, which"
        try:
            validator = validator or validator_of(schema)
            blank = model.model_construct()
            validator.validate_assignment(blank, field, default)
        except ValidationError as error:
            said = error.errors(include_url=False, include_input=False)[0]["msg"]
            cure = f"write {advice}" if default is None else "give it a default of its type"
            raise TypeError(f"{problem} does not match its annotation ({said}); {cure}") from None
        made = getattr(blank, field)
        # Pydantic does not validate defaults in a call, so that the function would get text where it expects a date.
        if isinstance(default, str | dict) and not isinstance(default, type(made)):
            raise TypeError(
                f"{problem} is no {inspect.formatannotation(parameter.annotation)}; write a value of that type"
            )


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
        default = ... if parameter.default is parameter.empty else parameter.default
        try:
            alone = create_model("Arguments", __base__=ArgumentsModel, argument=(parameter.annotation, default))
            alone.model_json_schema(schema_generator=PlainSchema)
        except UnknownReference as error:
            return f"the parameter {parameter.name!r}: {error.message}"
        except PydanticUserError as error:
            return f"the parameter {parameter.name!r} has the type {unsupported_type(parameter.annotation, error)}"
        except SchemaError as error:
            return f"the parameter {parameter.name!r} has {unknown_pattern(error)}"
    return "the parameters cannot be described by a JSON Schema"


def unknown_pattern(error: SchemaError) -> str:
    """Return what is wrong with a pattern that the engine of pydantic does not know, and what to write."""
    text = str(error)
    reason = text.splitlines()[-1].strip().removeprefix("error: ")
    if "regex" not in text:
        return f"a type that pydantic cannot use: {reason[:200]}"
    return f"a pattern that needs backtracking ({reason[:160]}): write one without, or check the value in the function"


def unsupported_type(annotation: object, error: PydanticUserError) -> str:
    """Return a type that pydantic cannot use, why, and what to write."""
    why = "JSON cannot represent; use a pydantic model, a dataclass or a plain type"
    # The only one of its codes where the author has done nothing wrong and the cure is one import.
    if error.code == "typed-dict-version":
        why = "pydantic can read on Python 3.12 and later only; import TypedDict from typing_extensions"
    return f"{inspect.formatannotation(annotation)}, which {why}"


def schema_arguments(function: Callable[..., object], schema: JsonObject) -> Arguments:
    """Return the arguments that a JSON Schema describes; the function gets them in one parameter, as a dict.

    Raises:
        TypeError: the function does not take them in one parameter.
        ValueError: it is not a JSON Schema of an object; the message says what is wrong.
    """
    parameters, context, returns = parameters_of(function)
    if len(parameters) != 1:
        raise TypeError(f"{callable_name(function)}: with an input_schema it takes all arguments in one parameter")
    if schema.get("type") != "object":
        found = f"not {schema['type']!r}" if "type" in schema else "and it is missing"
        raise ValueError(
            f'{callable_name(function)}: input_schema: its "type" has to be "object", since arguments are one, {found}'
        )
    compiled, name = Schema.compile(schema, f"{callable_name(function)}: input_schema"), parameters[0].name

    def bind(arguments: JsonObject) -> dict[str, object]:
        # Before the check, which may be made in a thread: no argument that is changed would be valid.
        arguments = meant_arguments(arguments, schema)

        def bound(problem: str | None) -> dict[str, object]:
            if problem is not None:
                raise ValueError(problem)
            return {name: arguments}

        return checked(compiled, arguments, bound)

    return Arguments(schema, context, returns, bind)


def check_context(function: Callable[..., object], name: str, annotation: object) -> None:
    """Raise `TypeError` if an async function takes the context of a plain one: type checkers would miss each `await`."""
    if is_async(function) and getattr(get_origin(annotation) or annotation, "_waits", False):
        raise TypeError(
            f"{callable_name(function)}: an async function awaits the methods of its context: write `{name}: Context`"
        )


def is_context(annotation: object) -> bool:
    """Return whether an annotation is `Context`, or `Context | None`, for a function that is also called without one."""
    origin = get_origin(annotation) or annotation
    if origin in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not NoneType]
        return all(map(is_context, members))
    # Its base class, because `Context` is above this module: it makes tools for a model out of functions.
    return isinstance(origin, type) and issubclass(origin, Reporter)
