"""What registration costs, and what it rejects before anything is served."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from trio_mcp import Server
from trio_mcp.server.catalog import Catalog
from trio_mcp.server.registration import home_of, remember_home


def allocated(count: int) -> int:
    """Return how many bytes `count` additions allocate, those that are freed again included."""
    catalog: Catalog[int] = Catalog("tool", lambda: None)
    total = 0
    tracemalloc.start()
    try:
        for number in range(count):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            catalog.add(f"tool_{number}", number)
            total += tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert len(catalog) == count
    return total


def test_the_cost_of_n_registrations_is_linear() -> None:
    # Ten times as many tools cost about ten times as much; if each addition copied the table, a hundred times.
    assert allocated(2_000) < 25 * allocated(200)


def test_a_reader_keeps_the_items_it_began_with() -> None:
    catalog: Catalog[str] = Catalog("tool", lambda: None)
    for name in "abc":
        catalog.add(name, name)
    reader = iter(catalog)
    assert next(reader) == "a"
    catalog.remove("b")
    catalog.add("d", "d")
    assert list(reader) == ["b", "c"]
    assert list(catalog) == ["a", "c", "d"]


def test_items_after_a_number_are_in_order_and_a_number_is_never_reused() -> None:
    catalog: Catalog[str] = Catalog("tool", lambda: None)
    for name in "abc":
        catalog.add(name, name)
    catalog.remove("c")
    catalog.add("d", "d")
    assert [(each.number, each.item) for each in catalog.after(1)] == [(2, "b"), (4, "d")]
    assert catalog.after(3) == catalog.after(2)
    assert list(catalog.after(4)) == []


class Search:
    """A class with a constructor that could be read as a signature."""

    def __init__(self, query: str) -> None:
        self.query = query


def complete(server: Server, function: Any) -> None:
    @server.prompt
    def review(language: str) -> str:
        return language

    server.complete(prompt="review", argument="language")(function)


@pytest.mark.parametrize(
    "register",
    [
        pytest.param(lambda server, function: server.tool(function), id="tool"),
        pytest.param(lambda server, function: server.tool(name="search")(function), id="tool with options"),
        pytest.param(lambda server, function: server.add_tool(function), id="add_tool"),
        pytest.param(lambda server, function: server.prompt(function), id="prompt"),
        pytest.param(lambda server, function: server.resource("search://{query}")(function), id="resource"),
        pytest.param(complete, id="completion"),
    ],
)
def test_a_class_is_rejected_by_name_with_what_to_write(register: Callable[[Server, Any], None]) -> None:
    server = Server("classes")
    with pytest.raises(TypeError, match=r"Search is a class.*register a function") as caught:
        register(server, Search)
    assert "Search(" in str(caught.value)
    assert server.tools == ()


class Shouting:
    """Follows a catalog of texts in capital letters."""

    def key(self, key: str, /) -> str:
        return key.upper()

    def item(self, item: str, /) -> str:
        if not item:
            raise ValueError("nothing to shout")
        return item.upper()


def test_a_catalog_follows_another_one_or_neither_changes() -> None:
    changes: list[str] = []
    quiet: Catalog[str] = Catalog("word", lambda: changes.append("quiet"), "the quiet one")
    loud: Catalog[str] = Catalog("word", lambda: changes.append("loud"), "the loud one")
    loud.add("B", "own")
    quiet.add("a", "x")
    loud.follow(quiet, Shouting())
    changes.clear()
    quiet.add("c", "y")
    assert (list(loud), changes) == (["own", "X", "Y"], ["quiet", "loud"])
    quiet.replace("a", "z")
    assert (list(quiet), list(loud)) == (["z", "y"], ["own", "Z", "Y"])
    for key, item in (("b", "taken there"), ("d", "")):
        with pytest.raises(ValueError):
            quiet.add(key, item)
    with pytest.raises(ValueError):
        quiet.replace("a", "")
    with pytest.raises(LookupError):
        quiet.replace("nothing", "x")
    assert (list(quiet), list(loud)) == (["z", "y"], ["own", "Z", "Y"])
    quiet.remove("a")
    assert (list(quiet), list(loud)) == (["y"], ["own", "Y"])


def first_one() -> str:  # the first
    """Be the first."""
    return "first"


def second_one() -> str:
    """Be the second."""
    return "second"


@pytest.mark.parametrize(
    "add",
    [
        lambda server, function: server.add_tool(function, name="same"),
        lambda server, function: server.add_prompt(function, name="same"),
        lambda server, function: server.add_resource("same://one", function),
        lambda server, function: server.add_tool(partial(function), name="same"),
    ],
    ids=["tool", "prompt", "resource", "partial"],
)
def test_a_name_that_is_taken_is_an_error_with_the_line_of_the_first(add: Callable[[Server, object], object]) -> None:
    server = Server("shop")
    add(server, first_one)
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# the first"))
    with pytest.raises(ValueError, match=f"same.*{re.escape(__file__)}:{line}"):
        add(server, second_one)
    assert len([*server.tools, *server.prompts, *server.resources]) == 1


def test_a_callable_that_has_no_hash_is_registered_without_being_remembered() -> None:
    class Odd:
        __hash__ = None

        def __call__(self) -> int:
            return 1

    odd, server = Odd(), Server("first")
    remember_home(odd, server)
    assert home_of(odd) is None
