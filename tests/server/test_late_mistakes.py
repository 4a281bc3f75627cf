"""Mistakes of an author that are found at registration, with the offer, the parameter and what to write."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from naming import naming
from pydantic import BaseModel, ConfigDict, Field
from talk import offering

from trio_mcp import Accepted, Client, Context, Elicit, Server, accept, decline, dismiss, tool
from trio_mcp.server import FormError
from trio_mcp.server.elicit.forms import form_of
from trio_mcp.types import AudioContent, BlobResourceContents, CallToolResult, EmbeddedResource, ImageContent

# patterns

LOOK = r"^(?!\.)[^/]*$"
BACK = r"(a)\1"


class Lazy(BaseModel):
    model_config = ConfigDict(defer_build=True)

    name: str = Field(pattern=LOOK)


class Own(BaseModel):
    model_config = ConfigDict(regex_engine="python-re")

    name: str = Field(pattern=LOOK)


def rename(path: str, new_name: Annotated[str, Field(pattern=LOOK)]) -> str:
    return path + new_name


def listed(names: list[Annotated[str, Field(pattern=BACK)]]) -> str:
    return str(names)


def deferred(lazy: Lazy) -> str:
    return lazy.name


def raw(arguments: dict[str, Any]) -> str:
    return str(arguments)


RAW: Any = {"type": "object", "properties": {"name": {"type": "string", "pattern": LOOK}}}


@pytest.mark.parametrize(
    ("register", "names"),
    [
        (lambda server: server.tool(rename), ("rename", "new_name", "pattern")),
        (lambda server: server.tool(listed), ("listed", "names", "pattern")),
        (lambda server: server.tool(deferred), ("deferred", "lazy", "pattern")),
        (lambda server: server.tool(raw, input_schema=RAW), ("raw", "input_schema", "pattern")),
        (lambda server: server.tool(raw, output_schema=RAW), ("raw", "output_schema", "pattern")),
        (lambda server: server.tool(raw, output_schema={"type": 5}), ("raw", "output_schema", "5")),
        (lambda server: server.tool(raw, input_schema={"type": 5}), ("raw", "input_schema", "5")),
        (lambda server: server.prompt(rename), ("rename", "new_name", "pattern")),
        (lambda server: server.resource("a://{path}/{new_name}")(rename), ("rename", "new_name", "pattern")),
        (lambda _: tool("built").parameters(Lazy), ("Lazy", "pattern")),
    ],
)
def test_a_pattern_that_the_engine_does_not_know_is_named_with_its_parameter(
    register: Callable[[Server], object], names: tuple[str, ...]
) -> None:
    with pytest.raises((TypeError, ValueError), match=naming(*names)):
        register(Server("patterns"))


def test_a_form_with_such_a_pattern_is_named() -> None:
    with pytest.raises(FormError, match=naming("Lazy", "pattern")):
        form_of(Lazy)


async def test_a_model_with_the_engine_of_python_takes_such_a_pattern() -> None:
    def own(own: Own) -> str:
        return own.name

    async with Client.connect(offering(own)) as client:
        assert (await client.call_tool("own", {"own": {"name": "a"}})).text == "a"
        assert (await client.call_tool("own", {"own": {"name": ".a"}})).is_error


# templates


@pytest.mark.parametrize(
    "template", ["notes/{id}", "{id}", "{+id}", "//host/{id}", "1a://{id}", "a b://{id}", "://{id}"]
)
def test_a_template_without_a_scheme_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=naming("scheme")):
        Server("templates").resource(template)(lambda id: id)


# forms without fields


class Confirm(BaseModel):
    """Nothing to fill in."""


@pytest.mark.parametrize(
    ("reply", "expected"), [(accept(), "True"), (accept(more=1), "True"), (decline(), "decline"), (dismiss(), "cancel")]
)
async def test_a_form_without_fields_asks_for_a_confirmation(mode: str, reply: Any, expected: str) -> None:
    server = Server("confirms")

    @server.tool(elicits=[Elicit("sure", Confirm)])
    async def delete(ctx: Context) -> str:
        answer = await ctx.elicit("Delete it?", Confirm)
        return str(isinstance(answer.content, Confirm)) if isinstance(answer, Accepted) else answer.action

    async with Client.connect(server, mode=mode, on_elicit=lambda _: reply) as client:
        assert (await client.call_tool("delete")).text == expected


# images

PNG = b64encode(b"\x89PNG").decode()


@pytest.mark.parametrize(
    ("block", "data", "kind"),
    [
        (ImageContent(data=PNG, mime_type="image/png"), PNG, "image/png"),
        (ImageContent(data=f"data:image/jpeg;base64,{PNG}", mime_type="image/png"), PNG, "image/jpeg"),
        (AudioContent(data=f"DATA:;BASE64,{PNG}", mime_type="audio/wav"), PNG, "audio/wav"),
    ],
)
async def test_the_data_of_a_block_may_be_a_data_url(block: Any, data: str, kind: str) -> None:
    server = Server("images")
    server.tool(lambda: block, name="alone")
    server.tool(lambda: ["text", block], name="beside")
    server.tool(lambda: CallToolResult(content=[block]), name="built")
    async with Client.connect(server) as client:
        for name in ("alone", "beside", "built"):
            found = (await client.call_tool(name)).content[-1]
            assert (found.data, found.mime_type) == (data, kind)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "block",
    [
        ImageContent(data="/tmp/image.png", mime_type="image/png"),
        ImageContent(data="https://a.example/a.png", mime_type="image/png"),
        ImageContent(data=PNG[:-1], mime_type="image/png"),
        AudioContent(data=f"data:audio/wav,{PNG}", mime_type="audio/wav"),
        EmbeddedResource(resource=BlobResourceContents(uri="a:b", blob="no base64")),
    ],
)
async def test_a_block_that_is_not_base64_is_an_error_of_its_tool(block: Any) -> None:
    server = Server("images")
    server.tool(lambda: block, name="image")
    server.resource("c:d")(lambda: BlobResourceContents(uri="c:d", blob="no base64"))
    async with Client.connect(server) as client:
        result = await client.call_tool("image")
        assert result.is_error
        assert "base64" in result.text
        with pytest.raises(Exception, match="base64"):
            await client.read_resource("c:d")
