"""`muster whatif`: a study of another cluster, policy or workload, on this machine."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from cli.complaints import WRONG_USAGE, Complaint
from cli.settings import reason
from cli.tables import write_json
from cli.whatif_question import question_of
from cli.whatif_tables import bar_on_stderr, show
from simulator.topology import BadCluster
from studies.executors import executor_for
from studies.policies import PACKINGS, POLICIES
from studies.store import write_whole
from studies.whatif import ask, schedule_of, study_of
from studies.workloads.formats import READERS, read_trace
from studies.workloads.statistics import statistics
from studies.workloads.trace import BadTrace


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


class _Listed(click.ParamType[Any]):
    """Values with commas between them, which span an axis of the grid."""

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
            self.fail(f"{value!r} is no list of {self._what}", param, ctx)


NUMBERS = _Listed(float, "numbers")
WHOLE = _Listed(int, "whole numbers")
WORDS = _Listed(str, "words")
_NAMES = ", ".join(POLICIES)


@click.command()
@click.option(
    "--trace",
    required=True,
    metavar="FILE",
    help="The workload: CSV with id,submit,gpus,"
    "duration, or a public trace as its owner publishes it.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(READERS)),
    help="What form the trace has; without it, that is found out.",
)
@click.option(
    "--cluster",
    "clusters",
    multiple=True,
    metavar="FILE",
    help="A cluster file; repeat it for a grid.",
)
@click.option("--gpus", type=WHOLE, default=(), help="Pools of so many identical GPUs.")
@click.option(
    "--nodes", type=WORDS, default=(), help="Clusters of equal nodes, as in 64x8,96x8 or 64x8:H100."
)
@click.option(
    "--policy",
    "policies",
    type=WORDS,
    default="fifo",
    show_default=True,
    help=f"Queue policies: {_NAMES}; each with +{', +'.join(PACKINGS)} "
    "or a limit on starts, +starts=N/SECONDSs, if wanted.",
)
@click.option(
    "--out",
    metavar="DIR",
    help="Where result.json, report.html and jobs/ go. What is there already is used again.",
)
@click.option(
    "--load",
    "loads",
    type=NUMBERS,
    default="1",
    show_default=True,
    help="So many times as much work in the same time.",
)
@click.option(
    "--faults",
    type=WORDS,
    default="none",
    show_default=True,
    help="Published conditions "
    "(llama3, rsc1, rsc2, acme, philly, stepfun), or MTBF_DAYS:REPAIR_HOURS of a node.",
)
@click.option(
    "--checkpoint-s",
    type=NUMBERS,
    default="0",
    show_default=True,
    help="Work between checkpoints; 0 means none, and a restart begins anew.",
)
@click.option("--checkpoint-write-s", type=float, default=0.0, help="How long writing one takes.")
@click.option(
    "--autoscale-from",
    type=WHOLE,
    default=(),
    help="Rent nodes beyond so many only while jobs wait for them.",
)
@click.option(
    "--boot-s", type=float, default=300.0, show_default=True, help="Until a node is there."
)
@click.option(
    "--idle-s", type=float, default=600.0, show_default=True, help="Until one is given back."
)
@click.option("--price", "prices", type=NUMBERS, default="0", help="Price of a GPU-hour.")
@click.option(
    "--quota",
    "quotas",
    multiple=True,
    metavar="QUEUE=GPUS",
    help="The most GPUs that a queue's jobs hold together.",
)
@click.option("--start-s", type=float, default=0.0, help="How long a gang takes to come up.")
@click.option("--stop-s", type=float, default=0.0, help="How long one takes to go away.")
@click.option("--begin-s", type=float, default=0.0, help="Leave out what was submitted before.")
@click.option("--length-s", type=float, help="Take only so much of the trace.")
@click.option("--until-s", type=float, help="End the study then, whoever still waits or runs.")
@click.option("--synthetic-days", type=float, help="In place of the trace, so many days like it.")
@click.option(
    "--replications",
    type=int,
    default=1,
    show_default=True,
    help="Runs of each scenario, with the trace's days drawn again; 1 is the trace itself.",
)
@click.option("--seed", type=int, default=0, help="Of all that is left to chance.")
@click.option(
    "--goal",
    default="",
    metavar="MEASURE<=VALUE",
    help="Find the fewest nodes for this, as in 'wait_p90_s<=1h'.",
)
@click.option("--window", type=NUMBERS, help="What the Gantt chart shows: begin,length in seconds.")
@click.option(
    "--recorded-on",
    default="",
    metavar="GPU[:NET]",
    help="The trace's machines, as in V100:25GbE: jobs whose model column is in the catalogue then "
    "run at the speed that the studied nodes (--nodes 16x8:H100:400GbE) give them.",
)
@click.option("--reasons", is_flag=True, help="Record why each job waits; slower.")
@click.option("--no-jobs", is_flag=True, help="Leave out the CSV files of every job.")
@click.option("--schedule-out", metavar="FILE", help="Write id,start,end lines of a single run.")
@click.option(
    "--workers", type=click.IntRange(1), help="Processes; as many as there are cores without it."
)
@click.option(
    "--executor",
    default="local",
    show_default=True,
    metavar="WHO",
    help="local, or dask://HOST:PORT.",
)
@click.option("--title", default="What if", help="The report's.")
@click.option("--json", "as_json", is_flag=True, help="Write the result to standard output.")
@click.option("--stats", is_flag=True, help="Only say what the trace is like.")
def whatif(**given: Any) -> None:
    """Ask what another cluster, policy or workload would do, and get an answer from the real code.

    Every job of the trace is submitted to Muster's own engine and scheduler on a simulated cluster,
    in virtual time. Options with several values span a grid, whose first point is the base that the
    others are compared with. An interrupted study goes on when it is asked for again.

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
        _conduct(given)
    except (BadTrace, BadCluster, ValueError) as error:
        raise Complaint(str(error), exit_code=WRONG_USAGE) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Complaint(f"{where}{reason(error)}") from None


def _conduct(given: dict[str, Any]) -> None:
    question = question_of(given)
    study = study_of(question)
    if given["schedule_out"] and (len(study.scenarios) != 1 or question.replications != 1):
        raise ValueError("--schedule-out needs a single run: one cluster, one policy, one of all")
    if not given["out"] and not given["schedule_out"] and not given["as_json"]:
        raise ValueError("say where the answer goes: --out DIR, --schedule-out FILE or --json")
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
    """The folder that was asked for, or one that is gone afterwards."""
    if out:
        yield Path(out)
        return
    with TemporaryDirectory(prefix="muster-study-") as folder:
        yield Path(folder)
