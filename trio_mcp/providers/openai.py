"""`OpenAIProvider`: OpenAI's chat completions, and every server that speaks them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from ..base.backoff import Backoff
from ..model_formats import openai_request, openai_result
from .api import MAX_RETRIES, RETRY_BACKOFF, TIMEOUT, ApiOptions, ApiProvider, Dialect
from .endpoint import Vendor, find_endpoint
from .streams import OpenAIStream

VENDOR: Final = Vendor("OpenAI", "https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL")

NEW_NAME_HOSTS: Final = ("openai.com", "openai.azure.com")
"""Hosts whose models take `max_completion_tokens`, and some of them nothing else. Other servers may only know `max_tokens`."""


class OpenAIProvider(ApiProvider):
    """Asks a model by OpenAI's chat completions: one of OpenAI, or of any server that has this API, such as one for local models.

    Args:
        model: the name of the model. None: the first of `models`, or else the first that the API lists.
        base_url: where the API is, with its `/v1`. None: that of `OPENAI_BASE_URL`, or OpenAI itself.
        api_key: None: that of `OPENAI_API_KEY`, but only without `base_url`; other servers may do without a key.
        models: further models; a request gets the first whose name has one of the hints in its model preferences.
        max_retries: attempts after the first, if there is no connection or the API answers 429 or 5xx.
        timeout: seconds for all attempts.
        backoff: the delays between attempts if the API names none.

    Raises:
        ImportError: the extra `openai` is not installed.
        TypeError, ValueError: an argument is wrong, or OpenAI has no key.

    The code that makes a provider must close it: a server or client that uses it does not.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        models: Sequence[str] = (),
        max_retries: int = MAX_RETRIES,
        timeout: float = TIMEOUT,
        backoff: Backoff = RETRY_BACKOFF,
    ) -> None:
        endpoint = find_endpoint(VENDOR, base_url, api_key)
        is_new = any(f".{endpoint.host}".endswith(f".{host}") for host in NEW_NAME_HOSTS)
        dialect = Dialect(
            vendor=VENDOR,
            extra="openai",
            client=(".openai_client", "OpenAIClient"),
            request=partial(openai_request, max_tokens_as="max_completion_tokens" if is_new else "max_tokens"),
            streaming={"stream": True, "stream_options": {"include_usage": True}},
            stream=OpenAIStream,
            result=openai_result,
        )
        super().__init__(dialect, endpoint, ApiOptions(model, models, max_retries, timeout, backoff))
