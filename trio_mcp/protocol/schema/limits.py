"""The limits of schemas, and of what one check may cost."""

from __future__ import annotations

from typing import Final

MAX_BYTES: Final = 256 * 1024
"""The largest schema, as compact JSON."""
MAX_DEPTH: Final = 64
"""How deep arrays and objects of a schema may be nested."""
MAX_SUBSCHEMAS: Final = 10_000
"""The most schemas within one schema, itself included."""
MAX_STEPS: Final = 100_000
"""What one check may cost: about one step for each keyword at each value."""
