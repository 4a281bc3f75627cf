"""The code of docs/limits.md runs, and the options that its tables name exist."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from pages import Page

from trio_mcp import ServiceOptions, TaskOptions
from trio_mcp.base.shared_limits import RUNNING_CALLS
from trio_mcp.errors import LimitExceeded
from trio_mcp.http import HttpLimits
from trio_mcp.runtime import Limits
from trio_mcp.runtime.quota import Quota
from trio_mcp_transports.hypercorn.config import ConnectionLimits

PAGE = Page("limits")
OPTIONS = {each.__name__: each for each in (HttpLimits, ServiceOptions, TaskOptions, Limits, ConnectionLimits)}
NAMED = re.findall(r"(HttpLimits|ServiceOptions|TaskOptions|ConnectionLimits|Limits)(?:\.|\()(\w+)", PAGE.text)


def test_the_code_of_the_page_runs() -> None:
    server = PAGE.run()["server"]
    assert server.options.memory.total == 256 * 1024 * 1024


@pytest.mark.parametrize(("owner", "option"), sorted(set(NAMED)))
def test_an_option_that_the_page_names_exists(owner: str, option: str) -> None:
    assert option in {field.name for field in fields(OPTIONS[owner])}


def test_calls_are_shared_as_the_example_says() -> None:
    assert "actors=8" in PAGE.prose
    quota = Quota(RUNNING_CALLS, 8)
    for caller, most in (("ann", 4), ("bob", 2)):
        for _ in range(most):
            quota.take(caller)
        with pytest.raises(LimitExceeded):
            quota.take(caller)


def test_what_people_change_comes_first() -> None:
    first, second, *_ = re.findall(r"^## (.*)$", PAGE.text, re.MULTILINE)
    assert (first, second) == ("What you are most likely to change", "How to read the tables")
