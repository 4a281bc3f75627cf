"""`Provide`: the mark of a parameter whose value a function of the author makes, once for each call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, NamedTuple, get_args, get_origin


class Provide(NamedTuple):
    """Mark a parameter whose value a function provides: `db: Annotated[Connection, Provide(connect)]`.

    The function is async, plain (it runs in a thread), or decorated with `@asynccontextmanager` or `@contextmanager`. It may take
    a `Context`, and parameters that are marked in the same way. It is entered once for each call of the tool, prompt or resource,
    before the body, and a context manager is left when the body has ended. The parameter is not an argument: clients do not see
    it.
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
