"""Calling an operation: its arguments become a request, and the response of the API the result of the tool.

The request has what the operation declares, the credentials that the author's function chose for the caller, and the headers of
the author's client. Nothing of the MCP request goes along: above all not its `Authorization`, which was issued for this server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar
from urllib.parse import unquote

from ..base.checks import check_str_mapping
from ..client.target import check_headers
from ..errors import ToolError
from ..protocol.json_limits import held_size
from ..protocol.jsonrpc import MAX_INTEGER
from ..session import Caller
from ..types import JsonObject, JsonValue
from .bodies import EncodedBody
from .operations import OperationPlan, Output
from .pages import Answered, next_page
from .parameters import COOKIE_SAFE, Parameter, encoded
from .reading import Check, read_beside
from .responses import Answer, answer_of, with_next_page
from .sending import ApiClient, ApiRequest, ApiResponse, HttpRequest, Keep, cookie_parts

# What authenticates the calls of an API: chosen for each call, by its caller.


@dataclass(frozen=True, slots=True)
class Credentials:
    """What is added to a request. It replaces arguments of the same name.

    Attributes:
        headers: such as `{"Authorization": "Bearer ..."}`.
        query: parameters of the query.
        cookies: cookies by name.

    Raises:
        TypeError: one of these does not map strings to strings.
    """

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    cookies: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_str_mapping(name, getattr(self, name))


CredentialSource: TypeAlias = Callable[
    [Caller | None], Mapping[str, str] | Credentials | Awaitable[Mapping[str, str] | Credentials]
]
"""Returns the headers, or the credentials, for the calls of a caller; None without authentication."""

NONE = Credentials()


async def credentials_for(source: CredentialSource | None, caller: Caller | None) -> Credentials:
    """Return the credentials for a caller.

    Raises:
        TypeError, ValueError: the author's function returned another value, or a header that HTTP cannot send. The error does not
            show it.

    It raises what the function raises, too.
    """
    if source is None:
        return NONE
    found = source(caller)
    if isinstance(found, Awaitable):
        found = await found
    if not isinstance(found, Credentials | Mapping):
        raise TypeError(
            f"the function credentials= returned {type(found).__name__}; return Credentials(...) or a dict of headers"
        )
    returned = "what the function credentials= returned"
    if not isinstance(found, Credentials):
        found = Credentials(headers=check_str_mapping(returned, found))
    check_headers(found.headers, returned)
    return found


RequestT = TypeVar("RequestT", bound=HttpRequest)


LIKE_A_DASH: Final = str.maketrans("_. ", "---")


@dataclass(frozen=True, slots=True)
class OperationCaller(Generic[RequestT]):
    """Calls one operation.

    Attributes:
        base_url: what its path is appended to.
        slashes: values in the path may have slashes, which are encoded.
    """

    plan: OperationPlan
    client: ApiClient[RequestT]
    base_url: str
    credentials: CredentialSource | None
    slashes: bool
    max_error_body: int

    async def answer(self, arguments: JsonObject, caller: Caller | None, keep: Keep) -> Answer:
        """Call the operation and return its answer, with what leads to the next page.

        Args:
            keep: counts the response, and the values in it.

        Raises:
            ToolError: an argument cannot be sent, or the API gives no response.
            LimitExceeded: there is no room for the response.
        """
        response = await self.respond(arguments, caller, keep)
        answer, size = await self._read(response)
        keep(size)
        if answer.result.is_error:
            return answer
        answered = Answered(self.plan.parameters, self.plan.input_schema, arguments, response, answer.value)
        following = next_page(self.plan.page_links, answered)
        return answer if following is None else answer._replace(result=with_next_page(answer.result, following))

    async def respond(self, arguments: JsonObject, caller: Caller | None, keep: Keep) -> ApiResponse:
        """Call the operation and return its response. Raises as `answer` does."""
        arguments = {name: with_whole_numbers(value) for name, value in arguments.items()}
        # First what can fail without the credentials.
        request = partial(self._request, arguments, self._url_path(arguments))
        return await self.client.send(request(await credentials_for(self.credentials, caller)), keep)

    async def _read(self, response: ApiResponse) -> tuple[Answer, int]:
        """Return what the tool returns for a response, and the bytes that the values in it take."""
        read = partial(sized_answer, response, self.plan.output, self.max_error_body)
        return await read_beside(read, len(response.body))

    def _request(self, arguments: JsonObject, path: str, credentials: Credentials) -> ApiRequest:
        query = self._query(arguments, credentials)
        url = f"{self.base_url}{path}?{query}" if query else f"{self.base_url}{path}"
        own = {name.lower(): text for name, text in credentials.headers.items()}
        cookies = self._cookies(arguments, own.pop("cookie", ""), credentials)
        body = self._body(arguments)
        headers = {"accept": self.plan.output.accept}
        replaced = {*map(spelled, [*own, *self.client.own_headers])}
        for parameter, value in self._given("header", arguments):
            if spelled(parameter.name) not in replaced:
                headers[parameter.name.lower()] = parameter.header(value)
        if body.content_type is not None:
            headers["content-type"] = body.content_type
        return ApiRequest(self.plan.operation.method, url, headers | own, cookies, body.content, body.files)

    def _url_path(self, arguments: JsonObject) -> str:
        parts: list[str] = []
        for segment in self.plan.segments:
            if isinstance(segment, Parameter):
                parts.append(segment.path(arguments.get(segment.argument), slashes=self.slashes))
            else:
                parts.append(segment)
        path = "".join(parts)
        # Several values may be one segment together.
        if any(part in (".", "..") for part in path.split("/")):
            raise ToolError(f"The arguments of the path lead to another path: {path:.200}")
        return path

    def _query(self, arguments: JsonObject, credentials: Credentials) -> str:
        own = [f"{encoded(name)}={encoded(text)}" for name, text in credentials.query.items()]
        parts = [part for each, value in self._given("query", arguments) for part in each.query(value)]
        return "&".join(without(parts, own) + own)

    def _cookies(self, arguments: JsonObject, header: str, credentials: Credentials) -> str | None:
        """Return the value of the `Cookie` header, in which credentials replace what the client has, and both arguments."""
        named = [f"{name}={encoded(text, COOKIE_SAFE)}" for name, text in credentials.cookies.items()]
        own = without(cookie_parts(header), named)
        of_client = without(self.client.own_cookies, [*own, *named])
        parts = [part for each, value in self._given("cookie", arguments) for part in each.cookies(value)]
        return "; ".join([*of_client, *own, *without(parts, [*of_client, *own, *named]), *named]) or None

    def _body(self, arguments: JsonObject) -> EncodedBody:
        name = self.plan.body_argument
        if self.plan.body is None or name not in arguments:
            return EncodedBody()
        return self.plan.body.encode(arguments[name])

    def _given(self, location: str, arguments: JsonObject) -> list[tuple[Parameter, JsonValue]]:
        """Return the parameters of a place that a call has, with their values. An argument that is null counts as absent."""
        return [
            (each, value)
            for each in self.plan.parameters
            if each.location == location and (value := arguments.get(each.argument)) is not None
        ]


def with_whole_numbers(value: JsonValue) -> JsonValue:
    """Return a value in which 3.0 is 3: many APIs take no fraction for an integer, in a path, a query or a body."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= MAX_INTEGER else value
    if isinstance(value, dict):
        return {name: with_whole_numbers(each) for name, each in value.items()}
    return [with_whole_numbers(each) for each in value] if isinstance(value, list) else value


def sized_answer(response: ApiResponse, output: Output, max_error_body: int, check: Check) -> tuple[Answer, int]:
    """Return an answer, and the bytes that the values in it take; `check` as in `answer_of`."""
    answer = answer_of(response, output, max_error_body, check)
    check()
    return answer, 0 if answer.value is None else held_size(response.body)


def without(parts: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the parts `name=value` whose names are not those of the others. An object may have any."""
    names = {spelled(each.partition("=")[0]) for each in others}
    return [part for part in parts if spelled(part.partition("=")[0]) not in names]


def spelled(name: str) -> str:
    """Return one spelling for all that a server may take for the same name."""
    # Some ignore case, some take `X_Key` for `X-Key` or `a.b` for `a_b`, and some decode the names of cookies.
    return unquote(name).strip().casefold().translate(LIKE_A_DASH)
