"""Every server scenario has a row over stdio or an excuse; here the rows about opening, utilities, resources and prompts."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import trio
from driven import DrivenServer, Wire, recorded
from rows import EXCUSED, HANDSHAKE, MODERN, ROWS, SCENARIOS, row
from selections import SELECTIONS, Selection, scenarios_of
from suites import ALPHA, default_cache, found_suite

from trio_mcp import PeerError
from trio_mcp.client import Change
from trio_mcp.types import BlobResourceContents, ImageContent, PromptReference, TextContent, TextResourceContents

FILES = sorted(Path(__file__).parent.glob("test_rows_over_stdio*.py"))
WATCHED = "test://watched-resource"


# the table


def driven(revision: str) -> set[str]:
    """The scenarios of a revision that some test drives."""
    for file in FILES:
        import_module(file.stem)
    return {scenario for scenario, of in ROWS if of == revision}


def excused(scenario: str) -> bool:
    return any(scenario.startswith(name[:-1]) if name.endswith("*") else scenario == name for name in EXCUSED)


@pytest.mark.parametrize("revision", [HANDSHAKE, MODERN])
def test_every_server_scenario_is_driven_over_stdio_or_excused_and_none_is_both(revision: str) -> None:
    rows = driven(revision)
    assert rows == {scenario for scenario in SCENARIOS[revision] if not excused(scenario)}


def test_nothing_is_excused_that_the_suite_does_not_have() -> None:
    names = frozenset[str]().union(*SCENARIOS.values())
    assert [name for name in EXCUSED if not any(each.startswith(name.removesuffix("*")) for each in names)] == []


@pytest.mark.parametrize("revision", [HANDSHAKE, MODERN])
def test_the_table_holds_as_many_scenarios_as_are_run_over_http(revision: str) -> None:
    assert len(SCENARIOS[revision]) == sum(selection.expected for selection in run_over_http(revision))


@pytest.mark.parametrize("revision", [HANDSHAKE, MODERN])
def test_the_table_holds_the_scenarios_that_the_installed_suite_lists(revision: str) -> None:
    suite = found_suite(default_cache(), ALPHA)
    if suite is None:
        pytest.skip("the suite is not installed; `make conformance` does it")
    listed = {name for selection in run_over_http(revision) for name in scenarios_of(selection, suite)}
    assert SCENARIOS[revision] == listed


def run_over_http(revision: str) -> list[Selection]:
    labels = [f"server {ALPHA} {title} @{revision}" for title in ("required", "unscored", "extensions")]
    return [selection for selection in SELECTIONS if selection.label in labels]


# opening


@row("server-initialize", HANDSHAKE)
async def test_the_handshake_says_who_the_server_is_and_what_it_offers(server: DrivenServer) -> None:
    wire = Wire()
    async with recorded(wire, mode=HANDSHAKE) as client:
        assert client.protocol_version == HANDSHAKE
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("everything", "1.0")
        assert client.server_capabilities.tools is not None
        await client.ping()
    result = wire.result("initialize")
    assert result["protocolVersion"] == HANDSHAKE
    assert result["serverInfo"]["name"] == "everything"
    assert {"tools", "prompts", "resources", "completions", "logging"} <= result["capabilities"].keys()
    assert len(wire.sent("notifications/initialized")) == 1
    assert len(wire.messages) == 2, "the notification is not answered"
    wire.check()


@row("ping", HANDSHAKE)
async def test_a_ping_is_answered_with_an_empty_object(server: DrivenServer) -> None:
    client = await server.client()
    await client.ping()
    assert server.wire.result("ping") == {}


@row("logging-set-level", HANDSHAKE)
async def test_a_log_level_is_accepted_with_an_empty_object(server: DrivenServer) -> None:
    client = await server.client()
    await client.set_log_level("info")
    assert server.wire.result("logging/setLevel") == {}


@row("completion-complete")
async def test_an_argument_of_a_prompt_is_completed(server: DrivenServer) -> None:
    client = await server.client()
    assert client.server_capabilities.completions is not None
    prompt = PromptReference(name="test_prompt_with_arguments")
    assert (await client.complete(prompt, "arg1", "par")).values == ["parachute", "paradise", "parrot"]
    assert (await client.complete(prompt, "arg1", "test")).values == []
    assert [result["completion"]["values"] for result in server.wire.results("completion/complete")][1] == []


@row("caching", MODERN)
async def test_what_may_be_kept_says_for_how_long_and_for_whom(server: DrivenServer) -> None:
    client = await server.client()
    await client.list_tools()
    await client.list_prompts()
    await client.list_resources()
    await client.list_resource_templates()
    await client.read_resource("test://static-text")
    lists = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")
    for result in [server.wire.result(method) for method in lists]:
        assert type(result["ttlMs"]) is int
        assert result["ttlMs"] >= 0
        assert result["cacheScope"] in ("public", "private")


# resources


@row("resources-list")
async def test_a_resource_is_listed_with_its_uri_and_name(server: DrivenServer) -> None:
    client = await server.client()
    resources = await client.list_resources()
    assert {"test://static-text", "test://static-binary", WATCHED} <= {resource.uri for resource in resources}
    assert all(resource["uri"] and resource["name"] for resource in server.wire.result("resources/list")["resources"])


@row("resources-read-text")
async def test_a_text_is_read(server: DrivenServer) -> None:
    client = await server.client()
    (contents,) = (await client.read_resource("test://static-text")).contents
    assert isinstance(contents, TextResourceContents)
    assert (contents.uri, contents.mime_type) == ("test://static-text", "text/plain")
    assert contents.text == "This is the content of the static text resource."


@row("resources-read-binary")
async def test_bytes_are_read(server: DrivenServer) -> None:
    client = await server.client()
    (contents,) = (await client.read_resource("test://static-binary")).contents
    assert isinstance(contents, BlobResourceContents)
    assert (contents.uri, contents.mime_type) == ("test://static-binary", "image/png")
    assert contents.blob.startswith("iVBORw0KGgo")


@row("resources-templates-read")
async def test_a_template_is_read_with_the_value_in_its_uri(server: DrivenServer) -> None:
    client = await server.client()
    assert [each.uri_template for each in await client.list_resource_templates()] == ["test://template/{id}/data"]
    (contents,) = (await client.read_resource("test://template/123/data")).contents
    assert isinstance(contents, TextResourceContents)
    assert contents.uri == "test://template/123/data"
    assert "123" in contents.text


@row("sep-2164-resource-not-found", MODERN)
async def test_an_unknown_uri_is_an_error_that_names_it(server: DrivenServer) -> None:
    client = await server.client()
    uri = "test://nonexistent-resource-for-conformance-testing"
    with pytest.raises(PeerError) as caught:
        await client.read_resource(uri)
    assert caught.value.code == -32602
    assert isinstance(caught.value.data, dict)
    assert caught.value.data["uri"] == uri


@row("resources-subscribe", HANDSHAKE)
async def test_a_subscriber_hears_of_an_update(server: DrivenServer) -> None:
    client = await server.client()
    await client.subscribe(WATCHED)
    assert server.wire.result("resources/subscribe") == {}
    await client.call_tool("test_update_watched_resource", {"text": "first"})
    await heard_by_ping(server)
    assert server.changes == [Change("updated", WATCHED)]
    await client.unsubscribe(WATCHED)


@row("resources-unsubscribe", HANDSHAKE)
async def test_who_has_unsubscribed_hears_of_no_update(server: DrivenServer) -> None:
    client = await server.client()
    await client.subscribe(WATCHED)
    await client.unsubscribe(WATCHED)
    assert server.wire.result("resources/unsubscribe") == {}
    await client.call_tool("test_update_watched_resource", {"text": "second"})
    await heard_by_ping(server)
    assert server.changes == []


async def heard_by_ping(server: DrivenServer) -> None:
    """What the server had to say before it answers this has been heard."""
    client = await server.client()
    for _ in range(3):
        await client.ping()
        await trio.lowlevel.checkpoint()


# prompts


@row("prompts-list")
async def test_a_prompt_is_listed_with_its_name_and_description(server: DrivenServer) -> None:
    client = await server.client()
    listed = {prompt.name: prompt for prompt in await client.list_prompts()}
    assert [argument.name for argument in listed["test_prompt_with_arguments"].arguments or ()] == ["arg1", "arg2"]
    assert all(prompt["name"] and prompt["description"] for prompt in server.wire.result("prompts/list")["prompts"])


@row("prompts-get-simple")
async def test_a_prompt_is_written(server: DrivenServer) -> None:
    client = await server.client()
    (message,) = (await client.get_prompt("test_simple_prompt")).messages
    assert message.role == "user"
    assert message.content == TextContent(text="This is a simple prompt for testing.")


@row("prompts-get-with-args")
async def test_the_arguments_of_a_prompt_are_in_its_messages(server: DrivenServer) -> None:
    client = await server.client()
    arguments = {"arg1": "testValue1", "arg2": "testValue2"}
    (message,) = (await client.get_prompt("test_prompt_with_arguments", arguments)).messages
    assert isinstance(message.content, TextContent)
    assert message.content.text == "Prompt with arguments: arg1='testValue1', arg2='testValue2'"


@row("prompts-get-embedded-resource")
async def test_a_prompt_brings_a_resource_along(server: DrivenServer) -> None:
    client = await server.client()
    name, arguments = "test_prompt_with_embedded_resource", {"resourceUri": "test://example-resource"}
    messages = (await client.get_prompt(name, arguments)).messages
    assert [message.content.type for message in messages] == ["resource", "text"]
    embedded = server.wire.result("prompts/get")["messages"][0]["content"]["resource"]
    assert embedded == {
        "uri": "test://example-resource",
        "mimeType": "text/plain",
        "text": "Embedded resource content.",
    }


@row("prompts-get-with-image")
async def test_a_prompt_brings_an_image_along(server: DrivenServer) -> None:
    client = await server.client()
    messages = (await client.get_prompt("test_prompt_with_image")).messages
    assert [message.content.type for message in messages] == ["image", "text"]
    image = messages[0].content
    assert isinstance(image, ImageContent)
    assert image.mime_type == "image/png"
    assert image.data.startswith("iVBORw0KGgo")
