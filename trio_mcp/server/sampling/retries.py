"""How often a model is asked again after an answer that is not what was asked for."""

from typing import Final

RETRIES: Final = 2
"""How often a model is asked again, unless the author says otherwise."""

MAX_RETRIES: Final = 99
"""More are a mistake: each costs tokens, and a requirement that no answer meets must not keep a model busy for ever."""
