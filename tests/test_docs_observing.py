"""The code of docs/observing.md is one program, and shows what the page says."""

from __future__ import annotations

import inspect
import json

import httpx2
import pytest
import trio
from pages import Names, Page
from peer import EVERYTHING
from serving import served
from talk import ERAS, Legacy, Talk, talk_to
from trio.testing import wait_all_tasks_blocked

from trio_mcp.session import CallState, Service, ServiceTree

PAGE = Page("observing")
BOUND = 20.0


@pytest.fixture
def page() -> Names:
    return PAGE.run()


@pytest.mark.parametrize("era", ERAS, ids=lambda era: era.era)
async def test_the_branches_are_shown_as_on_the_page(page: Names, era: type[Legacy]) -> None:
    async with talk_to(page["server"], principal="alice") as talk:
        await era(talk, EVERYTHING).call("plan_trip", {"city": "Lisbon"})
        await wait_all_tasks_blocked()
        shown = str(talk.service.tree())
    for line in (
        "branch 1 find_flights: waits for the model (sample)",
        "branch 2 choose_hotel: waits for the user (elicit)",
    ):
        assert line in shown
        assert line in PAGE.text
    assert "principal alice" in shown
    assert "Lisbon" not in shown


async def test_a_route_shows_the_tree(page: Names) -> None:
    with trio.fail_after(BOUND):
        async with served(page["server"]) as url, httpx2.AsyncClient() as http:
            (tree,) = (await http.get(url.replace("/mcp", "/tree"))).json()
    assert (tree["name"], tree["clients"]) == ("travel", [])


async def test_the_metrics_are_numbers(page: Names) -> None:
    async with talk_to(page["server"]) as talk:
        await Legacy(Talk(talk.service), EVERYTHING).call("plan_trip", {"city": "Lisbon"})
        await wait_all_tasks_blocked()
        metrics = page["metrics"]("travel")
    assert (metrics["travel_running"], metrics["travel_parked"], metrics["travel_open_questions"]) == (1, 0, 2)
    assert json.loads(json.dumps(metrics)) == metrics


def test_the_page_has_every_state_and_the_limits_of_the_code() -> None:
    assert [state for state in CallState if f"| `{state.value}` |" not in PAGE.text] == []
    for name, option in list(inspect.signature(Service.tree).parameters.items())[1:]:
        assert f"`{name}=` ({option.default})" in PAGE.text
    empty = ServiceTree("travel", "1.0", 0, 0, 0, 0, (), 9900)
    assert str(empty).splitlines()[-1].removeprefix("└─ ") in PAGE.text
