"""Requests, and the heads of responses, as the bytes of frames."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, TypeAlias, cast

from trio_mcp.session import Caller, Peer

from ...asgi.access import Headers
from ...asgi.requests import AuthorizedRequest, Body, Request
from ...asgi.responses import KnownResponse
from .frames import LinkBroken

Head: TypeAlias = tuple[int, Headers]
"""The status and the headers of a response."""

SECRET: Final = ("authorization", "proxy-authorization", "cookie")
"""Headers that stay in the process to which they were sent."""

UNREADABLE: Final = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
"""What reading the JSON of something else raises."""


def encoded_request(incoming: AuthorizedRequest, node: str, *, begins: bool) -> bytes:
    """Return a request as bytes: a line of JSON and its body. Its connection becomes a name that no other process gives."""
    request, peer = incoming.request, incoming.peer
    caller, connection = peer.caller, request.connection
    head = {
        "method": request.method,
        "path": request.path,
        "query": request.query,
        "root": request.root_path,
        "scheme": request.scheme,
        "headers": {name: value for name, value in peer.headers.items() if name not in SECRET},
        "client": request.client,
        "begins": begins,
        "connection": connection if isinstance(connection, str) else f"{node} {id(connection)}",
        "caller": None if caller is None else [caller.principal, sorted(caller.scopes), caller.claims],
    }
    return json.dumps(head).encode() + b"\n" + (request.body.whole or b"")


def decoded_request(data: bytes) -> tuple[AuthorizedRequest, bool]:
    """Return the request that `encoded_request` wrote, and whether it begins something. Raises `LinkBroken` for anything else."""
    line, _, body = data.partition(b"\n")
    try:
        head = json.loads(line)
        caller = None if head["caller"] is None else Caller(*head["caller"])
        client = None if head["client"] is None else (str(head["client"][0]), int(head["client"][1]))
        headers: Mapping[str, str] = {str(name): str(value) for name, value in head["headers"].items()}
        request = Request(
            head["method"],
            head["path"],
            headers,
            Body(body),
            query=head["query"],
            root_path=head["root"],
            scheme=head["scheme"],
            client=client,
            connection=head["connection"],
        )
    except UNREADABLE as error:
        raise LinkBroken(f"a request that cannot be read: {error}") from None
    peer = Peer(None if caller is None else caller.principal, headers, request.connection, caller)
    return AuthorizedRequest(request, peer, None, is_usual=True), bool(head.get("begins"))


def encoded_head(status: int, headers: Headers) -> bytes:
    """Return the head of a response as bytes."""
    return json.dumps([status, [[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers]]).encode()


def decoded_head(data: bytes) -> Head:
    """Return the head that `encoded_head` wrote. Raises `LinkBroken` for anything else."""
    try:
        status, headers = cast("tuple[int, list[list[str]]]", json.loads(data))
        return int(status), [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    except UNREADABLE as error:
        raise LinkBroken(f"the head of a response that cannot be read: {error}") from None


def encoded_whole(response: KnownResponse) -> bytes:
    """Return a whole response as bytes: a line with its head, and its body."""
    return encoded_head(response.status, response.head) + b"\n" + response.body


def decoded_whole(data: bytes) -> tuple[Head, bytes]:
    """Return the head and the body that `encoded_whole` wrote. Raises `LinkBroken` for anything else."""
    line, _, body = data.partition(b"\n")
    return decoded_head(line), body


def without_length(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return headers without the length of the body, which the writer of the response adds."""
    return [each for each in headers if each[0] != b"content-length"]
