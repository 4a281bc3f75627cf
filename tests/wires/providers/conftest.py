"""What the tests of this folder share."""

import pytest

from trio_mcp.providers import AnthropicProvider, OpenAIProvider


@pytest.fixture(scope="session", autouse=True)
def official_clients() -> None:
    """Import the official clients, which takes seconds: the time limits of the tests are for requests."""
    AnthropicProvider("model-1", api_key="key")
    OpenAIProvider("model-1", api_key="key")
