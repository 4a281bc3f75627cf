"""Testing your own tools and transports. Each name is loaded when it is first used.

`MockClient` calls a tool and answers its questions from a script, `make_context` makes a context for a function that takes one,
`replay_tool` replays a call at every leg, and `TestIssuer` issues access tokens. Two packages have more: `sweep` interrupts a
scenario at every step, and `contract` has the rules that every transport must obey.
"""

# Loaded when used, because the mock client and `replay` import the client and the server, and a test of a transport needs only
# one of them.

from typing import TYPE_CHECKING

from ..base import late

if TYPE_CHECKING:
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
            "issuer": "TestIssuer",
            "mock": (
                "Delay Disconnect ElicitScript MockClient Never Question SampleScript SecondWorker Target "
                "UrlScript make_context tool_use unchecked_tool_use"
            ),
            "replay": "ReplayReport replay_tool",
        },
    )
