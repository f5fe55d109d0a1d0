"""Tables that a person can read at every width, and a program in a pipe."""

import io

from rich.console import Console
from rich.text import Text

from cli.output.tables import Column, Table, write

COLUMNS = (Column("NAME"), Column("COUNT", right=True), Column("NOTE", flexible=True))
ROWS = [("a-rather-long-name", "7", "something that takes a while to read"), ("b", "1234", "")]


def lines(width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as captured:
        console.print(Table(COLUMNS, ROWS))
    return captured.get().splitlines()


def test_only_the_flexible_column_gives_way() -> None:
    assert lines(100) == [
        "NAME                COUNT  NOTE",
        "a-rather-long-name      7  something that takes a while to read",
        "b                    1234",
    ]
    assert lines(40)[1] == "a-rather-long-name      7  something th…"


def test_a_line_break_in_a_cell_does_not_break_the_row() -> None:
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as captured:
        console.print(Table((Column("A"), Column("B")), [("x\ny", Text("z"))]))
    assert captured.get().splitlines()[1] == "x y  z"


def test_into_a_pipe_nothing_is_cut(capsys) -> None:  # type: ignore[no-untyped-def]
    write(Table(COLUMNS, [("n" * 100, "1", "m" * 300)]))
    assert "n" * 100 + "      1  " + "m" * 300 in capsys.readouterr().out
