"""Every rule that our transports follow: importing this registers those of this folder beside those of the package."""

from trio_mcp.testing.contract import all_rules

from . import calls, rounds

__all__ = ["all_rules", "calls", "rounds"]
