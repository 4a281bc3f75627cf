"""The answers of a user: to a form, and to a page that was opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, Never, TypeAlias

from typing_extensions import TypeVar

from .. import server
from .exchanges import ElicitExchange

C = TypeVar("C")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
C_co = TypeVar("C_co", default=None, covariant=True)


@dataclass(frozen=True, slots=True)
class Accepted(Generic[T_co, C_co]):
    """The user answered; `content` is the validated value.

    Attributes:
        exchange: the question and the answer as messages for a model.
    """

    content: T_co
    exchange: ElicitExchange[C_co] = field(repr=False)
    action: Literal["accept"] = "accept"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            raise server.other_names.missing("Accepted", name, server.other_names.OF_ACCEPTED)

    @property
    def context(self) -> C_co:
        """The context that was given with the question; None if its `Elicit` has none."""
        return self.exchange.context


@dataclass(frozen=True, slots=True)
class Declined:
    """The user declined to answer."""

    action: Literal["decline"] = "decline"


@dataclass(frozen=True, slots=True)
class Dismissed:
    """The user closed the question without choosing."""

    action: Literal["cancel"] = "cancel"


Elicited: TypeAlias = Accepted[T, None] | Declined | Dismissed
"""What `ctx.elicit` returns; check `.action`."""

KeyedElicited: TypeAlias = Accepted[T, C] | Declined | Dismissed
"""What `ctx.elicit` returns for an `Elicit` with a context; the parameters are the answer's type and the context's."""


@dataclass(frozen=True, slots=True)
class UrlAccepted:
    """The user opened the page and finished there; with `wait=False`, the user agreed to open it.

    Attributes:
        elicitation_id: names the visit, for `Server.complete_elicitation`.
    """

    elicitation_id: str
    action: Literal["accept"] = "accept"


UrlElicited: TypeAlias = UrlAccepted | Declined | Dismissed
"""What `ctx.elicit_url` returns; check `.action`."""
