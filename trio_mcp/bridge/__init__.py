"""Trio and asyncio in one program: awaiting Trio functions on asyncio, and asyncio code on Trio."""

from .from_asyncio import TrioCall
from .guest import Guest, hold_guest
from .to_asyncio import AsyncioCall

__all__ = ["AsyncioCall", "Guest", "TrioCall", "hold_guest"]
