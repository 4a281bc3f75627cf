"""URIs, paths and media types are compared by what they mean, and not by how they are spelled."""

from __future__ import annotations

import pytest
import trio
from naming import naming

from trio_mcp import Client, Server
from trio_mcp.errors import PeerError
from trio_mcp.types import ResourceTemplateReference

server = Server("spelled")


@server.resource("Config://App/Settings")
def settings() -> str:
    return "settings"


@server.resource("https://API.example.com/users/{Name}")
def user(Name: str) -> str:  # noqa: N803
    return Name


@server.complete(argument="Name", resource="https://API.example.com/users/{Name}")
def names(value: str) -> list[str]:
    return ["Ann"]


outer = Server("outer")
outer.mount("In", server)


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("Config://App/Settings", "settings"),
        ("config://app/Settings", "settings"),
        ("CONFIG://app/x/../%53ettings", "settings"),
        ("https://API.example.com/users/Ann", "Ann"),
        ("https://api.example.com:443/users/%41nn", "Ann"),
    ],
)
async def test_a_resource_is_read_in_any_spelling_of_its_uri(mode: str, uri: str, text: str) -> None:
    async with Client.connect(server, mode=mode) as client:
        assert (await client.read_resource(uri)).text == text


@pytest.mark.parametrize(
    "uri", ["config://In/App/Settings", "config://in/App/Settings", "https://in/api.example.com/users/x"]
)
async def test_a_mounted_resource_has_a_name_that_is_the_same_in_any_spelling(uri: str) -> None:
    async with Client.connect(outer) as client:
        assert {str(each.uri) for each in await client.list_resources()} == {"Config://In/App/Settings"}
        if "api" not in uri:
            assert (await client.read_resource(uri)).text == "settings"


async def test_another_path_is_another_resource() -> None:
    async with Client.connect(server) as client:
        with pytest.raises(PeerError):
            await client.read_resource("config://app/settings")
        completion = await client.complete(
            ResourceTemplateReference(uri="https://api.example.com/users/{Name}"), "Name", ""
        )
        assert list(completion.values) == ["Ann"]


def test_two_resources_that_are_one_are_refused_at_registration() -> None:
    again = Server("again")
    again.resource("http://example.com/A")(settings)
    for uri in ("HTTP://EXAMPLE.COM:80/A", "http://example.com/%41"):
        with pytest.raises(ValueError, match=naming("http://example.com/A")):
            again.resource(uri)(settings)
    again.remove_resource("http://Example.com/A")
    again.resource("http://example.com/%41")(settings)


@pytest.mark.parametrize(
    ("changed", "watched"), [("a://X/b", "A://x/b"), ("A://x/b", "a://x/b"), ("A://X/b", "a://X/b")]
)
async def test_a_subscriber_hears_of_a_change_in_its_own_spelling(mode: str, changed: str, watched: str) -> None:
    changing = Server("changing")
    changing.resource("a://x/b")(settings)
    async with Client.connect(changing, mode=mode) as client:
        with trio.fail_after(5):
            async with client.listen(uris=[watched]) as changes:
                changing.resource_updated(changed)
                async for change in changes:
                    assert change.uri == watched
                    break
