"""The rules of the contract, by group. Importing this package registers them."""

from ..rules import ELICITS, LEGACY, MODERN, Case, Rule, all_rules, cases_of, newest_of_each_era, rule
from . import base, calls, lifecycle, losses, peers, streaming, structured, wires

__all__ = [
    "ELICITS",
    "LEGACY",
    "MODERN",
    "Case",
    "Rule",
    "all_rules",
    "base",
    "calls",
    "cases_of",
    "lifecycle",
    "losses",
    "newest_of_each_era",
    "peers",
    "rule",
    "streaming",
    "structured",
    "wires",
]
