"""`muster whatif`: a study of another cluster, policy or workload, on this machine."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from cli.errors import WRONG_USAGE, CliError
from cli.output.tables import write_json
from cli.output.whatif_tables import bar_on_stderr, show
from cli.policies import load_policies
from cli.settings import reason
from cli.studies.whatif_question import question_of
from controlplane.disciplines.registry import DISCIPLINES
from simulator.network.topology import BadCluster
from studies.whatif.executors import executor_for
from studies.whatif.policies import PACKINGS
from studies.whatif.store import write_whole
from studies.whatif.whatif import ask, schedule_of, study_of
from studies.workloads.formats import READERS, read_trace
from studies.workloads.statistics import statistics
from studies.workloads.trace import BadTrace


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


class _Listed(click.ParamType[Any]):
    """Comma-separated values, which span an axis of the grid."""

    name = "LIST"

    def __init__(self, read: Callable[[str], Any], what: str) -> None:
        self._read = read
        self._what = what

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return tuple(self._read(part) for part in _split(value))
        except ValueError:
            self.fail(f"{value!r} is not a list of {self._what}", param, ctx)


NUMBERS = _Listed(float, "numbers")
WHOLE = _Listed(int, "whole numbers")
WORDS = _Listed(str, "words")
_NAMES = ", ".join(DISCIPLINES.names)


@click.command()
@click.option(
    "--trace",
    required=True,
    metavar="FILE",
    help="The workload: CSV with id,submit,gpus,"
    "duration, or a public trace in its original format.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(READERS)),
    help="Format of the trace. Default: detected.",
)
@click.option(
    "--cluster",
    "clusters",
    multiple=True,
    metavar="FILE",
    help="A cluster file; repeat it for a grid.",
)
@click.option(
    "--gpus", type=WHOLE, default=(), help="Sizes of a pool of identical GPUs, such as 512,1024."
)
@click.option(
    "--nodes",
    type=WORDS,
    default=(),
    help="Clusters of identical nodes (NODESxGPUS), such as 64x8,96x8 or 64x8:H100.",
)
@click.option(
    "--policy",
    "policies",
    type=WORDS,
    default="fifo",
    show_default=True,
    help=f"Disciplines: {_NAMES}, or one of an installed package; each with +{', +'.join(PACKINGS)} "
    "or a limit on starts, +starts=N/SECONDSs, if wanted.",
)
@click.option(
    "--out",
    metavar="DIR",
    help="Folder for result.json, report.html and jobs/. Finished runs there are reused.",
)
@click.option(
    "--load",
    "loads",
    type=NUMBERS,
    default="1",
    show_default=True,
    help="Factor of the load: 2 submits twice the jobs in the same time.",
)
@click.option(
    "--faults",
    type=WORDS,
    default="none",
    show_default=True,
    help="Published fault rates "
    "(llama3, rsc1, rsc2, acme, philly, stepfun), or MTBF_DAYS:REPAIR_HOURS of a node.",
)
@click.option(
    "--checkpoint-s",
    type=NUMBERS,
    default="0",
    show_default=True,
    help="Seconds of work between checkpoints; 0 means no checkpoints.",
)
@click.option(
    "--checkpoint-write-s", type=float, default=0.0, help="Seconds to write a checkpoint."
)
@click.option(
    "--autoscale-from",
    type=WHOLE,
    default=(),
    help="Keep this many nodes; rent the others only while jobs wait for them.",
)
@click.option(
    "--boot-s",
    type=float,
    default=300.0,
    show_default=True,
    help="Seconds until a rented node is ready.",
)
@click.option(
    "--idle-s",
    type=float,
    default=600.0,
    show_default=True,
    help="Seconds until an idle rented node is returned.",
)
@click.option("--price", "prices", type=NUMBERS, default="0", help="Price of a GPU-hour.")
@click.option(
    "--quota",
    "quotas",
    multiple=True,
    metavar="QUEUE=GPUS",
    help="Largest number of GPUs of a queue's jobs.",
)
@click.option("--start-s", type=float, default=0.0, help="Seconds to start a gang.")
@click.option("--stop-s", type=float, default=0.0, help="Seconds to stop a gang.")
@click.option(
    "--begin-s", type=float, default=0.0, help="Skip jobs submitted before this time of the trace."
)
@click.option("--length-s", type=float, help="Use only this many seconds of the trace.")
@click.option(
    "--until-s", type=float, help="End the study at this time, even if jobs still wait or run."
)
@click.option(
    "--synthetic-days", type=float, help="Generate this many days with the statistics of the trace."
)
@click.option(
    "--replications",
    type=int,
    default=1,
    show_default=True,
    help="Runs per scenario with resampled days of the trace; 1 runs the trace itself.",
)
@click.option("--seed", type=int, default=0, help="Seed of all random numbers.")
@click.option(
    "--goal",
    default="",
    metavar="MEASURE<=VALUE",
    help="Search the smallest number of nodes for a goal, such as 'wait_p90_s<=1h'.",
)
@click.option(
    "--window", type=NUMBERS, help="Part of the study in the Gantt chart: begin,length in seconds."
)
@click.option(
    "--recorded-on",
    default="",
    metavar="GPU[:NET]",
    help="Hardware of the trace, such as V100:25GbE: jobs whose model column is in the catalogue then "
    "run at the speed that the studied nodes (--nodes 16x8:H100:400GbE) give them.",
)
@click.option("--reasons", is_flag=True, help="Record why each job waits (slower).")
@click.option("--no-jobs", is_flag=True, help="Do not write the CSV files of jobs.")
@click.option("--schedule-out", metavar="FILE", help="Write id,start,end lines of a single run.")
@click.option(
    "--workers", type=click.IntRange(1), help="Number of processes. Default: number of cores."
)
@click.option(
    "--executor",
    default="local",
    show_default=True,
    metavar="NAME",
    help="Where to run: local or dask://HOST:PORT.",
)
@click.option("--title", default="What if", help="Title of the report.")
@click.option("--json", "as_json", is_flag=True, help="Write the result to standard output.")
@click.option("--stats", is_flag=True, help="Only show statistics of the trace.")
def whatif(**given: Any) -> None:
    """Simulate a workload on other clusters and under other policies.

    Every job of the trace is submitted to Muster's own engine and scheduler on a simulated cluster,
    in virtual time. Options with several values span a grid, whose first point is the base of the
    comparison. Run an interrupted study again to resume it.

    \b
    Examples:
      muster whatif --trace jobs.csv --nodes 64x8 --policy fifo,easy --out study
      muster whatif --trace jobs.csv --nodes 48x8,64x8 --replications 20 --out s2
      muster whatif --trace jobs.csv --nodes 64x8 --goal 'wait_p90_s<=1h' --out s3
      muster whatif --trace jobs.csv --gpus 1024 --schedule-out schedule.csv
    """
    try:
        if given["stats"]:
            write_json(statistics(read_trace(Path(given["trace"]), given["form"] or "")))
            return
        load_policies()
        _conduct(given)
    except (BadTrace, BadCluster, ValueError) as error:
        raise CliError(str(error), exit_code=WRONG_USAGE) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise CliError(f"{where}{reason(error)}") from None


def _conduct(given: dict[str, Any]) -> None:
    question = question_of(given)
    study = study_of(question)
    if given["schedule_out"] and (len(study.scenarios) != 1 or question.replications != 1):
        raise ValueError("--schedule-out needs a single run: one cluster, one policy, one of all")
    if not given["out"] and not given["schedule_out"] and not given["as_json"]:
        raise ValueError("choose an output: --out DIR, --schedule-out FILE or --json")
    with _folder(given["out"]) as out, bar_on_stderr(given["as_json"]) as (on_progress, on_probe):
        workers = given["workers"] or os.cpu_count() or 1
        result = ask(
            question,
            out,
            study=study,
            executor=executor_for(given["executor"], workers),
            on_progress=on_progress,
            on_probe=on_probe,
            title=given["title"],
        )
        if given["schedule_out"]:
            write_whole(Path(given["schedule_out"]), schedule_of(study, out))
    if given["as_json"]:
        write_json(result)
    else:
        show(result, given)


@contextmanager
def _folder(out: str | None) -> Iterator[Path]:
    """Yield the requested folder, or a temporary one that is removed afterwards."""
    if out:
        yield Path(out)
        return
    with TemporaryDirectory(prefix="muster-study-") as folder:
        yield Path(folder)
