"""The checks of arguments: which values pass, which kind of error a wrong one raises, and what its text names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from naming import naming

from trio_mcp.base.checks import (
    check_callable,
    check_choice,
    check_instance,
    check_int,
    check_port,
    check_seconds,
    check_sequence,
    check_str,
    check_str_mapping,
    check_sync_callback,
)

NAN = math.nan


async def coroutine_function() -> None: ...


class AsyncCall:
    async def __call__(self) -> None: ...


class ExplodingHash:
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "<unhashable>"


@pytest.mark.parametrize(
    ("check", "options", "value"),
    [
        (check_int, {}, 0),
        (check_int, {"least": -3}, -3),
        (check_int, {"least": 1, "most": 2}, 2),
        (check_int, {}, 10**30),
        (check_port, {}, 0),
        (check_port, {}, 65535),
        (check_seconds, {}, 0),
        (check_seconds, {}, 0.0),
        (check_seconds, {}, math.inf),
        (check_seconds, {"positive": True}, 5e-324),
        (check_seconds, {"positive": True, "finite": True}, 10**400),  # an int has no infinity
        (check_str, {}, ""),
        (check_str_mapping, {}, {"a": "b"}),
        (check_choice, {"choices": ("a", "b")}, "b"),
        (check_instance, {"kind": int, "expected": "an int"}, 3),
        (check_sequence, {"kind": int, "expected": "ints", "each": "an int"}, (1, 2)),
        (check_sequence, {"kind": int, "expected": "ints", "each": "an int"}, []),
    ],
)
def test_a_right_value_is_returned(check: Callable[..., Any], options: dict[str, Any], value: Any) -> None:
    assert check("option", value, **options) == value


@pytest.mark.parametrize(
    ("check", "options", "value", "kind"),
    [
        (check_int, {}, True, TypeError),
        (check_int, {}, 1.0, TypeError),
        (check_int, {}, "1", TypeError),
        (check_int, {}, None, TypeError),
        (check_int, {}, -1, ValueError),
        (check_int, {"least": 1}, 0, ValueError),
        (check_int, {"least": 1, "most": 2}, 3, ValueError),
        (check_port, {}, 65536, ValueError),
        (check_port, {}, False, TypeError),
        (check_seconds, {}, True, TypeError),
        (check_seconds, {}, "3", TypeError),
        (check_seconds, {}, None, TypeError),
        (check_seconds, {}, 1j, TypeError),
        (check_seconds, {}, -0.001, ValueError),
        (check_seconds, {}, NAN, ValueError),
        (check_seconds, {}, -math.inf, ValueError),
        (check_seconds, {"positive": True}, 0, ValueError),
        (check_seconds, {"positive": True}, NAN, ValueError),
        (check_seconds, {"finite": True}, math.inf, ValueError),
        (check_str, {}, b"", TypeError),
        (check_choice, {"choices": ("a", "b")}, "c", ValueError),
        (check_choice, {"choices": ("a", "b")}, ExplodingHash(), ValueError),
        (check_callable, {}, 3, TypeError),
        (check_sync_callback, {}, 3, TypeError),
        (check_instance, {"kind": int, "expected": "an int"}, "3", TypeError),
        (check_sequence, {"kind": str, "expected": "texts", "each": "a text"}, "abc", TypeError),
        (check_sequence, {"kind": str, "expected": "texts", "each": "a text"}, {"a"}, TypeError),
    ],
)
def test_a_wrong_value_is_named_and_shown(
    check: Callable[..., Any], options: dict[str, Any], value: Any, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as caught:
        check("option", value, **options)
    text = str(caught.value)
    assert text.startswith("option must be ")
    assert repr(value) in text


def test_the_text_says_what_to_write() -> None:
    with pytest.raises(ValueError, match=naming("port", 0, 65535, "-1")):
        check_port("port", -1)
    with pytest.raises(ValueError, match=naming("n", 1, 0, "leave it out for no limit")):
        check_int("n", 0, least=1, hint="leave it out for no limit")
    with pytest.raises(ValueError, match=naming("wait", "more than 0", "nan")):
        check_seconds("wait", NAN, positive=True)
    with pytest.raises(ValueError, match=naming("wait", "0 or more", "inf")):
        check_seconds("wait", math.inf, finite=True)
    with pytest.raises(ValueError, match=naming("scope", '"a"', '"b"', '"c"', 3)):
        check_choice("scope", 3, ("a", "b", "c"))


def test_a_long_value_is_cut() -> None:
    with pytest.raises(TypeError) as caught:
        check_int("n", "x" * 10_000)
    assert len(str(caught.value)) < 200


def test_an_item_of_a_sequence_is_named() -> None:
    with pytest.raises(TypeError, match=naming("each item of uris", 3)):
        check_sequence("uris", ["a", 3], str, "a list of URIs", "a string")


@pytest.mark.parametrize("wrong", [3, {"a": b"secret"}, {1: "secret"}])
def test_a_wrong_mapping_is_named_without_its_values(wrong: Any) -> None:
    with pytest.raises(TypeError) as caught:
        check_str_mapping("headers", wrong)
    assert str(caught.value).startswith("headers must be ")
    assert "secret" not in str(caught.value)


def test_a_mapping_is_copied() -> None:
    given = {"a": "b"}
    assert check_str_mapping("headers", given) is not given


@pytest.mark.parametrize("wrong", [coroutine_function, AsyncCall()])
def test_an_async_callback_is_rejected_where_nothing_awaits_it(wrong: object) -> None:
    with pytest.raises(TypeError, match=naming("on_log", "plain")):
        check_sync_callback("on_log", wrong)


def test_a_plain_callback_passes() -> None:
    check_sync_callback("on_log", print)
    check_callable("hook", coroutine_function)
