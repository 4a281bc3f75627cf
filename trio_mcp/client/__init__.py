"""Calling servers: `Client`, and what answers their questions."""

from .cache import CacheStatistics as CacheStatistics, ResponseCache as ResponseCache
from .calls import MAX_ROUNDS as MAX_ROUNDS
from .changes import Change as Change, ChangeKind as ChangeKind, Changes as Changes, OnChange as OnChange
from .client import Client as Client
from .handlers import (
    Handlers as Handlers,
    OnElicit as OnElicit,
    OnElicitUrl as OnElicitUrl,
    OnLog as OnLog,
    OnRoots as OnRoots,
    OnSample as OnSample,
    accept as accept,
    accept_defaults as accept_defaults,
    decline as decline,
    dismiss as dismiss,
)
from .options import ClientOptions as ClientOptions
