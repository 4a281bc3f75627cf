"""Proxies between a host and an MCP server."""

from .answers import Backfill, OnForm
from .proxies import Proxy, proxy
from .server import RelayServer
from .session import Connect

__all__ = ["Backfill", "Connect", "OnForm", "Proxy", "RelayServer", "proxy"]
