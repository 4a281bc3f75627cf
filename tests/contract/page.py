"""The tables of docs/internals/contract.md. After a rule or a transport changed, this updates them:

PYTHONPATH=tests:tests/transports python tests/contract/page.py
"""

from __future__ import annotations

import re
from pathlib import Path

from makers import ALL_MAKERS
from table import rules_table

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "contract.md"
TABLES = re.compile(r"(?<=<!-- the tables -->\n).*(?=<!-- the end of the tables -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """The page with the tables as they should be."""
    assert TABLES.search(page), "the page has no place for the tables"
    return TABLES.sub(lambda _: f"\n{rules_table(ALL_MAKERS)}\n", page)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
