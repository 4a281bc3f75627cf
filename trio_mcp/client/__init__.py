"""Calling servers: `Client`, and what answers their questions."""

from .cache import CacheStatistics, ResponseCache
from .changes import Change, ChangeKind, Changes, OnChange
from .client import Client
from .handlers import (
    Handlers,
    OnElicit,
    OnElicitUrl,
    OnLog,
    OnRoots,
    OnSample,
    accept,
    accept_defaults,
    decline,
    dismiss,
)
from .rounds import MAX_ROUNDS

__all__ = [
    "MAX_ROUNDS",
    "CacheStatistics",
    "Change",
    "ChangeKind",
    "Changes",
    "Client",
    "Handlers",
    "OnChange",
    "OnElicit",
    "OnElicitUrl",
    "OnLog",
    "OnRoots",
    "OnSample",
    "ResponseCache",
    "accept",
    "accept_defaults",
    "decline",
    "dismiss",
]
