"""Errors that are kept, to be raised more than once."""

from __future__ import annotations

import pytest

from trio_mcp.errors import (
    CapabilityError,
    Disconnected,
    InvalidRequestState,
    MalformedAnswer,
    PeerError,
    ProviderError,
    ProviderErrorKind,
    QuestionRejected,
    RemoteProtocolError,
    ResourceNotFound,
    ToolError,
    without_traceback,
)

KEPT = [
    Disconnected("gone"),
    PeerError(-32000, "busy", {"retry": 5}),
    RemoteProtocolError("wrong", code=-32602, data={"at": 1}, request_id=3),
    InvalidRequestState("expired"),
    CapabilityError("cannot", {"sampling": {}}),
    QuestionRejected("its folders", PeerError(-32601, "Method not found", [1])),
    MalformedAnswer("its folders", RemoteProtocolError("result.roots: missing", code=-32602)),
    ProviderError("it answered HTTP 429", kind=ProviderErrorKind.RATE_LIMITED, status=429, retry_after=2.5),
    ResourceNotFound("note://a"),
    ValueError("whatever", 2),
]


@pytest.mark.parametrize("error", KEPT, ids=lambda error: type(error).__name__)
def test_a_copied_error_has_the_same_message(error: Exception) -> None:
    again = without_traceback(error)
    assert again is not error
    assert type(again) is type(error)
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_a_copied_error_has_no_reference_to_its_cause() -> None:
    try:
        try:
            raise ValueError("inner")
        except ValueError as inner:
            raise Disconnected("outer") from inner
    except Disconnected as outer:
        again = without_traceback(outer)
    assert (again.__traceback__, again.__cause__, again.__context__) == (None, None, None)


@pytest.mark.parametrize("error", [ToolError(), ToolError("")])
def test_a_tool_error_without_a_text_has_one_all_the_same(error: ToolError) -> None:
    assert "without a reason" in str(error)
