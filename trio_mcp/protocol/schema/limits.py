"""The limits of schemas, and of what one check may cost."""

from __future__ import annotations

from typing import Final


class CheckTooExpensive(Exception):
    """A check was given up that takes too long to be made in one go."""


MAX_BYTES: Final = 256 * 1024
"""The largest schema, as compact JSON."""
MAX_DEPTH: Final = 64
"""How deep arrays and objects of a schema may be nested."""
MAX_SUBSCHEMAS: Final = 10_000
"""The most schemas within one schema, itself included."""
MAX_STEPS: Final = 100_000
"""What one check may cost: about one step for each keyword at each value."""
MAX_FRAMES: Final = 600
"""How many frames of the stack the nested keywords of one check may take: Python has 1,000, and the caller some of them."""

QUICK_STEPS: Final = 2_000
"""What a check may cost that is made in one go: some ten milliseconds."""
QUICK_VALUES: Final = 2_000
"""How many values a value may hold for that."""
STEPS_WITHOUT_PAUSE: Final = 200
"""Steps after which a check that is made beside other work pauses: about a millisecond."""
