"""Trio and asyncio in one program: awaiting Trio functions on asyncio, and asyncio code on Trio."""

from .asyncio_call import AsyncioCall
from .guest import Guest, hold_guest
from .hosts import Host
from .to_asyncio import current_host
from .trio_call import TrioCall

__all__ = ["AsyncioCall", "Guest", "Host", "TrioCall", "current_host", "hold_guest"]
