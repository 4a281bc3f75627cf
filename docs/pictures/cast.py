"""Record a run of the demonstration as an animated SVG: `make cast` writes docs/pictures/demo.svg.

The commands run in a terminal of 80 columns. The picture begins with the first lines, as many as fit, since many readers look
for a moment only; the others follow line by line. It has no script, font or link in it, so that it plays where a page shows it
as an image. Where nothing moves it shows its first lines.
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from rich.style import Style
from rich.text import Text

ROOT: Final = Path(__file__).parents[2]
PICTURE: Final = Path(__file__).with_name("demo.svg")
COMMANDS: Final[Sequence[tuple[str, Sequence[str]]]] = (
    ("trio-mcp demo", (str(Path(sys.executable).with_name("trio-mcp")), "demo")),
    ("python examples/report.py demo", (sys.executable, "examples/report.py", "demo")),
)

COLUMNS, ROWS = 80, 28
CELL_WIDTH, LINE_HEIGHT, FONT_SIZE = 8.4, 19, 14
MARGIN, BAR = 16, 34
WIDTH, HEIGHT = round(COLUMNS * CELL_WIDTH) + 2 * MARGIN, ROWS * LINE_HEIGHT + BAR + MARGIN

LINE_TIME, CODE_TIME, PAUSE_TIME, READ_TIME = 0.22, 0.05, 0.8, 3.0
"""What passes before the line after a line, a line of code, an empty line, and the end of the code, each in proportion."""
SECONDS, BEGIN_SECONDS, END_SECONDS = 15.0, 2.0, 3.0
"""All, and in it the first lines and the last ones."""

BACKGROUND, BAR_COLOUR, TEXT = "#15181e", "#21262f", "#d5dae3"
PALETTE: Final = ("#6b7484", "#ef8a80", "#9ad68a", "#eec46c", "#86b1ff", "#d6a5ea", "#7ccfe3", TEXT)
"""The eight colours of a terminal; the bright ones are the same."""


class Line(NamedTuple):
    """A line, and the part of the time until the next one comes."""

    text: Text
    time: float


def record(command: Sequence[str]) -> str:
    """Run a command in a terminal and return what it has written.

    Raises:
        CalledProcessError: it has failed.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "COLORTERM", "NO_COLOR")}
    process = subprocess.Popen(command, stdout=theirs, cwd=ROOT, env={**clean, "TERM": "xterm-256color"})
    os.close(theirs)
    written = bytearray()
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # so Linux says that the other end was closed
            break
        if not more:
            break
        written += more
    os.close(ours)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, list(command))
    return written.decode().replace("\r\n", "\n")


def lines_of(shown: str, output: str) -> Iterator[Line]:
    """Yield the prompt with a command, and the lines that it has written."""
    yield Line(Text.assemble(("$ ", "green"), (shown, "bold")), PAUSE_TIME)
    yield Line(Text(), PAUSE_TIME)
    is_code = False
    for each in output.splitlines():
        text = Text.from_ansi(each.rstrip())
        text.rstrip()
        was_code, is_code = is_code, text.plain.startswith("  @server.tool") or (is_code and bool(text.plain))
        empty = READ_TIME if was_code else PAUSE_TIME
        yield Line(text, CODE_TIME if is_code else LINE_TIME if text.plain else empty)
    yield Line(Text(), PAUSE_TIME)


def picture(lines: Sequence[Line]) -> str:
    """Return the SVG."""
    scroll, clock = [], BEGIN_SECONDS
    later = lines[ROWS:]
    scale = (SECONDS - BEGIN_SECONDS - END_SECONDS) / sum(line.time for line in later)
    for number, line in enumerate(later, 1):
        scroll.append(f"{100 * clock / SECONDS:.3f}%{{transform:translateY({-number * LINE_HEIGHT}px)}}")
        clock += line.time * scale
    below = ROWS * LINE_HEIGHT
    body = "\n".join(text for number, line in enumerate(lines) for text in texts(line.text, number))
    dots = "".join(f'<circle cx="{MARGIN + 6 + 18 * n}" cy="{BAR / 2}" r="5.5" fill="#4a5261"/>' for n in range(3))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">
<title>trio-mcp demo</title>
<desc>A terminal: one tool asks a legacy and a modern client, message by message; the tree of the calls that wait; and a task
that survives kill -9 of its server. Made by docs/pictures/cast.py from a real run.</desc>
<style>
text {{ font: {FONT_SIZE}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace;
  fill: {TEXT}; white-space: pre }}
.b {{ font-weight: bold }}
{"".join(f".c{n} {{ fill: {colour} }} " for n, colour in enumerate(PALETTE[:-1]))}
.scroll {{ animation: scroll {SECONDS:.1f}s step-end infinite }}
@keyframes scroll {{ 0%{{transform:none}}{"".join(scroll)} }}
@media (prefers-reduced-motion: reduce) {{ .scroll {{ animation: none }} }}
</style>
<clipPath id="screen"><rect width="{WIDTH}" height="{below}"/></clipPath>
<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="{BACKGROUND}"/>
<path d="M0 {BAR}V10a10 10 0 0 1 10-10H{WIDTH - 10}a10 10 0 0 1 10 10V{BAR}z" fill="{BAR_COLOUR}"/>
{dots}
<g transform="translate(0 {BAR + 4})" clip-path="url(#screen)">
<g class="scroll">
{body}
</g>
</g>
</svg>
"""


def texts(line: Text, number: int) -> Iterator[str]:
    """Yield the elements of a line: one for each part of one style, as wide as its cells in any font."""
    y = round((number + 0.75) * LINE_HEIGHT, 1)
    for start, end, css in parts(line):
        part = line.plain[start:end]
        shown = part.strip()
        if not shown:
            continue
        x = MARGIN + (start + len(part) - len(part.lstrip())) * CELL_WIDTH
        kind = f' class="{css}"' if css else ""
        width = f' textLength="{len(shown) * CELL_WIDTH:.1f}" lengthAdjust="spacingAndGlyphs"'
        yield f'<text x="{x:.1f}" y="{y}"{width}{kind}>{escape(shown, quote=False)}</text>'


def parts(line: Text) -> Iterator[tuple[int, int, str]]:
    """Yield the parts of a line that look the same, with their CSS classes."""
    known = [(span.start, span.end, style_of(span.style)) for span in line.spans]

    def look(column: int) -> str:
        return classes(Style.combine([Style(), *(style for start, end, style in known if start <= column < end)]))

    start = 0
    for look_of_part, columns in groupby(range(len(line.plain)), look):
        end = start + len(list(columns))
        yield start, end, look_of_part
        start = end


def style_of(style: str | Style) -> Style:
    return Style.parse(style) if isinstance(style, str) else style


def classes(style: Style) -> str:
    """Return the CSS classes of a style."""
    number = None if style.color is None else style.color.number
    colour = f"c{number % 8}" if number is not None and number % 8 != 7 else ""
    return " ".join(filter(None, (colour, "b" if style.bold else "")))


def main() -> None:
    lines = [line for shown, command in COMMANDS for line in lines_of(shown, record(command))]
    PICTURE.write_text(picture(lines), encoding="utf-8")
    sys.stdout.write(f"{PICTURE.relative_to(ROOT)}: {len(lines)} lines, {PICTURE.stat().st_size / 1000:.0f} kB\n")


if __name__ == "__main__":
    main()
