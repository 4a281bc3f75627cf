"""A server that writes its spans into the file that `SPANS` names, one JSON object in each line; over stdio, over HTTP,
and as an application for other ASGI servers.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from trio_mcp import Context, Server
from trio_mcp_transports.http import asgi_app

server = Server("traced")


@server.tool(resume="replay")
async def order(ctx: Context) -> str:
    size = (await ctx.elicit("Which size?", str)).content
    colour = (await ctx.elicit("Which colour?", str)).content
    return f"{size} {colour}"


out = Path(os.environ["SPANS"]).open("a", buffering=1)  # noqa: SIM115  until the process ends
provider = TracerProvider()
exporter = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\n")
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

app = asgi_app(server)

if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("http", port=int(sys.argv[2]))
    else:
        server.run()
