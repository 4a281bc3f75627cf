"""Names that are not in `trio_mcp`: in which package they are, or what to write instead of a name of another library."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Final

OF_OTHERS: Final[Mapping[str, str]] = {
    "AcceptedElicitation": "write Accepted",
    "AsyncClient": "write Client, which works on asyncio, too",
    "AsyncioClient": "write Client, which works on asyncio, too",
    "ArgTransform": "write a function that calls the other",
    "CancelledElicitation": "write Dismissed",
    "CurrentContext": "write a parameter ctx: Context",
    "DeclinedElicitation": "write Declined",
    "Depends": "write Annotated[T, Provide(function)]",
    "ElicitationResult": "write Elicited[T]",
    "FastMCP": "write Server",
    "MCPServer": "write Server",
    "McpServer": "write Server",
    "Message": "write PromptMessage, of trio_mcp.types",
    "JWTVerifier": "write jwt(...), of trio_mcp.auth",
    "Middleware": "write a function: @server.middleware",
    "MiddlewareContext": "write a function: @server.middleware",
    "IntrospectionTokenVerifier": "write introspection(...), of trio_mcp.auth",
    "PromptResult": "write GetPromptResult, of trio_mcp.types",
    "SamplingParams": "write CreateMessageRequestParams, of trio_mcp.types",
    "StaticTokenVerifier": "write static({token: Caller(...)}), of trio_mcp.auth",
    "asyncio_app": "write asgi_app, of trio_mcp_transports.http, which works on asyncio, too",
    "create_proxy": "write proxy(target)",
    "get_context": "write a parameter ctx: Context",
    "get_http_headers": "write ctx.request.headers",
    "lifespan": "write a function with @asynccontextmanager, and Server(lifespan=function)",
    "require_scopes": "write scopes=[...], an option of a tool",
    "stdio_server": "write server.run()",
}
"""Those of other libraries, mostly FastMCP's."""

MODULES: Final[Mapping[str, str]] = {
    "client.auth": "OAuth is in trio_mcp.auth",
    "client.elicitation": "accept, decline and dismiss are in trio_mcp, and ElicitResult is in trio_mcp.types",
    "client.logging": "write Client.connect(target, on_log=...)",
    "client.progress": "write client.call_tool(name, arguments, on_progress=...)",
    "client.transports": "write Client.connect(target): a URL, a command or a server",
    "dependencies": "write a parameter ctx: Context",
    "exceptions": "ToolError and the errors of clients are in trio_mcp, and all errors in trio_mcp.errors",
    "middleware": "write a function: @server.middleware",
    "prompts": "PromptMessage is in trio_mcp.types, and a prompt is a function: @server.prompt",
    "resources": "a resource is a function: @server.resource(uri)",
    "server.auth": "it is in trio_mcp.auth",
    "server.dependencies": "write a parameter ctx: Context",
    "server.elicitation": "Accepted, Declined and Dismissed are in trio_mcp",
    "server.fastmcp": "write from trio_mcp import Server",
    "server.proxy": "write proxy(target), of trio_mcp",
    "tools": "a tool is a function: @server.tool",
    "utilities": "Image, Audio and File are in trio_mcp",
}
"""Modules of other libraries."""

PACKAGES: Final = (
    "trio_mcp.to_asyncio",
    "trio_mcp.types",
    "trio_mcp.auth",
    "trio_mcp.http",
    "trio_mcp.testing",
    "trio_mcp.providers",
    "trio_mcp.openapi",
    "trio_mcp.stores",
    "trio_mcp.compose",
    "trio_mcp_transports.http",
    "trio_mcp.server",
    "trio_mcp.client",
    "trio_mcp.session",
    "trio_mcp.errors",
    "trio_mcp.testing.contract",
)
"""The other public packages, in the order of the API reference."""


def public_names(package: str) -> Collection[str]:
    """Return the public names of a package, or of a module without `__all__`."""
    module = import_module(package)
    own = (name for name, value in vars(module).items() if getattr(value, "__module__", "") == package)
    return getattr(module, "__all__", None) or {name for name in own if not name.startswith("_")}


def hint(name: str) -> str:
    """Return what to write instead of a name of `trio_mcp`; empty if nothing is known."""
    if name in OF_OTHERS or name in MODULES:
        return OF_OTHERS.get(name) or MODULES[name]
    # `from trio_mcp import auth` asks for the name before it imports the package: nothing is missing.
    if find_spec(f"trio_mcp.{name}") is not None:
        return ""
    return next((f"it is in {package}" for package in PACKAGES if name in public_names(package)), "")
