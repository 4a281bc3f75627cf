"""The options of commands that use a server as its client, as decorators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce, wraps

import click

from .parameters import MODES, Pair, Seconds, header_option, target_argument
from .targets.target import Target, read_target, target_texts

Function = Callable[..., int]


@dataclass(frozen=True)
class Connecting:
    """What a command connects to, and how.

    Attributes:
        timeout: seconds for the whole command; infinity for no limit.
    """

    target: Target
    mode: str
    timeout: float
    headers: Mapping[str, str]
    debug: bool


@dataclass(frozen=True)
class Answering:
    """What the command line answers to questions of a server."""

    answers: Sequence[tuple[str, str]] = ()
    samples: Sequence[str] = ()
    roots: Sequence[str] = ()


def connects(function: Function, *, several: bool = False) -> Function:
    """Give a command the argument TARGET and the options of a connection; it is passed a `Connecting` as `connecting`.

    Args:
        several: TARGET may be a file of several servers. The command is passed `servers` instead: a function for each, by its
            name, that returns the `Connecting`.
    """

    @wraps(function)
    def connected(
        *,
        target: str,
        mode: str,
        timeout: float | None,
        headers: Sequence[tuple[str, str]],
        debug: bool,
        **others: object,
    ) -> int:
        limit = math.inf if timeout is None else timeout

        def connecting(text: str) -> Connecting:
            return Connecting(read_target(text), mode, limit, dict(headers), debug)

        if several:
            return function(servers={text: partial(connecting, text) for text in target_texts(target)}, **others)
        return function(connecting=connecting(target), **others)

    modes = click.Choice(MODES)
    added = [
        target_argument,
        click.option(
            "--mode",
            type=modes,
            default="auto",
            show_default=True,
            metavar="MODE",
            help="The era to speak: auto, modern, legacy, or a revision.",
        ),
        click.option(
            "--timeout",
            type=Seconds(),
            metavar="SECONDS",
            help="For the whole command (default: no limit).",
        ),
        header_option,
    ]
    return reduce(lambda made, decorator: decorator(made), reversed(added), connected)


def answers(function: Function) -> Function:
    """Give a command the options that answer questions; it is passed an `Answering` as `answering`."""

    @wraps(function)
    def answering(
        *,
        answers: Sequence[tuple[str, str]],
        samples: Sequence[str],
        roots: Sequence[str],
        **others: object,
    ) -> int:
        return function(answering=Answering(answers, samples, roots), **others)

    added = [
        click.option(
            "--answer",
            "answers",
            multiple=True,
            type=Pair(),
            metavar="KEY=VALUE",
            help="A field of a form; repeatable.",
        ),
        click.option("--sample", "samples", multiple=True, metavar="TEXT", help="The model's answer; repeatable."),
        click.option("--root", "roots", multiple=True, metavar="FOLDER", help="A folder to work in; repeatable."),
    ]
    return reduce(lambda made, decorator: decorator(made), reversed(added), answering)
