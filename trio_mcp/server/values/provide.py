"""`Provide`: the mark of a parameter whose value a function of the author makes, once for each call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from ...base.named_tuples import NamedTuple
from .callables import plain_function


class Provide(NamedTuple):
    """Mark a parameter whose value a function provides: `db: Annotated[Connection, Provide(connect)]`.

    The function is async, plain (it runs in a thread), or decorated with `@asynccontextmanager` or `@contextmanager`. It may
    take a `Context`, and parameters that are marked in the same way. It is called once for each call of the tool, prompt or
    resource, before the body; a context manager exits when the body has ended. The parameter is not an argument: clients do not
    see it.
    """

    function: Callable[..., object]


def provide_of(parameter: inspect.Parameter, annotation: object, where: str) -> Provide | None:
    """Return the mark of a parameter, or None.

    Args:
        annotation: that of the parameter, evaluated.
        where: names the parameter, for errors.

    Raises:
        TypeError: the mark is a default, or is given without calling `Provide`, or twice.
    """
    if isinstance(parameter.default, Provide):
        made = getattr(parameter.default.function, "__name__", "function")
        raise TypeError(
            f"{where}: Provide is a part of the annotation and no default: "
            f"write `{parameter.name}: Annotated[..., Provide({made})]`"
        )
    if get_origin(annotation) is not Annotated:
        return None
    marks = [each for each in get_args(annotation)[1:] if isinstance(each, Provide)]
    if Provide in get_args(annotation)[1:] or len(marks) > 1:
        raise TypeError(f"{where}: annotate it with one `Provide(function)`")
    return marks[0] if marks else None


# Whether a provider makes what the parameter that is marked with it expects, as far as their annotations tell.

MANAGERS = (AbstractAsyncContextManager, AbstractContextManager)
UNCHECKED = (Any, Union, UnionType, Annotated)
"""What an annotation may be, or begin with, that is not a class to compare. Python takes some of them for classes."""


def check_provided_type(function: object, annotation: object, where: str) -> None:
    """Raise `TypeError` if a provider makes a value of another class than its parameter expects.

    What is not annotated, or not with a class, is not checked.

    Args:
        annotation: that of the parameter, with its mark.
        where: names the parameter.
    """
    wanted, made = get_args(annotation)[0], made_type(function)
    wanted_class, made_class = class_of(wanted), class_of(made)
    if wanted_class is None or made_class is None or may_be(made_class, wanted_class):
        return
    name = getattr(function, "__qualname__", repr(function))
    raise TypeError(
        f"{where} is annotated with {inspect.formatannotation(wanted)}, and its provider {name} makes "
        f"{inspect.formatannotation(made)}"
    )


def made_type(function: object) -> object:
    """Return the annotation of what a provider makes; None if it has none."""
    if not callable(function) or inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        # Refused, for what it is.
        return None
    try:
        returns = get_type_hints(plain_function(function)).get("return")
    except (NameError, TypeError, AttributeError):
        # The type of a value need not be known at run time.
        return None
    # The decorators of contextlib keep the generator that they wrap.
    wrapped = getattr(function, "__wrapped__", None)
    is_generator = inspect.isasyncgenfunction(wrapped) or inspect.isgeneratorfunction(wrapped)
    if is_generator or (get_origin(returns) or returns) in MANAGERS:
        return next(iter(get_args(returns)), None)
    return returns


def class_of(annotation: object) -> type | None:
    """Return the class of an annotation such as `Cursor` or `list[int]`; None if it is none that can be compared."""
    kind = get_origin(annotation) or annotation
    if kind in UNCHECKED or not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return None
    return kind


def may_be(made: type, wanted: type) -> bool:
    """Return whether a value that is annotated with `made` may be of the class `wanted`."""
    # Type checkers accept these.
    if (made, wanted) in ((int, float), (int, complex), (float, complex)):
        return True
    try:
        return issubclass(made, wanted) or issubclass(wanted, made)
    except TypeError:  # such as a TypedDict
        return True
