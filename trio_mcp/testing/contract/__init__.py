"""The streaming contract: rules that every MCP transport must follow, and the cases that test a transport against them.

The test module of a transport defines a class like `Maker`, and

    @pytest.mark.parametrize("case", cases_of(MyMaker()), ids=str)
    def test_contract(case: Case) -> None:
        case.run()

Each case runs in a new Trio loop, in bounded time (virtual if it waits for no socket or process). It fails if anything is left
behind: tasks, threads, descriptors, child processes, warnings, or state of a call at the server.

Names are loaded when they are first used: the server of a case may be a separate process, which needs few of them.
"""

from typing import TYPE_CHECKING

from ...base import late

if TYPE_CHECKING:
    from .makers import IMPOSSIBLE as IMPOSSIBLE, Endpoint as Endpoint, Maker as Maker, Trait as Trait
    from .pair import Pair as Pair
    from .peer import (
        EVERYTHING as EVERYTHING,
        Call as Call,
        Peer as Peer,
        Question as Question,
        accepted as accepted,
        text_of as text_of,
    )
    from .proxy import Proxy as Proxy, open_proxy as open_proxy
    from .rules import (
        ELICITS as ELICITS,
        LEGACY as LEGACY,
        MODERN as MODERN,
        Case as Case,
        Rule as Rule,
        all_rules as all_rules,
        cases_of as cases_of,
        newest_of_each_era as newest_of_each_era,
        rule as rule,
    )
    from .stage import (
        Gauges as Gauges,
        Stage as Stage,
        linked_stage as linked_stage,
        open_stage_port as open_stage_port,
    )
    from .store.cases import (
        Opened as Opened,
        StoreCase as StoreCase,
        StoreMaker as StoreMaker,
        StoreRule as StoreRule,
        StoreTrait as StoreTrait,
        all_store_rules as all_store_rules,
        store_cases_of as store_cases_of,
        store_rule as store_rule,
    )
    from .subject import contract_server as contract_server, contract_tools as contract_tools
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "makers": "IMPOSSIBLE Endpoint Maker Trait",
            "pair": "Pair",
            "peer": "EVERYTHING Call Peer Question accepted text_of",
            "proxy": "Proxy open_proxy",
            "groups": "ELICITS LEGACY MODERN Case Rule all_rules cases_of newest_of_each_era rule",
            "stage": "Gauges Stage linked_stage open_stage_port",
            "store": ("Opened StoreCase StoreMaker StoreRule StoreTrait all_store_rules store_cases_of store_rule"),
            "subject": "contract_server contract_tools",
        },
    )
