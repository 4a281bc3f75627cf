"""Testing your own tools and transports. Each name is loaded when it is first used.

`MockClient` calls a tool and answers its questions from a script, `make_context` makes a context for a function that takes one,
`replay_tool` replays a call at every leg, `sweep` interrupts a scenario at every step, and `TestIssuer` issues access tokens. The
package `contract` has the rules that every transport and every store must obey.
"""

# Loaded when used, because the mock client and `replay` import the client and the server, and a test of a transport needs only
# one of them.

from typing import TYPE_CHECKING

from ..base import late

if TYPE_CHECKING:
    from .interruptions.run import Play as Play, Strike as Strike, Way as Way
    from .interruptions.sweeping import (
        Effects as Effects,
        Problem as Problem,
        SweepReport as SweepReport,
        sweep as sweep,
        sweep_play as sweep_play,
    )
    from .issuer import TestIssuer as TestIssuer
    from .mock import (
        Delay as Delay,
        Disconnect as Disconnect,
        ElicitScript as ElicitScript,
        MockClient as MockClient,
        Never as Never,
        Question as Question,
        SampleScript as SampleScript,
        SecondWorker as SecondWorker,
        Target as Target,
        UrlScript as UrlScript,
        make_context as make_context,
        tool_use as tool_use,
        unchecked_tool_use as unchecked_tool_use,
    )
    from .replay import ReplayReport as ReplayReport, replay_tool as replay_tool
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "interruptions.run": "Play Strike Way",
            "interruptions.sweeping": "Effects Problem SweepReport sweep sweep_play",
            "issuer": "TestIssuer",
            "mock": (
                "Delay Disconnect ElicitScript MockClient Never Question SampleScript SecondWorker Target "
                "UrlScript make_context tool_use unchecked_tool_use"
            ),
            "replay": "ReplayReport replay_tool",
        },
    )
