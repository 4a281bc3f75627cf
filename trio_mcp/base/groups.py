"""Taking exception groups apart.

A nursery wraps whatever its tasks raise in an `ExceptionGroup`, also a single error, and it mixes the `trio.Cancelled` of the
tasks that it cancelled with the errors of those that failed. The code base asks the same few questions of such a group, and
asks them here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import overload

# This module is on floor 0, so that every package may use it, and floor 0 does not load Trio (the protocol is sans I/O, and
# a fresh interpreter checks it). That is why `split_group` takes the type of the cancellation instead of knowing it.
#
# Two rules for callers, because an exception holds its traceback, which holds frames, which hold locals:
# - raise what these functions return *after* the `except` block has ended. Inside of it, the error gets the group as its
#   `__context__`, and the user reads the wrapper before the cause. `UnwrappedErrors` does both for a nursery's single error;
# - do not give the half that you drop a name. `split_group(error, trio.Cancelled)[0]` leaves no local that refers to an error
#   whose traceback refers to this very frame; a pair of names does, and only the garbage collector breaks that cycle.


def split_group(
    error: BaseException | None, kind: type[BaseException]
) -> tuple[BaseException | None, BaseException | None]:
    """Return the part of `error` that is of `kind`, and the rest. Either is None where there is nothing of it."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(kind)
    return (error, None) if isinstance(error, kind) else (None, error)


def without(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    """Return `error` without the exceptions of `kind`, or None if nothing is left."""
    return split_group(error, kind)[1]


@overload
def leaf_exceptions(error: Exception) -> Sequence[Exception]: ...
@overload
def leaf_exceptions(error: BaseException) -> Sequence[BaseException]: ...
def leaf_exceptions(error: BaseException) -> Sequence[BaseException]:
    """Return the exceptions in a group that are no groups, in order and however deep; an error that is no group is its own."""
    # The overload is sound: a group that is an `Exception` can only contain instances of `Exception`.
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaf_exceptions(inner)]
    return [error]


def unwrap(error: BaseException) -> BaseException:
    """Return the only exception of a group, one level down; or `error`, if it is no group or has several.

    For a nursery that the caller does not see. One level is what the nursery added: a group that the caller's own code raised
    is inside of it, and must leave unchanged even if it has a single member.
    """
    if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        return error.exceptions[0]
    return error


class UnwrappedErrors:
    """A context manager for a nursery that the caller does not see: a single exception leaves without the nursery's group.

        with UnwrappedErrors():
            async with trio.open_nursery() as nursery:
                ...

    Its `__context__` stays what it was. A group of several exceptions leaves unchanged, as does any other exception.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None or (single := unwrap(error)) is error:
            return
        context = single.__context__
        try:
            raise single
        finally:
            # `raise` has made the group its context.
            single.__context__ = context
            # Its traceback refers to this frame: a cycle, which would keep the error's frames alive.
            del single, error, traceback, context


def single_exception(error: Exception) -> Exception:
    """Return the one exception in a group, however deep; or the first group on the way down that has several."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def first_leaf(error: BaseException) -> BaseException:
    """Return the first exception in a group, however deep: good enough for one line of text about an error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def cause_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its cause, and the cause of that; of a group its first leaf.

    `__context__` counts as a cause even where `from None` hides it from tracebacks: some libraries hide the only error that
    says what happened.
    """
    each: BaseException | None = error
    while each is not None:
        leaf = first_leaf(each)
        yield leaf
        each = leaf.__cause__ or leaf.__context__
