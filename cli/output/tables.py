"""Tables for people, and the same content for programs.

On a terminal a table never wraps: its last, flexible column is cut. In a pipe it has its full width
without trailing blanks, so that `grep` and `awk` see every word.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import click
import msgspec
import yaml
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

FORMATS = ("table", "wide", "json", "yaml", "name")
# Wide enough for every table, and narrow enough for rich.
PIPE_WIDTH = 4000
GAP = 2
# A flexible column is not cut below this number of characters.
FLEXIBLE_MIN = 8

PHASE_STYLES = {
    "Queued": "yellow",
    "Unschedulable": "red",
    "Starting": "cyan",
    "Running": "green",
    "Restarting": "magenta",
    "Suspended": "blue",
    "Succeeded": "bold green",
    "Failed": "bold red",
    "Cancelled": "bright_black",
}


class Column(NamedTuple):
    title: str
    right: bool = False
    # A flexible column is cut with an ellipsis when the terminal is too narrow.
    flexible: bool = False


class _Screen(Console):
    def on_broken_pipe(self) -> NoReturn:
        # Rich would end the process with an exit code of its own.
        raise BrokenPipeError


def console() -> Console:
    """Return a console on the current standard output."""
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return _Screen(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


class Table:
    """Rows under titles, one line each: text that is too long is cut in the flexible columns only.

    Rich's own table narrows every column when the terminal is narrow, and drops some altogether.
    """

    def __init__(self, columns: Sequence[Column], rows: Iterable[Sequence[str | Text]]) -> None:
        self._columns = columns
        self._head: list[str | Text] = [Text(column.title, style="bold") for column in columns]
        self._rows = [[_cell(cell) for cell in row] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield segments: creating and measuring texts takes ten times as long for long tables."""
        widths = self._widths(options.max_width)
        for row in (self._head, *self._rows):
            yield from self._line(row, widths, console)

    def _widths(self, room: int) -> list[int]:
        rows = (self._head, *self._rows)
        natural = [max(_width(row[i]) for row in rows) for i in range(len(self._columns))]
        over = sum(natural) + GAP * (len(natural) - 1) - room
        widths = natural
        for index in reversed([i for i, column in enumerate(self._columns) if column.flexible]):
            cut = min(max(over, 0), max(0, widths[index] - FLEXIBLE_MIN))
            widths[index] -= cut
            over -= cut
        return widths

    def _line(
        self, row: Sequence[str | Text], widths: Sequence[int], console: Console
    ) -> Iterator[Segment]:
        # Blanks are written only when text follows, so that no line ends with blanks.
        plain, blanks = "", 0
        for cell, column, width in zip(row, self._columns, widths, strict=True):
            if (taken := _width(cell)) > width:
                cell, taken = _cut(cell, width), width
            left = width - taken
            if taken:
                plain += " " * (blanks + (left if column.right else 0))
                if isinstance(cell, str):
                    plain += cell
                else:
                    yield Segment(plain)
                    plain = ""
                    style = console.get_style(cell.style)
                    yield from Segment.apply_style(cell.render(console), style)
                blanks = 0 if column.right else left
            else:
                blanks += width
            blanks += GAP
        yield Segment(f"{plain}\n")


def _cell(cell: str | Text) -> str | Text:
    # A line break in a message from elsewhere must not break the row.
    return cell if isinstance(cell, Text) else " ".join(cell.split())


def _width(cell: str | Text) -> int:
    if isinstance(cell, Text):
        return cell.cell_len
    return len(cell) if cell.isascii() else cell_len(cell)


def _cut(cell: str | Text, width: int) -> str | Text:
    if isinstance(cell, str):
        return f"{set_cell_size(cell, width - 1)}…"
    shown = cell.copy()
    shown.truncate(width, overflow="ellipsis")
    return shown


def phase(name: str) -> Text:
    return Text(name, style=PHASE_STYLES.get(name, ""))


def write(*renderables: RenderableType) -> None:
    """Print to standard output; the terminal wraps lines that are still too long."""
    console().print(*renderables, sep="\n", soft_wrap=True)


def write_json(value: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def write_yaml(value: object) -> None:
    click.echo(to_yaml(value), nl=False)


def write_as(output: str, value: object) -> None:
    """Write `value` as JSON if `output` is json, otherwise as YAML."""
    (write_json if output == "json" else write_yaml)(value)


def to_yaml(value: object) -> str:
    plain: Any = msgspec.to_builtins(value, str_keys=True)
    text: str = yaml.dump(plain, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
    return text
