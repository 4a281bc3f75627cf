"""Watching folders for changes of their files."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final

import trio
from watchfiles import awatch

from ..targets.loading import INSTALLED

# Milliseconds. A save is often several changes (an editor writes a new file and renames it); they are noticed together.
QUIET: Final = 50
LONGEST: Final = 400
CHECK: Final = 1000
"""How often files are compared although nothing was noticed: some file systems notify of nothing, such as those of a network."""

logger = logging.getLogger("trio_mcp.cli")


async def watch(folders: Callable[[], Collection[Path]], on_change: Callable[[Collection[Path]], None]) -> None:
    """Call `on_change` with the files that have changed in these folders, and once a second with none; until a cancel.

    Args:
        folders: returns the folders, which may be others after each call of `on_change`; what is below them does not count.
    """
    # It logs each change that it notices.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    polls = False
    while True:  # noqa: ASYNC913  it waits on each way through
        watched = existing(folders())
        if not watched:
            await trio.sleep(CHECK / 1000)
            on_change(())
            continue
        try:
            await watch_these(watched, folders, on_change, polls=polls)
        # Of the system: a folder has gone, or it watches as many files as it can.
        except (OSError, RuntimeError) as error:
            if polls:
                raise
            logger.warning("the system does not notify of changes (%s): files are compared three times a second", error)
            polls = True


async def watch_these(
    watched: Sequence[Path],
    folders: Callable[[], Collection[Path]],
    on_change: Callable[[Collection[Path]], None],
    *,
    polls: bool,
) -> None:
    """Watch these folders until others are to be watched."""
    changes = awatch(
        *watched,
        watch_filter=None,
        debounce=LONGEST,
        step=QUIET,
        rust_timeout=CHECK,
        yield_on_timeout=True,
        force_polling=polls or None,
        recursive=False,
        ignore_permission_denied=True,
    )
    async with aclosing(changes):
        async for changed in changes:
            on_change({Path(path) for _, path in changed})
            if existing(folders()) != watched:
                return


def existing(folders: Collection[Path]) -> list[Path]:
    return sorted(folder for folder in folders if folder.is_dir())


def site_folders() -> set[Path]:
    """Return the folders of installed packages."""
    return {Path(each) for each in sys.path if Path(each).name in INSTALLED}
