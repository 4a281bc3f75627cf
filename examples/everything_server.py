"""A server with one of everything, which the official conformance suite drives: see docs/internals/conformance.md.

    python examples/everything_server.py                      serves it on stdio
    python examples/everything_server.py http 8000            serves it at http://127.0.0.1:8000/mcp
The suite prescribes the names, the URIs and the texts; the code is what any server would write.
"""

from __future__ import annotations

import base64
import sys
from typing import Annotated, Literal, get_args

import trio
from everything_tasks import add_tasks
from pydantic import BaseModel, Field
from pydantic.alias_generators import to_camel

from trio_mcp import Context, Elicit, Elicited, Mirrored, Server, Titled, ToolError, types

server = Server("everything", version="1.0", title="Everything", list_ttl=60, list_scope="public")
add_tasks(server)
# a PNG of one pixel, and a WAV of one sample
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SILENCE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA=="

PAUSE = 0.05  # seconds between two progress notifications


# what a tool can return


@server.tool
def test_simple_text() -> str:
    """Return text."""
    return "This is a simple text response for testing."


@server.tool
def test_image_content() -> types.ImageContent:
    """Return an image."""
    return types.ImageContent(data=PIXEL, mime_type="image/png")


@server.tool
def test_audio_content() -> types.AudioContent:
    """Return a sound."""
    return types.AudioContent(data=SILENCE, mime_type="audio/wav")


@server.tool
def test_embedded_resource() -> types.EmbeddedResource:
    """Return a resource with its contents."""
    return embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")


@server.tool
def test_multiple_content_types() -> list[types.TextContent | types.ImageContent | types.EmbeddedResource]:
    """Return text, an image and a resource."""
    return [
        types.TextContent(text="Multiple content types test:"),
        types.ImageContent(data=PIXEL, mime_type="image/png"),
        embedded("test://mixed-content-resource", "application/json", '{"test": "data", "value": 123}'),
    ]


def embedded(uri: str, mime_type: str, text: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=mime_type, text=text))


@server.tool
def test_error_handling() -> str:
    """Fail with an error that the model can read."""
    raise ToolError("This tool intentionally returns an error for testing")


# what a tool can take


@server.tool
def test_x_mcp_header(region: Annotated[str, Mirrored("Region")]) -> str:
    """Take an argument that modern clients repeat in the header Mcp-Param-Region."""
    return f"region={region}"


TEXT: types.JsonObject = {"type": "string"}
CONTACT: types.JsonObject = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": TEXT, "city": TEXT}}},
    "properties": {
        **dict.fromkeys(("name", "phone", "email"), TEXT),
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@server.tool(input_schema=CONTACT)
def json_schema_2020_12_tool(contact: types.JsonObject) -> str:
    """Take arguments that a JSON Schema describes, with keywords that no signature has."""
    return f"{contact.get('name', 'Somebody')} can be reached."


# progress and log messages


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log three messages on the way."""
    for done in ("started", "processing data", "completed"):
        await ctx.log("info", f"Tool execution {done}")
        await trio.sleep(PAUSE)
    return "Three messages were logged."


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Log a message of each level; the client gets those that it asked for."""
    for level in get_args(types.LoggingLevel):
        await ctx.log(level, f"A message of the level {level}", logger="everything")
    return "A message of each level was logged."


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress: 0, 50 and 100 of 100."""
    for done in (0, 50, 100):
        await ctx.progress(done, 100, f"{done} of 100")
        await trio.sleep(PAUSE)
    return "Progress was reported three times."


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """End the response stream in the middle; the client comes back for the answer."""
    await ctx.log("info", "Before the end of the stream")
    await ctx.end_stream(retry=2 * PAUSE)
    await trio.sleep(PAUSE)
    return "The answer came although the stream had ended."


# asking


class Account(BaseModel):
    username: str
    email: str


class Profile(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


class Choices(BaseModel, alias_generator=to_camel):
    untitled_single: Literal["active", "inactive", "pending"]
    titled_single: Annotated[
        Literal["low", "medium", "high"], Titled("Low Priority", "Medium Priority", "High Priority")
    ]
    untitled_multi: list[Literal["read", "write", "execute"]]
    titled_multi: list[Annotated[Literal["feature", "bug", "docs"], Titled("New Feature", "Bug Fix", "Documentation")]]
    legacy_enum: Literal["s", "m", "l"] = Field(json_schema_extra={"enumNames": ["Small", "Medium", "Large"]})


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model."""
    return f"LLM response: {(await ctx.sample(prompt, max_tokens=100)).text}"


@server.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user who they are."""
    return described(await ctx.elicit(message, Account))


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with a form whose fields all have defaults."""
    return described(await ctx.elicit("Please provide user information", Profile))


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask with a form that has each kind of choice."""
    return described(await ctx.elicit("Please choose", Choices))


@server.tool(requires={"sampling"})
async def test_missing_capability(ctx: Context) -> str:
    """Need a client that has a model."""
    return (await ctx.sample("Generate a greeting", max_tokens=50)).text


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Tell something, and ask in the middle."""
    await ctx.progress(1, 2, "There is a question")
    return f"User response: {(await ctx.elicit('Shall I go on?', bool)).action}"


def described(answer: Elicited[BaseModel]) -> str:
    content = answer.content.model_dump_json(by_alias=True) if answer.action == "accept" else "{}"
    return f"User response: action={answer.action}, content={content}"


# asking several questions: a modern client gets them together in rounds, a legacy client one by one


class Name(BaseModel):
    name: str


class Colour(BaseModel):
    color: str


class Confirmation(BaseModel):
    ok: bool


class Topic(BaseModel):
    context: str


USER_NAME = Elicit("user_name", Name)
CONFIRM = Elicit("confirm", Confirmation)
STEP_1, STEP_2 = Elicit("step1", Name), Elicit("step2", Colour)


@server.tool(elicits=[USER_NAME])
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask for a name."""
    answer = await ctx.elicit("What is your name?", USER_NAME)
    return f"Hello, {answer.content.name if answer.action == 'accept' else 'stranger'}!"


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the model."""
    return (await ctx.sample("What is the capital of France?", max_tokens=100)).text


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask for the client's folders."""
    return ", ".join(root.uri for root in await ctx.roots())


@server.tool(name="test_input_required_result_request_state", elicits=[CONFIRM])
@server.tool(name="test_input_required_result_tampered_state", elicits=[CONFIRM])
async def confirmed(ctx: Context) -> str:
    """Ask for a confirmation; what comes after it runs only with the state that was sent along, as it was sent."""
    return f"state-ok: {(await ctx.elicit('Please confirm', CONFIRM)).action}"


ask_user, ask_client = test_input_required_result_elicitation, test_input_required_result_list_roots
ask_model = test_missing_capability


@server.tool(elicits=[USER_NAME])
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask the user, the model and the client at once."""
    return " ".join(await ctx.branch_all(ask_user, ask_model, ask_client))


@server.tool(elicits=[USER_NAME])
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask the user, the model, or both at once, as the client allows."""
    can = ctx.request.client_capabilities
    asks = [ask for ask, there in ((ask_user, can.elicitation), (ask_model, can.sampling)) if there is not None]
    return " ".join(await ctx.branch_all(*asks))


@server.tool(elicits=[STEP_1, STEP_2])
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask twice."""
    who = await ctx.elicit("Step 1: What is your name?", STEP_1)
    what = await ctx.elicit("Step 2: What is your favorite color?", STEP_2)
    return f"{described(who)} {described(what)}"


# changing while it is served


@server.tool
async def test_trigger_tool_change() -> str:
    """Offer one tool more, or that one no more."""
    try:
        server.remove_tool("test_dynamic_tool")
    except LookupError:
        server.add_tool(dynamic, name="test_dynamic_tool")
    return "The list of tools has changed."


@server.tool
async def test_trigger_prompt_change() -> str:
    """Offer one prompt more, or that one no more."""
    try:
        server.remove_prompt("test_dynamic_prompt")
    except LookupError:
        server.add_prompt(dynamic, name="test_dynamic_prompt")
    return "The list of prompts has changed."


@server.tool
async def test_update_watched_resource(text: str) -> str:
    """Change the watched resource."""
    watched["text"] = text
    server.resource_updated("test://watched-resource")
    return "The resource was changed."


def dynamic() -> str:
    """Come and go."""
    return "I am here now."


# resources

watched = {"text": "This resource can be watched."}


@server.resource("test://static-text", mime_type="text/plain", ttl=60, cache_scope="public")
def static_text() -> str:
    """Text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png", ttl=60, cache_scope="public")
def static_binary() -> bytes:
    """Bytes that never change."""
    return base64.b64decode(PIXEL)


@server.resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """Text that changes."""
    return watched["text"]


@server.resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> types.JsonObject:
    """The data of an id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# prompts


@server.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[types.EmbeddedResource | str]:  # noqa: N803  the suite's word
    """A prompt that brings a resource along."""
    return [embedded(resourceUri, "text/plain", "Embedded resource content."), "Please process the resource above."]


@server.prompt
def test_prompt_with_image() -> list[types.ImageContent | str]:
    """A prompt that brings an image along."""
    return [types.ImageContent(data=PIXEL, mime_type="image/png"), "Please analyze the image above."]


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks before it is written."""
    answer = await ctx.elicit("What context should the prompt use?", Topic)
    return f"Use the following context: {answer.content.context if answer.action == 'accept' else 'none'}"


@server.complete(prompt="test_prompt_with_arguments", argument="arg1")
def words(value: str) -> list[str]:
    return [word for word in ("parachute", "paradise", "parrot", "path", "pear") if word.startswith(value)]


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("http", port=int(sys.argv[2]))
    else:
        server.run()
