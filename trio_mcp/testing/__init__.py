"""What authors of tools need to test them."""

from .replay import ReplayReport, replay_tool

__all__ = ["ReplayReport", "replay_tool"]
