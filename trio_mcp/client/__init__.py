"""Calling servers: `Client`, and the handlers that answer their questions."""

from ..session.subscriptions import Change, ChangeKind
from .cache import CacheStatistics, ResponseCache
from .changes import Changes, OnChange
from .client import Client
from .elicit_router import ElicitRouter
from .handlers import (
    Handlers,
    OnDisconnect,
    OnElicit,
    OnElicitUrl,
    OnLog,
    OnRoots,
    accept,
    accept_defaults,
    decline,
    dismiss,
)
from .options import MAX_ROUNDS, ClientOptions, ConnectKeywords
from .sampling import ApproveSample, OnSample
from .task_methods import ClientTask, TaskChanges

__all__ = [
    "MAX_ROUNDS",
    "ApproveSample",
    "CacheStatistics",
    "Change",
    "ChangeKind",
    "Changes",
    "Client",
    "ClientOptions",
    "ClientTask",
    "ConnectKeywords",
    "ElicitRouter",
    "Handlers",
    "OnChange",
    "OnDisconnect",
    "OnElicit",
    "OnElicitUrl",
    "OnLog",
    "OnRoots",
    "OnSample",
    "ResponseCache",
    "TaskChanges",
    "accept",
    "accept_defaults",
    "decline",
    "dismiss",
]
