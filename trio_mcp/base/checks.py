"""Checks of the arguments that a program passes.

Each function raises where the program made the mistake, before anything runs: `TypeError` for a value of the wrong type,
`ValueError` for one out of range. The text names the option, says what to write, and shows what was given:

    port must be a whole number from 0 to 65535, not '8000'

Every check returns the value with its type, so that it can be used in an expression. None is never accepted: a caller with an
optional argument asks for None first.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import Final, TypeVar, Unpack, cast, get_args, get_origin, get_type_hints

# The signature and the annotations of a function, also if a name in them is not defined at run time.
#
# Before Python 3.14, an annotation is a value or, with `from __future__ import annotations`, a string. From 3.14 on it is
# computed
# when it is first read (PEP 649), so `inspect.signature` and `__annotations__` raise `NameError` for a name that was imported
# for
# type checkers only. The caller decides whether such a name matters.

if sys.version_info >= (3, 14):
    from annotationlib import Format, get_annotations


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """Return the signature of a function, in which annotations may be unresolved.

    Raises:
        TypeError, ValueError: as of `inspect.signature`, if there is none.
    """
    if sys.version_info >= (3, 14):
        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def written_annotations(function: object) -> Mapping[str, object]:
    """Return the annotations of a function by parameter: each a value, or a string or `ForwardRef` that is unresolved."""
    if sys.version_info >= (3, 14):
        return get_annotations(function, format=Format.FORWARDREF) if hasattr(function, "__annotate__") else {}
    annotations: Mapping[str, object] = getattr(function, "__annotations__", {})
    return annotations


def annotation_text(function: object, name: str) -> str:
    """Return an annotation as errors show it; `written_annotations` has to have it."""
    if sys.version_info >= (3, 14):
        return repr(get_annotations(function, format=Format.STRING)[name])
    return repr(written_annotations(function)[name])


# Why by hand and not by pydantic: `TypeAdapter` turns "3" and True into numbers unless it is strict, its errors name a location
# inside a model instead of the caller's keyword, and `runtime` may not load it. Anything that a *peer* sends is validated by
# the models in `types`; these checks are only for mistakes of the program on this side, so they may name the value.


T = TypeVar("T")

LIKE: Final = 0.6
"""How like two names are, from 0 to 1, of which one may be meant by the other; the default of `difflib`."""
MOST_COMPARED: Final = 8
"""How many names are compared letter by letter with one that is unknown."""
CONTROL_CHARACTERS: Final = r"[\x00-\x08\x0a-\x1f\x7f]"
"""What no value of a header has (RFC 9110, 5.5)."""


def check_int(name: str, value: object, *, least: int = 0, most: int | None = None, hint: str = "") -> int:
    """Return `value` if it is an `int` from `least` to `most`, both included.

    Args:
        hint: advice to append to the error, such as "leave it out for no limit".
    """
    expected = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"
    # `True` is an int to Python, but `outbox=True` is a mistake.
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(mistake(name, expected, value, hint))
    if value < least or (most is not None and value > most):
        raise ValueError(mistake(name, expected, value, hint))
    return value


def check_port(name: str, value: object) -> int:
    """Return `value` if it is a TCP port; 0 stands for a free one."""
    return check_int(name, value, least=0, most=65535)


def check_seconds(name: str, value: object, *, positive: bool = False, finite: bool = False, hint: str = "") -> float:
    """Return `value` if it is a duration in seconds: 0 or more, and never NaN.

    Args:
        positive: reject 0 too.
        finite: reject `math.inf`, which otherwise means no limit.
        hint: advice to append to the error.
    """
    expected = f"a {'finite ' if finite else ''}number of seconds{', more than 0' if positive else ', 0 or more'}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(mistake(name, expected, value, hint))
    # Written so that NaN fails: it compares as false with everything.
    if not (value > 0 if positive else value >= 0) or (finite and value == math.inf):
        raise ValueError(mistake(name, expected, value, hint))
    return value


def check_str(name: str, value: object) -> str:
    """Return `value` if it is a string."""
    return check_instance(name, value, str, "a string")


def check_str_mapping(name: str, value: object) -> dict[str, str]:
    """Return a copy of `value` as a dict if it maps strings to strings.

    The error shows no value of the mapping: headers and environments hold secrets.
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping of names to strings, not {type(value).__name__}")
    items = cast("Mapping[object, object]", value)
    for key, text in items.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise TypeError(f"{name} must be a mapping of names to strings; {key!r:.80} is {type(text).__name__}")
    return dict(cast("Mapping[str, str]", items))


def header_fault(value: str) -> str | None:
    """Return why no header can have this value; None if one can. HTTP libraries show the value in their errors."""
    if re.search(CONTROL_CHARACTERS, value):
        return "has a line break or another control character in it"
    return "begins or ends with a space" if value != value.strip(" \t") else None


def check_callable(name: str, value: object, expected: str = "a function") -> None:
    """Raise `TypeError` unless `value` can be called."""
    if not callable(value):
        raise TypeError(mistake(name, expected, value))


def check_sync_callback(name: str, value: object) -> None:
    """Raise `TypeError` unless `value` is a plain function: nothing awaits this callback, so an async one would never run."""
    check_callable(name, value, "a plain function")
    # An object whose `__call__` is async is not a coroutine function itself. Only the code is looked at; it is not called.
    method = getattr(type(value), "__call__", None)  # noqa: B004
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(method):
        raise TypeError(
            f"{name} must be a plain function, not an async one, because nothing awaits it; "
            "let it put what it gets into a memory channel (send_nowait), and await in a task of yours"
        )


def check_async(name: str, value: object, expected: str) -> None:
    """Raise `TypeError` unless `value` is an async function, a `partial` of one, or an object with an async `__call__`."""
    check_callable(name, value, expected)
    function = value
    while isinstance(function, partial):
        function = function.func
    method = getattr(type(function), "__call__", None)  # noqa: B004
    if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)):
        raise TypeError(mistake(name, expected, value, "write `async def`"))


def check_choice(name: str, value: object, choices: Collection[str]) -> str:
    """Return `value` if it is one of `choices`."""
    # Compared one by one: a value that cannot be hashed is a wrong value here, not another kind of error.
    if not any(value == choice for choice in choices):
        raise ValueError(mistake(name, one_of(choices), value))
    return cast("str", value)


def check_instance(name: str, value: object, kind: type[T], expected: str) -> T:
    """Return `value` if it is of `kind`; `expected` says what to write, such as "ServiceOptions(max_seconds=60)"."""
    if not isinstance(value, kind):
        raise TypeError(mistake(name, expected, value))
    return value


def check_sequence(name: str, value: object, kind: type[T], expected: str, each: str) -> Sequence[T]:
    """Return `value` if it is a sequence, but no string, and every item is of `kind`.

    Args:
        expected: what the sequence must be, with an example.
        each: what an item must be.
    """
    # A string is a sequence of strings, and `uris="a://b"` would become five URIs.
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(mistake(name, expected, value))
    for item in cast("Sequence[object]", value):
        check_instance(f"each item of {name}", item, kind, each)
    return cast("Sequence[T]", value)


def check_names(given: Iterable[str], known: Collection[str], where: str) -> None:
    """Raise `TypeError` for an option of an unknown name, and suggest the nearest one.

    Args:
        where: what has the known options, such as "Server()".
    """
    for name in given:
        if name not in known:
            # Almost all are typing errors, and a name that is dropped silently would be noticed only in production.
            advice = nearest(name, known) or f"there are {', '.join(sorted(known))}"
            raise TypeError(f"{where} has no option {name!r}: {advice}")


def check_no_options(given: Mapping[str, object], function: Callable[..., object], where: str) -> None:
    """Raise `TypeError` as `check_names` does if a function got options that it does not have.

    A function calls it that collects them only for this error: Python's own does not suggest a name before 3.13.
    """
    if given:
        check_names(given, keyword_options(function), where)


def names_options(options: type[T]) -> type[T]:
    """Let a class of options suggest a name for one that it does not have; Python's own error does that from 3.13 on."""
    init = options.__init__

    @wraps(init)
    def named(self: T, *args: object, **given: object) -> None:
        try:
            init(self, *args, **given)
        except TypeError:
            check_names(given, list(signature_of(init).parameters)[1:], f"{options.__name__}()")
            raise

    options.__init__ = named  # type: ignore[method-assign, assignment]
    return options


def keyword_options(function: Callable[..., object]) -> list[str]:
    """Return the names of the keyword-only parameters of a function."""
    return [each.name for each in signature_of(function).parameters.values() if each.kind is each.KEYWORD_ONLY]


def check_keywords(given: Iterable[str], function: Callable[..., object], where: str) -> None:
    """Raise `TypeError` as `check_names` does if a function with typed `**options` got one that it does not have."""
    check_names(given, keyword_names(function) or (), where)


def keyword_names(function: Callable[..., object]) -> list[str] | None:
    """Return the names of a function's keyword arguments, with those of a `**options: Unpack[...]`; None if it takes any."""
    names, parameters = keyword_options(function), signature_of(function).parameters.values()
    rest = next((each.name for each in parameters if each.kind is each.VAR_KEYWORD), None)
    if rest is None:
        return names
    while isinstance(function, partial):
        function = function.func
    hint = get_type_hints(function).get(rest)
    return [*names, *get_args(hint)[0].__annotations__] if get_origin(hint) is Unpack else None


def missing(owner: str, name: str, known: Mapping[str, str]) -> AttributeError:
    """Return the error for an attribute that does not exist.

    Args:
        known: what to write instead, by the names that other libraries have.
    """
    advice = f": {known[name]}" if name in known else ""
    return AttributeError(f"{owner!r} object has no attribute {name!r}{advice}", name=name)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question with the known name that is most like this one; empty if none is."""
    found = nearest_name(name, known)
    return "" if found is None else f"do you mean {found!r}?"


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like this one; None if none is.

    It takes a few microseconds for each name, and more for long ones: bound what a peer controls.
    """
    import difflib  # noqa: PLC0415  needed for errors only

    matcher = difflib.SequenceMatcher(b=name)
    likely = list[tuple[float, str]]()
    for each in known:
        matcher.set_seq1(each)
        if matcher.real_quick_ratio() >= LIKE and (bound := matcher.quick_ratio()) >= LIKE:
            likely.append((bound, each))
    best, found = LIKE, None
    # The ratio takes time by the square of the length, so a peer cannot ask for that of all names.
    for bound, each in sorted(likely, reverse=True)[:MOST_COMPARED]:
        matcher.set_seq1(each)
        if bound >= best and (ratio := matcher.ratio()) >= best:
            best, found = ratio, each
    return found


def one_of(choices: Collection[str]) -> str:
    """Return the choices as English: `"a", "b" or "c"`."""
    *others, last = (f'"{choice}"' for choice in choices)
    return f"{', '.join(others)} or {last}" if others else last


def mistake(name: str, expected: str, value: object, hint: str = "") -> str:
    """Return the text of an error about one argument."""
    # 80 characters: a repr may be megabytes, and the error is read in a terminal.
    return f"{name} must be {expected}, not {value!r:.80}{'; ' if hint else ''}{hint}"
