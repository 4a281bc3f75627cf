"""The code of docs/composition.md is one program, and does what the page says."""

from __future__ import annotations

import pytest
import trio
from pages import Names, Page

from trio_mcp import Client, Server, accept
from trio_mcp.errors import ConfigurationError
from trio_mcp.relay.host_links import IDLE_SECONDS
from trio_mcp.relay.proxies import START_SECONDS
from trio_mcp.relay.server import MAX_SESSIONS
from trio_mcp_transports.http import asgi_app

PAGE = Page("composition")
BOUND = 20.0


@pytest.fixture
def page() -> Names:
    return PAGE.run()


async def test_the_program_prints_what_it_says(page: Names, capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(BOUND):
        await page["main"]()
    assert capsys.readouterr().out.splitlines() == [
        "['local_write', 'far_write']",
        "There are 2 notes.",
        "notes://local/later",
    ]


@pytest.mark.parametrize("mode", ["legacy", "modern"])
async def test_the_desk_has_what_the_table_says(page: Names, mode: str) -> None:
    with trio.fail_after(BOUND):
        async with Client.connect(page["desk"], mode=mode, on_elicit=lambda _q: accept(value="x")) as client:
            assert [tool.name for tool in await client.list_tools()] == ["my_write"]
            assert [each.uri_template for each in await client.list_resource_templates()] == ["notes://my/{title}"]
            assert (await client.call_tool("my_write", {"text": "a"})).text == "There are 2 notes."
            assert (await client.read_resource("notes://my/x")).contents[0].uri == "notes://my/x"


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"at most {START_SECONDS:g} seconds" in PAGE.prose
    assert f"max_sessions={MAX_SESSIONS})" in PAGE.prose
    assert "five minutes" in PAGE.prose
    assert IDLE_SECONDS == 5 * 60


def test_a_server_in_itself_is_refused_as_the_page_says(page: Names) -> None:
    with pytest.raises(ValueError, match="desk"):
        page["notes"].mount("x", page["desk"])
    with pytest.raises(ValueError, match="my"):
        page["desk"].mount("my", Server("other"))


def test_servers_by_path_are_where_the_page_says(page: Names) -> None:
    assert [endpoint for endpoint, _ in page["app"].endpoints()] == ["/notes/mcp", "/desk/mcp"]
    public = asgi_app({"/public": page["public"]})
    assert [endpoint for endpoint, _ in public.endpoints()] == ["/public"]


def test_a_hub_that_authenticates_is_served_with_what_sends_credentials(page: Names) -> None:
    assert asgi_app(page["guarded_hub"]).options.authenticate is page["authenticate"]
    with pytest.raises(ConfigurationError):
        asgi_app(page["shared"])
