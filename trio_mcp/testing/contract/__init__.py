"""The streaming contract: rules that every MCP transport must follow, and the cases that test a transport against them.

The test module of a transport defines a class like `Maker`, and

    @pytest.mark.parametrize("case", cases_of(MyMaker()), ids=str)
    def test_contract(case: Case) -> None:
        case.run()

Each case runs in a new Trio loop, in bounded time (virtual if it waits for no socket or process). It fails if anything is left
behind: tasks, threads, descriptors, child processes, warnings, or state of a call at the server.

Names are loaded when they are first used: the server of a case may be a separate process, which needs few of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import groups
    from .makers import IMPOSSIBLE, Endpoint, Maker, Trait
    from .pair import Pair
    from .peer import EVERYTHING, Call, Peer, Question, accepted, text_of
    from .proxy import Proxy, open_proxy
    from .rules import (
        ELICITS,
        LEGACY,
        MODERN,
        Case,
        Impossible,
        Rule,
        all_rules,
        cases_of,
        impossible_of,
        newest_of_each_era,
        rule,
    )
    from .stage import Gauges, Stage, linked_stage, open_stage_port
    from .store.cases import (
        Opened,
        StoreCase,
        StoreMaker,
        StoreRule,
        StoreTrait,
        all_store_rules,
        store_cases_of,
        store_rule,
    )
    from .subject import contract_server, lent_server
    from .table import rules_table

__all__ = [
    "ELICITS",
    "EVERYTHING",
    "IMPOSSIBLE",
    "LEGACY",
    "MODERN",
    "Call",
    "Case",
    "Endpoint",
    "Gauges",
    "Impossible",
    "Maker",
    "Opened",
    "Pair",
    "Peer",
    "Proxy",
    "Question",
    "Rule",
    "Stage",
    "StoreCase",
    "StoreMaker",
    "StoreRule",
    "StoreTrait",
    "Trait",
    "accepted",
    "all_rules",
    "all_store_rules",
    "cases_of",
    "contract_server",
    "groups",
    "impossible_of",
    "lent_server",
    "linked_stage",
    "newest_of_each_era",
    "open_proxy",
    "open_stage_port",
    "rule",
    "rules_table",
    "store_cases_of",
    "store_rule",
    "text_of",
]

_MODULES = {
    "makers": ("IMPOSSIBLE", "Endpoint", "Maker", "Trait"),
    "pair": ("Pair",),
    "peer": ("EVERYTHING", "Call", "Peer", "Question", "accepted", "text_of"),
    "proxy": ("Proxy", "open_proxy"),
    "rules": (
        "ELICITS",
        "LEGACY",
        "MODERN",
        "Case",
        "Impossible",
        "Rule",
        "cases_of",
        "impossible_of",
        "newest_of_each_era",
        "all_rules",
        "rule",
    ),
    "stage": ("Gauges", "Stage", "linked_stage", "open_stage_port"),
    "store": (
        "Opened",
        "StoreCase",
        "StoreMaker",
        "StoreRule",
        "StoreTrait",
        "all_store_rules",
        "store_cases_of",
        "store_rule",
    ),
    "subject": ("contract_server", "lent_server"),
    "table": ("rules_table",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    groups = import_module(".groups", __name__)  # registers all rules
    return groups if name == "groups" else getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
