"""Challenges: the header `WWW-Authenticate`, which says how to authenticate (RFC 9110, 11.6.1).

A header has several challenges, and each has parameters, with the same comma between all of them: only the equals sign tells a
parameter from the name of the next scheme.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ..base.named_tuples import NamedTuple

MAX_CHALLENGES: Final = 8 * 1024
"""Characters of a header that is read."""

# Possessive, so that a header is read in linear time whatever is in it.
_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_NEXT: Final = r"(?=[ \t,]|$)"
_PARAMETER: Final = re.compile(rf'({_NAME})[ \t]*+=[ \t]*+(?:"((?:[^"\\]|\\.)*+)"|({_NAME})){_NEXT}', re.DOTALL)
_SCHEME: Final = re.compile(_NAME + _NEXT)
_TOKEN68: Final = re.compile(r"[A-Za-z0-9._~+/-]++=*+" + _NEXT)
_GAP: Final = re.compile(r"[ \t,]*+")
_SPECIAL: Final = re.compile(r'["\\]')
_ESCAPED: Final = r"\\\g<0>"
_SHOWABLE: Final = re.compile(r"[\t\x20-\x7e]*+")


class Challenge(NamedTuple):
    """One way to authenticate.

    Attributes:
        scheme: in lower case, such as "bearer" or "dpop".
        parameters: their values, by their names in lower case.
    """

    scheme: str
    parameters: Mapping[str, str]

    @property
    def error(self) -> str:
        """The code of the error, such as "invalid_token"; empty if there is none (RFC 6750, 3.1)."""
        return self.parameters.get("error", "")

    @property
    def scope(self) -> str | None:
        """The scopes that the request needs, with spaces between them; None if the challenge does not say."""
        return self.parameters.get("scope")

    @property
    def resource_metadata(self) -> str | None:
        """The URL of the server's metadata; None if the challenge does not say (RFC 9728, 5.1)."""
        return self.parameters.get("resource_metadata")


def parse_challenges(header: str) -> list[Challenge]:
    """Return the challenges of a header, in their order; several headers are read with a comma between them.

    Reading ends where the header is malformed. A parameter that comes twice has its first value. A header of more than
    `MAX_CHALLENGES` characters has no challenges.
    """
    found: list[tuple[str, dict[str, str]]] = []
    place = len(header) if len(header) > MAX_CHALLENGES else _skip(header, 0)
    while place < len(header):
        # Before the name of a scheme: a parameter may be called like one.
        if found and (parameter := _PARAMETER.match(header, place)):
            name, quoted, plain = parameter.groups()
            value: str = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
            found[-1][1].setdefault(name.lower(), value)
            place = _skip(header, parameter.end())
        elif scheme := _SCHEME.match(header, place):
            found.append((scheme[0].lower(), {}))
            place = _skip_token68(header, _skip(header, scheme.end()))
        else:
            break
    return [Challenge(scheme, parameters) for scheme, parameters in found]


def _skip(header: str, place: int) -> int:
    gap = _GAP.match(header, place)
    return place if gap is None else gap.end()


def _skip_token68(header: str, place: int) -> int:
    """Skip what some schemes send in place of parameters, such as that of `Negotiate`."""
    value = _TOKEN68.match(header, place)
    # Without the equals sign it may as well be the name of the next scheme, which costs nothing.
    is_value = value is not None and value[0].endswith("=") and not _PARAMETER.match(header, place)
    return _skip(header, value.end()) if value is not None and is_value else place


def write_challenge(scheme: str, parameters: Mapping[str, str]) -> str:
    """Return a challenge as a header has it.

    Raises:
        ValueError: a value has characters that a header cannot have: only tab and printable ASCII are allowed.
    """
    for name, value in parameters.items():
        if not _SHOWABLE.fullmatch(value):
            raise ValueError(f"the parameter {name} of a challenge has characters that are not printable ASCII")
    pairs = [f'{name}="{_SPECIAL.sub(_ESCAPED, value)}"' for name, value in parameters.items()]
    return f"{scheme} {', '.join(pairs)}" if pairs else scheme
