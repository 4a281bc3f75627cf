"""What is wrong with a request to an `OAuthProxy`, and how a browser or a client is answered."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import wraps
from types import MappingProxyType
from typing import Final, Never

from ...base.logs import SHARED_LINES, RepeatedRecords, peer_logger
from ...errors import LimitExceeded
from ...http import HttpHandler, HttpRequest, HttpResponse
from ...http.authenticator import RETRY_AFTER
from ...http.options import address_of, caller_at
from ...protocol.strict_json import dumps
from ...runtime.quota import Quota
from ...types import JsonObject
from ..client.code import query_parameters
from .pages import error_page

logger = peer_logger("trio_mcp.auth")

FORM: Final = "application/x-www-form-urlencoded"


class Rejected(Exception):
    """A request is rejected. The text is for the user, or for the developer of the client.

    Args:
        code: the error of OAuth (RFC 6749, 5.2; RFC 7591, 3.2.2).
        status: of HTTP.
        reason: for the log; empty for nothing that an operator should know.
    """

    def __init__(self, why: str, code: str = "invalid_request", status: int = 400, reason: str = "") -> None:
        super().__init__(why)
        self.code = code
        self.status = status
        self.reason = reason


def log_in_again(reason: str) -> Rejected:
    """Return the rejection of a code or a token that is not good; the reason is for the log."""
    return Rejected("log in again", "invalid_grant", reason=reason)


def try_later(reason: str) -> Rejected:
    """Return the rejection of a request for which the provider cannot be asked now; the reason is for the log.

    A client that got `invalid_grant` would throw its tokens away.
    """
    return Rejected("the provider cannot be asked now", "temporarily_unavailable", 503, reason)


@contextmanager
def counted(quota: Quota, address: str | None) -> Generator[None]:
    """Count one for an address while the block runs. Raises `Rejected` if there is no room.

    Args:
        address: of the client; None if it is not known.
    """
    found = None if address is None else address_of(address)
    caller = address if found is None else caller_at(found)
    try:
        quota.take(caller)
    except LimitExceeded as error:
        why = f"The server is busy. Try again in a moment: {error}."
        raise Rejected(why, "temporarily_unavailable", 503) from None
    try:
        yield
    finally:
        quota.give_back(caller)


def shows_errors(handler: HttpHandler) -> HttpHandler:
    """Return a handler that answers what is wrong with a page."""

    @wraps(handler)
    async def shown(request: HttpRequest[Never]) -> HttpResponse:
        try:
            return await handler(request)
        except Rejected as error:
            return error_page(str(error), error.status)

    return shown


def returns_errors(handler: HttpHandler) -> HttpHandler:
    """Return a handler that answers what is wrong as JSON, and logs why: some of it in a minute, since anyone can cause it."""
    records = RepeatedRecords(logger, lines=SHARED_LINES)

    @wraps(handler)
    async def returned(request: HttpRequest[Never]) -> HttpResponse:
        try:
            return await handler(request)
        except Rejected as error:
            if error.reason:
                level = logging.WARNING if error.status == 503 else logging.INFO
                records.log("a token request was refused: %s", error.reason, level=level, exc_info=error.__cause__)
            later = {"retry-after": f"{RETRY_AFTER}"} if error.status == 503 else {}
            return json_response({"error": error.code, "error_description": str(error)}, error.status, later)

    return returned


def json_response(
    value: JsonObject, status: int = 200, headers: Mapping[str, str] = MappingProxyType({})
) -> HttpResponse:
    """Return a response with an object, which is not to be stored unless the headers say something else."""
    return HttpResponse(dumps(value), status, "application/json", {"cache-control": "no-store", **headers})


def parameters(query: str) -> dict[str, str]:
    """Return the parameters of a query that have a value: others count as left out (RFC 6749, 3.1 and 3.2).

    Raises `Rejected` if one comes twice.
    """
    try:
        found = query_parameters(query)
    except ValueError as error:
        raise Rejected(f"The request {error}.") from None
    return {name: value for name, value in found.items() if value}


def form_of(request: HttpRequest[Never]) -> dict[str, str]:
    """Return the fields of a form. Raises `Rejected`."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise Rejected(f"the body is a form: {FORM}")
    return parameters(request.body.decode("latin-1"))
