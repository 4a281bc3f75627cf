"""`AnthropicProvider`: Anthropic's messages API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ..base.backoff import Backoff
from ..model_formats import anthropic_request, anthropic_result
from .api import MAX_RETRIES, RETRY_BACKOFF, TIMEOUT, ApiOptions, ApiProvider, Dialect
from .endpoint import Vendor, find_endpoint
from .streams import AnthropicStream

VENDOR: Final = Vendor("Anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")

DIALECT: Final = Dialect(
    vendor=VENDOR,
    extra="anthropic",
    client=(".anthropic_client", "AnthropicClient"),
    request=anthropic_request,
    streaming={"stream": True},
    stream=AnthropicStream,
    result=anthropic_result,
)


class AnthropicProvider(ApiProvider):
    """Asks a model by Anthropic's messages API.

    Args:
        model: the name of the model. None: the first of `models`, or else the first that the API lists.
        api_key: None: that of `ANTHROPIC_API_KEY`, but only without `base_url`; other servers may do without a key.
        base_url: where the API is, with or without its `/v1`. None: that of `ANTHROPIC_BASE_URL`, or Anthropic itself.
        models: further models; a request gets the first whose name has one of the hints in its model preferences.
        max_retries: attempts after the first, if there is no connection or the API answers 429 or 5xx.
        timeout: seconds for all attempts.
        backoff: the delays between attempts if the API names none.

    Raises:
        ImportError: the extra `anthropic` is not installed.
        TypeError, ValueError: an argument is wrong, or Anthropic has no key.

    The code that makes a provider must close it: a server or client that uses it does not.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        models: Sequence[str] = (),
        max_retries: int = MAX_RETRIES,
        timeout: float = TIMEOUT,
        backoff: Backoff = RETRY_BACKOFF,
    ) -> None:
        endpoint = find_endpoint(VENDOR, base_url, api_key)
        # The official client adds it.
        endpoint = replace(endpoint, url=endpoint.url.removesuffix("/v1"))
        super().__init__(DIALECT, endpoint, ApiOptions(model, models, max_retries, timeout, backoff))
