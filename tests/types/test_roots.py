"""A root and its path."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_mcp.types import Root


@pytest.mark.parametrize("path", ["/srv/data", "/srv/with space", "/srv/ünï#?%41"])
def test_a_root_has_the_path_that_its_uri_was_made_of(path: str) -> None:
    assert Root(uri=Path(path).as_uri()).path == Path(path)


def test_localhost_is_this_machine() -> None:
    assert Root(uri="file://localhost/srv").path == Path("/srv")


@pytest.mark.parametrize("uri", ["https://example.com/srv", "file://server/share", "file:", "/srv", "", "file://[/srv"])
def test_any_other_uri_has_no_path(uri: str) -> None:
    with pytest.raises(ValueError):
        _ = Root(uri=uri).path
