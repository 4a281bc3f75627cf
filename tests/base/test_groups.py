"""Taking exception groups apart: what is found, and what an error looks like to the code that gets it."""

from __future__ import annotations

import gc

import pytest
import trio

from trio_mcp.base.groups import (
    UnwrappedErrors,
    cause_chain,
    first_leaf,
    leaf_exceptions,
    single_exception,
    split_group,
    unwrap,
    without,
)

FIRST, SECOND, THIRD = ValueError("first"), KeyError("second"), OSError("third")


def nested() -> ExceptionGroup[Exception]:
    return ExceptionGroup("outer", [ExceptionGroup("inner", [FIRST, SECOND]), THIRD])


async def cancelled_error() -> trio.Cancelled:
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as error:  # noqa: ASYNC103
            return error  # noqa: ASYNC104
    raise AssertionError


def test_a_bare_error_is_of_the_kind_or_is_the_rest() -> None:
    assert split_group(FIRST, ValueError) == (FIRST, None)
    assert split_group(FIRST, KeyError) == (None, FIRST)
    assert split_group(None, KeyError) == (None, None)
    assert without(FIRST, ValueError) is None
    assert without(FIRST, KeyError) is FIRST


async def test_cancellations_are_split_from_failures_however_deep() -> None:
    cancelled = await cancelled_error()
    mixed = BaseExceptionGroup("", [BaseExceptionGroup("", [cancelled, FIRST]), cancelled])
    found, rest = split_group(mixed, trio.Cancelled)
    assert found is not None
    assert rest is not None
    assert set(leaf_exceptions(found)) == {cancelled}
    assert list(leaf_exceptions(rest)) == [FIRST]
    assert isinstance(rest, ExceptionGroup)
    assert without(BaseExceptionGroup("", [cancelled]), trio.Cancelled) is None


def test_the_leaves_come_in_order() -> None:
    assert list(leaf_exceptions(nested())) == [FIRST, SECOND, THIRD]
    assert list(leaf_exceptions(FIRST)) == [FIRST]


def test_one_level_is_unwrapped_and_no_group_of_the_callers_own() -> None:
    own = ExceptionGroup("own", [FIRST])
    assert unwrap(ExceptionGroup("nursery", [own])) is own
    assert unwrap(FIRST) is FIRST
    several = nested()
    assert unwrap(several) is several


def test_a_single_exception_is_found_however_deep() -> None:
    assert single_exception(ExceptionGroup("", [ExceptionGroup("", [FIRST])])) is FIRST
    several = nested()
    assert single_exception(ExceptionGroup("", [several])) is several
    assert single_exception(FIRST) is FIRST


def test_the_first_leaf_represents_its_group() -> None:
    assert first_leaf(nested()) is FIRST
    assert first_leaf(FIRST) is FIRST


def test_causes_are_followed_through_groups_and_hidden_contexts() -> None:
    with pytest.raises(RuntimeError) as caught:
        hide(nested())
    assert list(cause_chain(caught.value)) == [caught.value, FIRST]


def hide(error: ExceptionGroup[Exception]) -> None:
    """Raise another error instead, as libraries do that hide the first one."""
    try:
        raise error
    except ExceptionGroup:
        raise RuntimeError("last") from None


def test_an_explicit_cause_goes_before_the_context() -> None:
    error = RuntimeError("last")
    error.__cause__ = SECOND
    error.__context__ = THIRD
    assert list(cause_chain(error)) == [error, SECOND]


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
def test_errors_that_end_a_process_are_leaves_too(error: BaseException) -> None:
    assert list(leaf_exceptions(BaseExceptionGroup("", [error, FIRST]))) == [error, FIRST]


def raised_through(error: BaseException) -> BaseException:
    """Return what leaves the block in which an error is raised."""
    try:
        with UnwrappedErrors():
            raise error
    except BaseException as left:  # noqa: BLE001
        return left


def test_a_single_error_leaves_without_its_group_and_with_its_own_context() -> None:
    error = ValueError("in a task")
    assert raised_through(ExceptionGroup("nursery", [error])) is error
    assert error.__context__ is None
    error.__context__ = SECOND
    assert raised_through(ExceptionGroup("nursery", [error])) is error
    assert error.__context__ is SECOND


def test_other_errors_leave_unchanged() -> None:
    several = nested()
    assert raised_through(several) is several
    assert raised_through(FIRST) is FIRST
    with UnwrappedErrors():
        pass


async def test_an_unwrapped_error_of_a_nursery_leaves_no_reference_cycle() -> None:
    async def fail() -> None:
        raise CustomError

    async def run() -> None:
        with UnwrappedErrors():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail)

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(CustomError):
            await run()
        assert [each for each in gc.get_objects() if isinstance(each, CustomError)] == []
    finally:
        gc.enable()


class CustomError(Exception):
    """An error that only this file raises."""
