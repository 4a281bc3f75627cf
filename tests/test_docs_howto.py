"""The program of docs/howto.md runs, and its recipes do what they say."""

from __future__ import annotations

import re
from functools import cache, partial
from pathlib import Path

import pytest
from pages import Names, Page

from trio_mcp import Client, Server, accept
from trio_mcp.providers import ScriptedProvider
from trio_mcp.testing import MockClient, tool_use
from trio_mcp.types import ElicitRequestURLParams, ElicitResult, PromptReference

PAGE = Page("howto")


@cache
def page() -> Names:
    return PAGE.run()


async def test_recipes_for_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "1.png").write_bytes(bytes.fromhex("89504e470d0a1a0a"))
    (tmp_path / "prices.csv").write_text("lamp;40")
    client = MockClient()
    assert [each.type for each in (await client.call(page()["floor_plan"], level=1)).content] == ["image"]
    assert [each.type for each in (await client.call(page()["price_list"])).content] == ["resource"]
    assert (await client.call(page()["list_products"])).data == [{"name": "lamp", "euros": 40.0}]
    assert (await client.call(page()["in_stock"], name="sofa")).data is False
    failed = await client.call(page()["price"], name="sofa")
    assert (failed.is_error, failed.text) == (True, "There is no sofa. Call list_products first.")


async def test_the_recipe_for_a_tool_that_only_reads(mcp_era: str) -> None:
    async with Client.connect(page()["server"], mode=mcp_era) as client:
        hints = {tool.name: tool.annotations for tool in await client.list_tools()}["in_stock"]
    assert hints is not None
    assert hints.read_only_hint


async def test_recipes_for_data_and_prompts(tmp_path: Path, mcp_era: str) -> None:
    async with Client.connect(page()["server"], mode=mcp_era) as client:
        assert (await client.read_resource("orders://7")).text == '{"number":7}'
        prompt = await client.get_prompt("review", {"product": "lamp"})
        assert "lamp" in str(prompt.messages[0].content)
        assert (await client.complete(PromptReference(name="review"), "product", "l")).values == ["lamp"]
    user = MockClient(roots=[tmp_path], era=mcp_era)
    assert (await user.call(page()["list_folders"])).data == [str(tmp_path)]


async def test_recipes_for_sharing(capsys: pytest.CaptureFixture[str]) -> None:
    assert (await MockClient().call(page()["count_orders"])).data == 0
    assert (await MockClient().call(page()["basket"])).text == "The basket of guest is empty."
    assert (await MockClient(principal="ann").call(page()["basket"])).text == "The basket of ann is empty."
    assert "ann calls basket" in capsys.readouterr().out


def visit(names: Names, asked: ElicitRequestURLParams) -> ElicitResult:
    """Open the page, and finish there."""
    names["page_was_finished"](asked.url.partition("state=")[2])
    return accept()


async def test_recipes_that_ask(mcp_era: str) -> None:
    names, era = page(), mcp_era
    await names["test_an_order"](era)
    assert (await MockClient(elicits=[{}], era=era).call(names["delete_order"], number=7)).text == "Deleted."
    assert (await MockClient(samples=["Buy it."], era=era).call(names["describe"], product="lamp")).text == "Buy it."
    priced = await MockClient(samples=[{"name": "lamp", "euros": 9}], era=era).call(names["estimate"], product="lamp")
    assert priced.data == {"name": "lamp", "euros": 9.0}
    bank = MockClient(urls=[partial(visit, names)], era=era)
    assert (await bank.call(names["connect_bank"])).text == "connected"
    makers = MockClient(samples=lambda request: "Acme", era=era)
    assert (await makers.call(names["makers"], names=["a", "b"])).data == ["Acme", "Acme"]


async def test_recipes_for_long_work() -> None:
    client = MockClient()
    assert (await client.call(page()["reindex"])).text == "done"
    assert client.progress[-1].progress == 100
    assert (await client.call(page()["print_label"])).text == "printed"
    assert (await MockClient(elicits=[True]).call(page()["report"], year=2026)).text == "2026 sales, accept"
    assert (await client.call(page()["convert"], euros=2, currency="usd")).data == 2.2
    assert (await client.call(page()["render"], scene="s")).text == "s.png"


async def test_recipes_of_composition() -> None:
    async with Client.connect(page()["stock"]) as client:
        assert [tool.name for tool in await client.list_tools()] == ["get_stock"]
    local = Server("office")
    local.mount("shop", page()["server"])
    async with Client.connect(local) as client:
        assert "shop_order" in [tool.name for tool in await client.list_tools()]


async def test_recipes_of_clients(mcp_era: str) -> None:
    server = page()["server"]
    assert await page()["buy"](server) == 40.0
    assert await page()["buy_for_user"](server) == "Sent to Lisbon."
    provider = ScriptedProvider([tool_use("price", name="lamp"), "It costs 40 euros."])
    async with Client.connect(server, mode=mcp_era) as client:
        assert await page()["shop_for_me"](provider, client) == "It costs 40 euros."


def test_the_table_at_the_top_leads_to_every_recipe() -> None:
    recipes = set(re.findall(r"^### (.*)$", PAGE.text, re.MULTILINE))
    linked = set(re.findall(r"\]\(#([\w-]+)\)", PAGE.text.split("\n## ")[0]))
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in recipes}
    assert slugs - linked == set()


def test_every_recipe_is_short() -> None:
    for block in PAGE.blocks:
        code = [
            line for line in block.splitlines() if line and not line.startswith(("from ", "import ", "#", '    """'))
        ]
        assert len(code) <= 30, block
