"""Answering a server's questions for the user and for the model: from the command line, or else by asking at the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import trio

from ...base.values import one_line, printable
from ...types import (
    BooleanSchema,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    ElicitValue,
    InputRequest,
    PrimitiveSchemaDefinition,
    TextContent,
)
from ..command import CommandError, Rejection
from .fields import choice_lines, default_text, hint, number_hint, read_field
from .messages import ProgressDisplay
from .output import note

KEYS = "  (Enter takes the value in [brackets]; !decline says no; Ctrl-D closes the question)"
CONFIRMATION = "accept"
"""The name under which a form without fields is answered: `--answer accept=y`."""
SOLE_FIELD = "value"
"""The field of a form that asks for a single value."""
REJECTED = -1
"""The error code of a sampling request that the user rejected (L-SMP-3b)."""


class NotAccepted(Exception):
    """The user gave no values, but declined or closed the question; `result` says which."""

    def __init__(self, result: ElicitResult) -> None:
        super().__init__(result.action)
        self.result = result


DECLINED = ElicitResult(action="decline")
DISMISSED = ElicitResult(action="cancel")
WORDS = {"!cancel": DISMISSED, "!decline": DECLINED}
"""What a user may enter instead of a value."""


class Prepared:
    """The answers of one kind from the command line, which are used in turn."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._taken = 0

    def __bool__(self) -> bool:
        return bool(self._texts)

    @property
    def unused(self) -> Sequence[str]:
        return self._texts[self._taken :]

    def take(self) -> str:
        """Return the next answer, or the last one again."""
        # The last one stays: a tool may ask any number of times, and the command line is finite.
        self._taken = min(self._taken + 1, len(self._texts))
        return self._texts[self._taken - 1]


class Prompting:
    """Answers a server's questions, one after another.

    Args:
        answers: values for fields of forms, by name; the first is used first, the last one repeatedly.
        samples: the model's answers to prompts; the first is used first, the last one repeatedly.

    Attributes:
        server: the name of the server, to show with a question.
        problem: what was wrong with an answer from the command line; the question that it was for was closed.
        display: the progress of the call, which is not shown during a question.
    """

    def __init__(self, terminal: Terminal, answers: Sequence[tuple[str, str]], samples: Sequence[str]) -> None:
        self.server = "the server"
        self.problem: CommandError | None = None
        self.display = ProgressDisplay()
        self._terminal = terminal
        self._samples = Prepared(samples)
        # A modern server sends the questions of a round together, and there is one terminal to ask them at.
        self._turn = trio.Lock()
        texts: dict[str, list[str]] = {}
        for name, text in answers:
            texts.setdefault(name, []).append(text)
        self._answers = {name: Prepared(each) for name, each in texts.items()}

    @property
    def samples(self) -> bool:
        """Whether a model can be asked; the client declares sampling only then."""
        return bool(self._samples) or self._terminal.is_interactive

    @property
    def unused(self) -> list[str]:
        """The options of the command line that have answered no question."""
        answers = [f"--answer {name}={text}" for name, texts in self._answers.items() for text in texts.unused]
        return [*answers, *(f"--sample {text!r}" for text in self._samples.unused)]

    async def elicit(self, params: ElicitRequestFormParams) -> ElicitResult:
        """Answer a form. Raises nothing; a cancel leaves the question unanswered."""
        async with self._asking():
            self._terminal.note(f"{self.server} asks: {params.message}")
            try:
                return ElicitResult(action="accept", content=await self._fill_in(params))
            except NotAccepted as withheld:
                return withheld.result
            except CommandError as problem:
                # Reported when the call ends. Raised here, it would become an error of the client, and the server would get
                # that instead of an answer.
                self.problem = problem
                return DISMISSED

    async def sample(self, params: CreateMessageRequestParams) -> str:
        """Answer as the model.

        Raises:
            Rejection: the user closed the question.
        """
        async with self._asking():
            if self._samples:
                return self._samples.take()
            self._terminal.note(f"{self.server} asks for the answer of a model, in {params.max_tokens} tokens at most:")
            for line in prompt_lines(params):
                self._terminal.note(f"  {line}")
            # One line only: a terminal has no way to end a longer text that would not also be a way to close the question.
            text = await self._terminal.ask("  your answer as the model: ")
            if text is None or text.strip() == "!decline":
                raise Rejection(REJECTED, "The user rejected the sampling request")
            return text

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        async with self._turn:
            with self.display.hidden():
                yield

    async def _fill_in(self, params: ElicitRequestFormParams) -> dict[str, ElicitValue]:
        fields = params.requested_schema.properties
        required = params.requested_schema.required or []
        if not fields:
            await self._confirm()
            return {}
        if not self._terminal.is_interactive and self._answers.keys().isdisjoint(fields):
            self._decline(", ".join(fields))
        if self._terminal.is_interactive and not self._answers.keys() >= fields.keys():
            self._terminal.note(KEYS)
        alone = len(fields) == 1
        values = {
            name: await self._value_of(name, field, required=name in required, alone=alone)
            for name, field in fields.items()
        }
        # Left out and not null: no field of a form may be null.
        return {name: value for name, value in values.items() if value is not None}

    async def _confirm(self) -> None:
        """Ask whether to accept a form without fields, as if it had the field `accept`.

        Raises:
            NotAccepted: the user declined, or closed the question.
        """
        # Never accepted silently: what is confirmed may have serious consequences.
        if CONFIRMATION not in self._answers and not self._terminal.is_interactive:
            self._decline(f"{CONFIRMATION}; --answer {CONFIRMATION}=y confirms a question without fields")
        if not await self._value_of(CONFIRMATION, BooleanSchema(), required=True):
            raise NotAccepted(DECLINED)

    async def _value_of(
        self, name: str, field: PrimitiveSchemaDefinition, *, required: bool, alone: bool = False
    ) -> ElicitValue:
        """Return a valid value, or None to leave the field out; `alone` if the form has no other field."""
        prepared = self._answers.get(name)
        if prepared is not None:
            return prepared_value(name, field, prepared.take())
        if self._terminal.is_interactive:
            return await self._entered(name, field, required, alone=alone)
        if field.default is None and required:
            self._decline(name)
        return field.default

    def _decline(self, fields: str) -> None:
        self._terminal.note(f"  declined: there is no terminal to ask at, and no --answer for {fields}")
        raise NotAccepted(DECLINED)

    async def _entered(
        self, name: str, field: PrimitiveSchemaDefinition, required: bool, *, alone: bool
    ) -> ElicitValue:
        """Ask until the text is valid, and return its value."""
        if field.description:
            self._terminal.note(f"  {field.description}")
        lines = choice_lines(field) if alone else []
        for number, line in enumerate(lines, 1):
            self._terminal.note(f"  {number}  {line}")
        shown = number_hint(field) if lines else hint(field)
        # A single value is asked for as the field `value`, which its author has not written.
        shown = shown if alone and name == SOLE_FIELD else f"{name} ({shown})"
        prompt = f"  {shown}{empty_line_meaning(field, required)}: "
        while True:
            text = await self._terminal.ask(prompt)
            if text is None or text.strip() in WORDS:
                raise NotAccepted(WORDS["!cancel" if text is None else text.strip()])
            if not text and (field.default is not None or not required):
                return field.default
            try:
                return read_field(field, text, by_number=bool(lines))
            except ValueError as error:
                self._terminal.note(f"  {error}")


def empty_line_meaning(field: PrimitiveSchemaDefinition, required: bool) -> str:
    """Return what an empty line means for the field, to show in the prompt."""
    default = default_text(field)
    if default is not None:
        return f" [{default}]"
    return "" if required else " [leave out]"


def prepared_value(name: str, field: PrimitiveSchemaDefinition, text: str) -> ElicitValue:
    """Return the value of an answer from the command line.

    Raises:
        CommandError: it does not match the field.
    """
    try:
        value = read_field(field, text)
    except ValueError as error:
        raise CommandError(f"--answer {name}={text}: {error}") from None
    note(f"  {name}: {text}")
    return value


def question_lines(question: InputRequest) -> list[str]:
    """Return what a task asks, for a person to read: the message, and the fields as `--answer` names them."""
    match question:
        case CreateMessageRequest(params=params):
            return ["asks the model:", *(f"  {indented(line)}" for line in prompt_lines(params))]
        case ElicitRequest(params=ElicitRequestURLParams(message=message, url=url)):
            return [f"asks: {indented(message)}", f"  open {one_line(url)}"]
        case ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema)):
            fields = schema.properties or {CONFIRMATION: BooleanSchema()}
            required = {*(schema.required or ()), CONFIRMATION}
            hints = [
                f"{name} ({hint(each)}){empty_line_meaning(each, name in required)}" for name, each in fields.items()
            ]
            return [f"asks: {indented(message)}", *(f"  {one_line(each)}" for each in hints)]
        case _:
            return ["asks for the folders to work in"]


def indented(text: str) -> str:
    """Indent all lines but the first, so that none looks like a line of the command itself."""
    return "\n    ".join(text.splitlines())


def prompt_lines(params: CreateMessageRequestParams) -> list[str]:
    """Return the prompt of a sampling request, line by line."""
    lines = [] if params.system_prompt is None else [f"system: {params.system_prompt}"]
    for message in params.messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        texts = [block.text if isinstance(block, TextContent) else f"[{block.type}]" for block in blocks]
        lines.append(f"{message.role}: {' '.join(texts)}")
    return lines


# Reading lines from the terminal without blocking the event loop.

# The alternative is a thread that blocks in `input()`. It cannot be cancelled: if a question is withdrawn while the user types,
# such a thread would read the line that answers the next question, and drop it.

STDIN = 0
CHUNK = 4096


class Terminal:
    """The user at stdin. Questions are shown on stderr, because stdout is for results."""

    def __init__(self) -> None:
        self._begun = b""
        self._descriptor = STDIN

    @property
    def is_interactive(self) -> bool:
        """Whether a user can be asked."""
        return sys.stdin is not None and sys.stdin.isatty()

    def note(self, text: str, end: str = "\n") -> None:
        """Show a line."""
        note(text, end)

    async def ask(self, prompt: str) -> str | None:
        """Show a prompt and return the line that the user enters, without its end; None for Ctrl-D.

        After a cancel, the complete lines that were read are the answers of the next questions.
        """
        self.note(prompt, end="")
        while b"\n" not in self._begun:
            await trio.lowlevel.wait_readable(self._descriptor)
            try:
                chunk = os.read(self._descriptor, CHUNK)
            # Another process that reads the terminal was faster.
            except BlockingIOError:
                continue
            # A terminal that was closed raises EIO, where a pipe would return no bytes.
            except OSError:
                chunk = b""
            if not chunk:
                self.note("")
                self._begun = b""
                return None
            self._begun += chunk
        # The rest is kept: a user may have typed, or pasted, the answers of several questions.
        line, _, self._begun = self._begun.partition(b"\n")
        return line.decode(errors="replace")


class ControllingTerminal(Terminal):
    """The user at the terminal that the process was started from, for a command whose stdin and stderr are a host's.

    It never blocks: the host may read the same terminal, and a user may stop its output.

    Raises:
        OSError: there is none.
    """

    def __init__(self, path: str = "/dev/tty") -> None:
        super().__init__()
        if sys.platform == "win32":
            raise OSError("Windows has no terminal with a path")
        # Opened by its path, so that the flag is for this descriptor alone.
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)

    @property
    def is_interactive(self) -> bool:
        return True

    def note(self, text: str, end: str = "\n") -> None:
        """Show a line; what the terminal does not take at once is not shown.

        Raises:
            OSError: the terminal was closed.
        """
        shown = (printable(text) + end).encode(errors="replace")
        with suppress(BlockingIOError):
            while shown:
                shown = shown[os.write(self._descriptor, shown) :]

    async def ask(self, prompt: str) -> str | None:
        """Show a prompt and return the line that the user enters; None for Ctrl-D, or from a process in the background."""
        if self._is_in_background():
            # The system stops a process that reads there.
            self.note(f"{prompt}(not asked: the proxy runs in the background)")
            return None
        return await super().ask(prompt)

    def _is_in_background(self) -> bool:
        if sys.platform == "win32":
            return False
        try:
            return os.tcgetpgrp(self._descriptor) != os.getpgrp()
        except OSError:
            return False  # it controls nothing

    def close(self) -> None:
        """Close the terminal; nothing may be asked any more."""
        os.close(self._descriptor)
