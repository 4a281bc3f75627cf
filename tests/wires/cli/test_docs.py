"""The examples of docs/cli.md print what it says."""

from __future__ import annotations

import re
import shlex

import pytest
from command import ROOT, trio_mcp

CONSOLE = re.compile(r"```console\n\$ trio-mcp (.*)\n((?:.*\n)*?)```")
EXAMPLES = CONSOLE.findall((ROOT / "docs" / "cli.md").read_text())


@pytest.mark.parametrize(("command", "printed"), EXAMPLES)
def test_an_example_prints_what_the_page_says(command: str, printed: str) -> None:
    done = trio_mcp(*shlex.split(command))
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
