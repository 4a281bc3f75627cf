"""Calling servers: `Client`, and what answers their questions."""

from .client import Client
from .handlers import Handlers, OnElicit, OnLog, OnRoots, OnSample, accept, decline, dismiss
from .rounds import MAX_ROUNDS

__all__ = [
    "MAX_ROUNDS",
    "Client",
    "Handlers",
    "OnElicit",
    "OnLog",
    "OnRoots",
    "OnSample",
    "accept",
    "decline",
    "dismiss",
]
