"""Helpers that the tools of several groups share."""

from __future__ import annotations

from pydantic import BaseModel

from ....server import Context


class Seat(BaseModel):
    """The form that the contract's tools ask with."""

    row: int
    window: bool = False


def reason_of(ctx: Context) -> str:
    """Return why a call was cancelled, as part of a mark."""
    return "done" if ctx.cancel_reason is None else ctx.cancel_reason
