"""Answering for the person and for the model: as the command line says, else by asking at the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from ..errors import PeerError
from ..types import (
    CreateMessageRequestParams,
    ElicitRequestFormParams,
    ElicitResult,
    ElicitValue,
    PrimitiveSchemaDefinition,
    TextContent,
)
from .errors import CommandError, Status
from .fields import default_text, hint, read_field
from .output import note
from .terminal import Terminal

KEYS = "  (Enter takes what stands in [brackets]; !decline says no; Ctrl-D closes the question)"
REJECTED = -1
"""The code of a sampling request that the user rejected (L-SMP-3b)."""


class NotAccepted(Exception):
    """The person gave no values, but said no or closed the question, whichever `result` says."""

    def __init__(self, result: ElicitResult) -> None:
        super().__init__(result.action)
        self.result = result


DECLINED = ElicitResult(action="decline")
DISMISSED = ElicitResult(action="cancel")


class Answering:
    """What answers a server's questions, one after another.

    Args:
        answers: values for fields of forms, by name; the first is used first, the last one again and again.
        sample: what the model says, whatever it is asked.

    Attributes:
        server: who asks.
        problem: what was wrong with an answer from the command line; the question it was for was closed.
    """

    def __init__(self, terminal: Terminal, answers: Sequence[tuple[str, str]], sample: str | None) -> None:
        self.server = "the server"
        self.problem: CommandError | None = None
        self._terminal = terminal
        self._sample = sample
        self._turn = trio.Lock()
        self._answers: dict[str, list[str]] = {}
        for name, text in answers:
            self._answers.setdefault(name, []).append(text)

    @property
    def samples(self) -> bool:
        """Whether a model can be asked: only this is declared to the server."""
        return self._sample is not None or self._terminal.is_interactive

    async def elicit(self, params: ElicitRequestFormParams) -> ElicitResult:
        """Answer a form. Nothing but a cancel leaves it."""
        async with self._turn:
            note(f"{self.server} asks: {params.message}")
            try:
                return ElicitResult(action="accept", content=await self._fill_in(params))
            except NotAccepted as withheld:
                return withheld.result
            except CommandError as problem:
                self.problem = problem
                return DISMISSED

    async def sample(self, params: CreateMessageRequestParams) -> str:
        """Answer as the model.

        Raises:
            PeerError: the person closed the question.
        """
        async with self._turn:
            if self._sample is not None:
                return self._sample
            note(f"{self.server} asks for the answer of a model, in {params.max_tokens} tokens at most:")
            for line in conversation(params):
                note(f"  {line}")
            text = await self._terminal.ask("  your answer as the model: ")
            if text is None or text.strip() == "!decline":
                raise PeerError(REJECTED, "The user rejected the sampling request")
            return text

    async def _fill_in(self, params: ElicitRequestFormParams) -> dict[str, ElicitValue]:
        fields = params.requested_schema.properties
        required = params.requested_schema.required or []
        if not self._terminal.is_interactive and self._answers.keys().isdisjoint(fields):
            note(f"  declined: nobody is at the terminal, and no --answer is for {', '.join(fields)}")
            raise NotAccepted(DECLINED)
        if self._terminal.is_interactive and not self._answers.keys() >= fields.keys():
            note(KEYS)
        values = {name: await self._value_of(name, field, name in required) for name, field in fields.items()}
        return {name: value for name, value in values.items() if value is not None}

    async def _value_of(self, name: str, field: PrimitiveSchemaDefinition, required: bool) -> ElicitValue:
        """A valid value; None leaves the field out."""
        prepared = self._answers.get(name)
        if prepared is not None:
            return prepared_value(name, field, prepared.pop(0) if len(prepared) > 1 else prepared[0])
        if self._terminal.is_interactive:
            return await self._entered(name, field, required)
        if field.default is None and required:
            note(f"  declined: nobody is at the terminal, and no --answer is for {name}")
            raise NotAccepted(DECLINED)
        return field.default

    async def _entered(self, name: str, field: PrimitiveSchemaDefinition, required: bool) -> ElicitValue:
        """Ask until the text is valid."""
        if field.description:
            note(f"  {field.description}")
        prompt = f"  {name} ({hint(field)}){otherwise(field, required)}: "
        while True:
            text = await self._terminal.ask(prompt)
            if text is None or text.strip() == "!cancel":
                raise NotAccepted(DISMISSED)
            if text.strip() == "!decline":
                raise NotAccepted(DECLINED)
            if not text and (field.default is not None or not required):
                return field.default
            try:
                return read_field(field, text)
            except ValueError as error:
                note(f"  {error}")


def otherwise(field: PrimitiveSchemaDefinition, required: bool) -> str:
    """What an empty line stands for."""
    default = default_text(field)
    if default is not None:
        return f" [{default}]"
    return "" if required else " [leave out]"


def prepared_value(name: str, field: PrimitiveSchemaDefinition, text: str) -> ElicitValue:
    try:
        value = read_field(field, text)
    except ValueError as error:
        raise CommandError(f"--answer {name}={text}: {error}", Status.USAGE) from None
    note(f"  {name}: {text}")
    return value


def conversation(params: CreateMessageRequestParams) -> list[str]:
    """What the model is asked, line by line."""
    lines = [] if params.system_prompt is None else [f"system: {params.system_prompt}"]
    for message in params.messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        texts = [block.text if isinstance(block, TextContent) else f"[{block.type}]" for block in blocks]
        lines.append(f"{message.role}: {' '.join(texts)}")
    return lines
