"""The oracle behind `Talk` refuses what a revision does not know: else it would check nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import ValidationError
from talk import modern_meta
from wire_oracle import WireOracle

CALL = {"id": 1, "method": "tools/call", "params": {"name": "a"}}
MODERN_CALL = {"id": 1, "method": "tools/call", "params": {"name": "a", "_meta": modern_meta()}}
CONTENT = [{"type": "text", "text": "done"}]


@pytest.mark.parametrize(
    ("sent", "heard"),
    [
        (MODERN_CALL, {"id": 1, "result": {"content": CONTENT}}),
        (MODERN_CALL, {"id": 1, "result": {"resultType": "input_required", "inputRequests": {"a": {"method": "b"}}}}),
        (CALL, {"id": 1, "result": {"content": [{"type": "text"}]}}),
        (CALL, {"id": 1, "error": {"code": "x", "message": "no"}}),
        (CALL, {"id": None, "error": {"code": -32600, "message": "no"}}),
        (CALL, {"method": "notifications/progress", "params": {"progress": 1}}),
    ],
    ids=["no result type", "a question that is none", "half a content", "a code that is text", "a null id", "no token"],
)
def test_a_message_of_another_form_is_refused(spec_dir: Path, sent: dict[str, Any], heard: dict[str, Any]) -> None:
    oracle = WireOracle()
    oracle.sent(sent)
    with pytest.raises(ValidationError):
        oracle.heard({"jsonrpc": "2.0", **heard})


def test_each_reply_is_read_in_the_revision_of_its_request(spec_dir: Path) -> None:
    oracle = WireOracle()
    oracle.sent(CALL)
    oracle.heard({"jsonrpc": "2.0", "id": 1, "result": {"content": CONTENT}})
    oracle.sent(MODERN_CALL)
    oracle.heard({"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete", "content": CONTENT}})
