"""Names of other libraries, mostly FastMCP's, that are looked for here: what to write instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from ..base.checks import check_names, nearest

OF_SERVER: Final[Mapping[str, str]] = {
    "add_middleware": "write a function: @server.middleware",
    "add_provider": "write server.mount(prefix, other)",
    "add_transform": "give tools their names and descriptions where they are registered, or use visible=",
    "as_proxy": "trio_mcp.proxy(target) is a server",
    "completion": 'write @server.complete(prompt="x", argument="y"), for each argument',
    "call_tool": "Client.connect(server) calls tools; a decorated function is still a function",
    "custom_route": 'write @server.route("/path")',
    "disable": "hide a tool with visible=, or remove_tool() and add_tool() it again",
    "enable": "hide a tool with visible=, or remove_tool() and add_tool() it again",
    "from_fastapi": "write from_openapi(app, client), of trio_mcp.openapi",
    "from_openapi": "it is a function of trio_mcp.openapi",
    "get_prompt": "server.prompts are the prompts; Client.connect(server) gets one",
    "get_prompts": "server.prompts are the prompts",
    "get_resource_templates": "server.resource_templates are the templates",
    "get_resources": "server.resources are the resources",
    "get_tool": "server.tools are the tools",
    "get_tools": "server.tools are the tools",
    "http_app": "write asgi_app(server), of trio_mcp_transports.http",
    "import_server": "write server.mount(prefix, other)",
    "list_prompts": "server.prompts are the prompts; Client.connect(server) lists what a client sees",
    "list_resource_templates": "server.resource_templates are the templates",
    "list_resources": "server.resources are the resources; Client.connect(server) lists what a client sees",
    "list_tools": "server.tools are the tools; Client.connect(server) lists what a client sees",
    "run_async": "write await server.serve(...)",
    "run_http_async": 'write await server.serve("http")',
    "run_stdio_async": "write await server.serve()",
    "sse_app": 'write asgi_app(server, sse_path="/sse"), of trio_mcp_transports.http',
    "streamable_http_app": "write asgi_app(server), of trio_mcp_transports.http",
}
OF_CONTEXT: Final[Mapping[str, str]] = {
    "client_id": "ctx.caller.principal is who calls",
    "close_sse_stream": "write ctx.end_stream(retry=5)",
    "delete_state": "a session has no state: keep it in ctx.state, by ctx.caller.principal",
    "disable_components": "give what some callers do not see visible=, a function of the caller",
    "enable_components": "give what some callers do not see visible=, a function of the caller",
    "fastmcp": "a tool uses the variable that its server is bound to",
    "get_http_request": "ctx.request.headers are those of the HTTP request",
    "get_state": "a session has no state: keep it in ctx.state, by ctx.caller.principal",
    "input_responses": "await ctx.elicit(...), ctx.sample(...) or ctx.roots() returns the answer",
    "lifespan_context": "ctx.state is what the lifespan yields",
    "list_prompts": "server.prompts are the prompts of the server",
    "list_resources": "server.resources are the resources of the server",
    "list_roots": "write ctx.roots()",
    "list_tools": "server.tools are the tools of the server",
    "report_progress": "write ctx.progress(1, total=2)",
    "request_context": "ctx.request is the request, and ctx.state what the lifespan yields",
    "request_id": "ctx.request.id is the id of the request",
    "request_state": "the call continues where it asked: write await ctx.elicit(...), ctx.sample(...) or ctx.roots()",
    "server": "a tool uses the variable that its server is bound to",
    "session": "write ctx.elicit, ctx.sample or ctx.log: modern clients have no session",
    "session_id": "modern clients have no session; ctx.caller.principal is who calls",
    "set_state": "a session has no state: keep it in ctx.state, by ctx.caller.principal",
}
OF_ACCEPTED: Final[Mapping[str, str]] = {
    "data": "the answer is .content",
}
OPTIONS: Final[Mapping[str, str]] = {
    "app": "write a resource for the page, and its URI in meta=",
    "auth": "scopes= of a tool says what its caller needs, and HttpOptions(authenticate=...) of a server who calls",
    "debug": "ServiceOptions(tell_errors=True) shows exceptions to the caller",
    "enabled": "visible= says who sees it; remove_tool() removes it while it is served",
    "exclude_args": "annotate an argument that callers do not give with Annotated[T, Provide(function)]",
    "host": 'write server.run("http", host=..., port=...)',
    "json_response": "modern clients get JSON when the response is quick",
    "log_level": 'write configure_logging("debug")',
    "mask_error_details": "ServiceOptions(tell_errors=...)",
    "on_duplicate": "remove_tool() the old one first",
    "port": 'write server.run("http", host=..., port=...)',
    "providers": "write server.mount(prefix, other)",
    "response_type": 'the type is the second argument: ctx.elicit("?", Loan)',
    "run_in_thread": "a plain function runs in a thread, an async one does not",
    "stateless_http": "write HttpOptions(sessions=False)",
    "transforms": "give tools their names and descriptions where they are registered, or use visible=",
    "version": "MCP has no versions of tools: put it into meta=, or into the name",
}
"""Options of a server, a tool, a prompt, a resource or a question."""


OF_SAMPLES: Final[Mapping[str, str]] = {
    "result_type": 'write returns=, as in ctx.sample("?", returns=Loan)',
}
"""Options of a sample."""


def refuse(given: Iterable[str], known: Collection[str], where: str, others: Mapping[str, str] = OPTIONS) -> None:
    """Raise `TypeError` for an option of an unknown name; see `check_names`.

    Args:
        others: what to write instead of options that other libraries have.
    """
    for name in given:
        if name not in known and name in others:
            raise TypeError(f"{where} has no option {name!r}: {others[name]}")
    check_names(given, known, where)


def wrong_arguments(
    name: str, method: Callable[..., object], args: Sequence[object], options: Mapping[str, object]
) -> TypeError:
    """Return the error for arguments that a method of the context does not take, without its `self`.

    Args:
        name: how the author has written the method, such as "ctx.info".
    """
    signature = inspect.signature(method)
    parameters = [each.replace(annotation=each.empty) for each in [*signature.parameters.values()][1:]]
    signature = inspect.Signature(parameters)
    try:
        check_names(options, signature.parameters, f"{name}()")
        signature.bind(*args, **options)
    except TypeError as error:
        text = str(error)
        return TypeError(text if text.startswith(name) else f"{name}(): {text}; it is {name}{signature}")
    return TypeError(f"{name}() does not take these arguments; it is {name}{signature}")


# Suggestions for unknown names.

MAX_NAME: Final = 64
"""Characters of a name of a peer that are compared."""
MAX_KNOWN: Final = 100
"""How many names it is compared with: a peer can send unknown names again and again."""


def meant(name: str, known: Iterable[str]) -> str:
    """Return a question with the nearest known name, to be put behind an error; empty if none is near.

    Args:
        name: what the peer has sent.
        known: the names that this caller may know.
    """
    question = nearest(name[:MAX_NAME], islice(known, MAX_KNOWN))
    return f"; {question}" if question else ""
