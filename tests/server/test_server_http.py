"""What the author of a server may say of serving it over HTTP, and what is refused where it is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trio_mcp import HttpOptions, HttpRequest, HttpResponse, Server
from trio_mcp.http import HttpLimits, HttpRoute, Tls


async def hook(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.body)


def test_the_options_of_a_server_can_be_read() -> None:
    options = HttpOptions(path="/shop", limits=HttpLimits(body=10))
    assert Server("shop", http=options).http is options


def test_a_route_is_one_of_the_options_also_of_copies_made_before() -> None:
    server = Server("shop")
    copy = server.copy(options=server.options)
    server.route("/hook", methods=["POST"])(hook)
    for each in (server, copy):
        assert [(route.path, route.handler) for route in each.http.routes] == [("/hook", hook)]


@pytest.mark.parametrize("path", ["/mcp", "/health", "/ready"])
def test_a_route_that_collides_with_another_path_is_refused_when_it_is_registered(path: str) -> None:
    server = Server("shop")
    with pytest.raises(ValueError, match=path):
        server.route(path)(hook)
    assert server.http is None  # a server that says nothing has no options


def test_the_paths_that_a_server_does_not_use_are_free() -> None:
    server = Server("shop", http=HttpOptions(path="/shop", health_path=None, ready_path="/up"))
    for path in ("/mcp", "/health", "/ready"):
        server.route(path)(hook)
    with pytest.raises(ValueError, match="/up"):
        server.route("/up")(hook)


def test_two_routes_may_share_a_path_for_different_methods_only_and_get_takes_head_too() -> None:
    server = Server("shop")
    server.route("/hook", methods=["GET"])(hook)
    server.route("/hook", methods=["POST"])(hook)
    with pytest.raises(ValueError, match="another route"):
        server.route("/hook", methods=["HEAD"])(hook)
    assert [set(route.methods) for route in server.http.routes] == [{"GET", "HEAD"}, {"POST"}]
    assert HttpRoute("/x", hook).methods == {"GET", "HEAD"}


def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (lambda: Server("s", http={"path": "/x"}), TypeError, "HttpOptions"),  # type: ignore[arg-type]
        (lambda: HttpOptions(path=None), ValueError, "nothing would be served"),
        (lambda: HttpOptions(path="mcp"), ValueError, "is no path"),
        (lambda: HttpOptions(health_path="health"), ValueError, "is no path"),
        (lambda: HttpOptions(health_path="/mcp"), ValueError, "/mcp is the path of MCP"),
        (lambda: HttpOptions(sse_path="/sse", health_path="/message"), ValueError, "/message is the path of MCP"),
        (lambda: HttpOptions(ready_path="/health"), ValueError, "health_path"),
        (lambda: HttpOptions(root_path="api"), ValueError, "is no path"),
        (lambda: HttpOptions(allowed_hosts=["https://x"]), ValueError, "allowed_hosts"),
        (lambda: HttpOptions(allowed_origins=["x/y"]), ValueError, "allowed_origins"),
        (lambda: HttpOptions(trusted_proxies=["*"]), ValueError, "no address"),
        (lambda: HttpOptions(trusted_proxies=["proxy.example.com"]), ValueError, "no address"),
        (lambda: HttpOptions(trusted_proxies="10.0.0.1"), TypeError, "a list"),
        (lambda: HttpOptions(authenticate="token"), TypeError, "authenticate"),  # type: ignore[arg-type]
        (lambda: HttpOptions(tls="cert.pem"), TypeError, "Tls"),  # type: ignore[arg-type]
        (lambda: HttpOptions(access_log="yes"), TypeError, "access_log"),  # type: ignore[arg-type]
        (lambda: HttpOptions(routes=[hook]), TypeError, "HttpRoute"),  # type: ignore[list-item]
        (lambda: Server("s").route("/x")(plain), TypeError, "async function"),  # type: ignore[type-var]
        (lambda: Server("s").route("/x", methods="GET")(hook), TypeError, "methods"),
        (lambda: Server("s").route("/x", methods=["FETCH"])(hook), ValueError, "methods"),
        (lambda: Server("s").route("/x", timeout=0)(hook), ValueError, "timeout"),
        (lambda: Server("s").route("/x", max_body=-1)(hook), ValueError, "max_body"),
        (lambda: HttpResponse(3), TypeError, "text or bytes"),  # type: ignore[arg-type]
        (lambda: HttpResponse(status=100), ValueError, "status"),
        (lambda: HttpResponse(headers={"x": "a\r\nset-cookie: b"}), ValueError, "cannot be sent"),
        (lambda: HttpResponse(headers={"content-length": "3"}), ValueError, "no header"),
        (lambda: HttpResponse(content_type="text/html\r\nx: y"), ValueError, "media type"),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_written(
    wrong: Callable[[], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        wrong()


def test_secrets_are_not_shown() -> None:
    shown = repr(Tls("cert.pem", "key.pem", password="hunter2"))
    shown += repr(HttpRequest("GET", "/x", query="token=hunter2", headers={"cookie": "hunter2"}, body=b"hunter2"))
    assert "hunter2" not in shown
    with pytest.raises(TypeError) as raised:
        Tls("cert.pem", password=b"hunter2")  # type: ignore[arg-type]
    assert "hunter2" not in str(raised.value)


def test_a_request_is_read_as_what_it_holds() -> None:
    request = HttpRequest[str]("POST", "/x", query="a=1&b=&a=2", body=b'{"n": 1}', state="open")
    assert request.state == "open"
    assert (request.parameters, request.json(), request.text) == ({"a": "2", "b": ""}, {"n": 1}, '{"n": 1}')
    assert HttpResponse.json({"n": 1}).content == b'{"n":1}'
