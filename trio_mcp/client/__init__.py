"""Calling servers: `Client`, and the handlers that answer its questions."""

from typing import TYPE_CHECKING

from ..base import late

if TYPE_CHECKING:
    from ..session.subscriptions import Change as Change, ChangeKind as ChangeKind
    from .cache import CacheStatistics as CacheStatistics, ResponseCache as ResponseCache
    from .changes import Changes as Changes, OnChange as OnChange
    from .client import Client as Client
    from .elicit_router import ElicitRouter as ElicitRouter
    from .handlers import (
        Handlers as Handlers,
        OnDisconnect as OnDisconnect,
        OnElicit as OnElicit,
        OnElicitUrl as OnElicitUrl,
        OnLog as OnLog,
        OnRoots as OnRoots,
        accept as accept,
        accept_defaults as accept_defaults,
        decline as decline,
        dismiss as dismiss,
    )
    from .options import (
        MAX_ROUNDS as MAX_ROUNDS,
        ClientKeywords as ClientKeywords,
        ClientOptions as ClientOptions,
        ConnectKeywords as ConnectKeywords,
    )
    from .sampling import ApproveSample as ApproveSample, OnSample as OnSample
    from .task_methods import ClientTask as ClientTask, TaskChanges as TaskChanges
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "cache": "CacheStatistics ResponseCache",
            "changes": "Changes OnChange",
            "client": "Client",
            "elicit_router": "ElicitRouter",
            "handlers": (
                "Handlers OnDisconnect OnElicit OnElicitUrl OnLog OnRoots accept accept_defaults decline dismiss"
            ),
            "options": "ClientKeywords ClientOptions ConnectKeywords MAX_ROUNDS",
            "sampling": "ApproveSample OnSample",
            "task_methods": "ClientTask TaskChanges",
            "trio_mcp.session.subscriptions": "Change ChangeKind",
        },
    )
