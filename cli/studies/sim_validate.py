"""`muster sim validate`: every prediction next to its measurement, and the errors by group."""

import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from rich.text import Text

from cli.errors import WRONG_USAGE, CliError
from cli.output.tables import Column, Table, write, write_json
from cli.settings import reason
from simulator.hardware.constants import FITTED
from simulator.validation.fit import fit, leave_largest_out, leave_one_out
from simulator.validation.profiles import document_of
from simulator.validation.scores import (
    Case,
    Failed,
    Scored,
    Validation,
    read_points,
)
from simulator.validation.scores import validate as score

# The project's goals on points that it has not seen: mean error in percent.
AIMS = {
    "training": 5.0,
    "training, efficiency below 0.85": 12.0,
    "parameter server": 10.0,
    "allreduce of 64 MB and more": 8.0,
    "allreduce of 1-64 MB": 15.0,
    "allreduce below 1 MB": 25.0,
    "LLM iteration": 10.0,
}


@click.command()
@click.option(
    "--points",
    "file",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Measurements as JSON, or profiles of Pollux or Gavel; see the docs.",
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON instead of tables.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the JSON to this file.",
)
@click.option("--summary", is_flag=True, help="Show only the groups, not every point.")
@click.option("--fit", "fitting", is_flag=True, help="Fit the constants to these points first.")
@click.option(
    "--leave-one-out",
    "leaving",
    is_flag=True,
    help="Predict each system by constants fitted without it; takes minutes.",
)
@click.option(
    "--leave-largest-out",
    "growing",
    is_flag=True,
    help="Predict the largest scales by constants fitted on smaller ones.",
)
@click.option(
    "--plots",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write SVG plots to this folder.",
)
def validate(
    file: Path,
    as_json: bool,
    out: Path | None,
    summary: bool,
    fitting: bool,
    leaving: bool,
    growing: bool,
    plots: Path | None,
) -> None:
    """Compare predictions with published training and allreduce measurements.

    A prediction uses only what is known beforehand: hardware, model, batch, and the series' own
    baseline for the speed of one GPU. A point that cannot be predicted is listed with the reason,
    and the run continues. Errors are relative; MAPE is the mean of their absolute values.
    """
    cases, failed = _cases(file)
    if leaving and growing:
        raise CliError(
            "--leave-one-out and --leave-largest-out are two questions",
            hint="Ask one at a time.",
            exit_code=WRONG_USAGE,
        )
    constants = fit(cases) if fitting else FITTED
    if leaving:
        validation = leave_one_out(cases, constants)
    elif growing:
        validation = leave_largest_out(cases, constants)
    else:
        validation = score(cases, constants)
    validation = msgspec.structs.replace(validation, failed=(*failed, *validation.failed))
    encoded = msgspec.json.format(msgspec.json.encode(validation), indent=1)
    if out is not None:
        _write(out, encoded + b"\n")
    if plots is not None:
        from cli.output.svg import draw_validation

        for name, drawing in draw_validation(validation).items():
            _write(plots / name, drawing.encode())
    if as_json:
        write_json(validation)
        return
    if not summary:
        write(_points_table(validation.points))
        click.echo()
    write(_groups_table(validation))
    ranking = validation.ranking
    click.echo(
        f"\nof {ranking.pairs} pairs that differ by more than 5 %, "
        f"{ranking.right} are ranked rightly ({ranking.percent:.1f} %)"
        if ranking.pairs
        else "\nno two of them are ways to do the same"
    )
    if fitting:
        click.echo("constants: " + ", ".join(f"{k}={v:g}" for k, v in validation.constants.items()))
    _show_failed(validation.failed)


def _cases(file: Path) -> tuple[list[Case], list[Failed]]:
    try:
        document = document_of(file.read_bytes())
        cases, failed = read_points(document)
    except OSError as error:
        raise _bad(f"{file} cannot be read: {reason(error)}") from None
    except json.JSONDecodeError as error:
        message = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise _bad(f"{file} is not JSON: {message}") from None
    except RecursionError:
        raise _bad(f"{file} is nested too deeply") from None
    except UnicodeDecodeError:
        raise _bad(f"{file} is neither UTF-8 text nor an archive of profiles") from None
    except (ValueError, EOFError, tarfile.TarError) as error:
        raise _bad(f"{file}: {error}") from None
    if not cases:
        raise _bad(f"{file} has no point to predict")
    return cases, failed


def _bad(message: str) -> CliError:
    return CliError(message, hint="docs/validation.md describes the form.", exit_code=WRONG_USAGE)


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise CliError(f"{path} cannot be written: {reason(error)}") from None


def _points_table(points: Sequence[Scored]) -> Table:
    columns = (
        Column("POINT"),
        Column("KIND"),
        Column("MEASURED", right=True),
        Column("PREDICTED", right=True),
        Column("UNIT"),
        Column("ERROR", right=True),
        Column("SERIES", flexible=True),
    )
    return Table(columns, [_row(point) for point in points])


def _row(point: Scored) -> list[str | Text]:
    percent = 100.0 * point.error
    style = "red" if abs(percent) > 15 else "yellow" if abs(percent) > 5 else "green"
    return [
        point.id,
        point.kind,
        f"{point.measured:.5g}",
        f"{point.predicted:.5g}",
        point.unit,
        Text(f"{percent:+.1f} %", style=style),
        point.series,
    ]


def _groups_table(validation: Validation) -> Table:
    columns = (
        Column("GROUP"),
        Column("POINTS", right=True),
        Column("MAPE", right=True),
        Column("MEDIAN", right=True),
        Column("P90", right=True),
        Column("AIM", right=True),
    )
    rows = [
        [
            name,
            str(group.points),
            f"{group.mape:.1f} %",
            f"{group.median:.1f} %",
            f"{group.p90:.1f} %",
            f"{AIMS[name]:g} %" if name in AIMS else "-",
        ]
        for name, group in validation.groups.items()
    ]
    return Table(columns, rows)


def _show_failed(failed: Sequence[Failed]) -> None:
    for row in failed:
        click.echo(f"{row.id} ({row.system or 'no system'}) was not predicted: {row.problem}")
