"""What a client of authorization refuses: the kind of the error is what its program can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from trio_mcp.auth import AuthorizationError
from trio_mcp.errors import AuthorizationErrorKind


@contextmanager
def refused(
    kind: AuthorizationErrorKind, match: str | None = None
) -> Iterator[pytest.ExceptionInfo[AuthorizationError]]:
    """The block raises an error of this kind."""
    with pytest.raises(AuthorizationError, match=match) as caught:
        yield caught
    assert caught.value.kind is kind
