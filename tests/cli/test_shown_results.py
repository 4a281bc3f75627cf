"""What a command shows of a result."""

from __future__ import annotations

from base64 import b64encode

import pytest

from trio_mcp.cli.terminal.messages import as_text
from trio_mcp.types import AudioContent, ImageContent


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1408, 1409, 1410])
def test_the_size_of_an_image_is_that_of_its_bytes(size: int) -> None:
    data = b64encode(bytes(size)).decode()
    assert as_text(ImageContent(mime_type="image/png", data=data)) == f"[image/png, {size} bytes]"
    assert as_text(AudioContent(mime_type="audio/wav", data=data)) == f"[audio/wav, {size} bytes]"
