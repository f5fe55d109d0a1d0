"""A what-if study, from the question to the report.

Usage:

    from studies.whatif.whatif import WhatIf, ask
    result = ask(WhatIf(trace="jobs.csv", nodes=("16x8", "24x8"), policies=("fifo", "easy")), "out")
"""

import os
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from controlplane.model.policy import Queue
from studies.report.page import page
from studies.simulation.hardware import TraceHardware
from studies.simulation.trace_jobs import labels_of
from studies.whatif.capacity_search import Probe, fewest_nodes, parse_goal
from studies.whatif.clusters import other_count, parse_nodes
from studies.whatif.executors import Executor, executor_for
from studies.whatif.fault_presets import faults_named
from studies.whatif.grid import Progress, Study, conduct, crossed
from studies.whatif.policies import policy_named
from studies.whatif.scenario import Scenario, make_cluster, whole_trace, workload_in
from studies.whatif.scenario_parts import Autoscale, Checkpoints, ClusterChoice, WorkloadChoice
from studies.whatif.store import Store, write_whole

REPLICATIONS_MAX = 10_000
# Ten years.
SYNTHETIC_DAYS_MAX = 3_650
SCENARIOS_MAX = 10_000
# Scenarios times replications.
RUNS_MAX = 1_000_000
# Over all clusters of a question, because each is built once to check it.
GRID_NODES_MAX = 1_000_000


class ClusterFile(msgspec.Struct, frozen=True):
    """The document of a cluster file, and its name in results."""

    name: str
    # As JSON.
    document: str


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a question except its workload and cluster files.

    Fields with several values span a grid; its first point is the base.
    """

    gpus: tuple[Annotated[int, Meta(ge=1, le=1_000_000)], ...] = ()
    nodes: tuple[str, ...] = ()
    policies: tuple[str, ...] = ("fifo",)
    loads: tuple[float, ...] = (1.0,)
    faults: tuple[str, ...] = ("none",)
    checkpoint_s: tuple[float, ...] = (0.0,)
    checkpoint_write_s: float = 0.0
    autoscale_from: tuple[int | None, ...] = (None,)
    boot_s: float = 300.0
    idle_s: float = 600.0
    prices: tuple[float, ...] = (0.0,)
    # For each queue, the most GPUs that its jobs may use together; several tables span an axis.
    quotas: tuple[dict[str, Annotated[int, Meta(ge=0)]], ...] = ({},)
    start_s: float = 0.0
    stop_s: float = 0.0
    begin_s: float = 0.0
    length_s: float | None = None
    until_s: float | None = None
    synthetic_days: float | None = None
    replications: Annotated[int, Meta(ge=1, le=REPLICATIONS_MAX)] = 1
    seed: Annotated[int, Meta(ge=0, le=2**53)] = 0
    # A goal as in `wait_p90_s<=1h`: the study searches for the fewest nodes that reach it.
    goal: str = ""
    # The hardware of the trace, as in `V100:25GbE`: jobs whose model is known then run at the speed
    # of the studied cluster.
    recorded_on: str = ""
    reasons: bool = False


class WhatIf(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A what-if question: a trace, clusters and options."""

    trace: str
    format: str = ""
    clusters: tuple[ClusterFile, ...] = ()
    window: tuple[float, float] | None = None
    jobs_csv: bool = True


def study_of(question: WhatIf, *, runs_max: int = RUNS_MAX) -> Study:
    """Return the grid that a question spans.

    Raise ValueError for any mistake in the question, before any run. The size of the grid is
    checked before anything is built: a few kilobytes of lists can span millions of scenarios.
    """
    _check_size(question, runs_max)
    _check_numbers(question)
    workload = workload_in(
        question.trace,
        question.format,
        begin_s=question.begin_s,
        length_s=question.length_s,
        synthetic_days=question.synthetic_days,
    )
    known = set(whole_trace(workload).labels.get("queue", ()))
    for table in question.quotas:
        for queue in table:
            if queue not in known and queue != "default":
                raise ValueError(f"quota: no job of the trace is in a queue {queue!r}")
    clusters = _clusters(question)
    _check_autoscale(question, clusters)
    base = Scenario(
        cluster=next(iter(clusters)),
        workload=workload,
        start_s=question.start_s,
        stop_s=question.stop_s,
        until_s=question.until_s,
        reasons=question.reasons,
        recorded_on=question.recorded_on,
    )
    if question.recorded_on:
        TraceHardware(question.recorded_on)
    scenarios = crossed(
        base,
        {
            "cluster": list(clusters),
            "policy": [policy_named(name).name for name in question.policies],
            "load": question.loads,
            "faults": [faults_named(name) for name in question.faults],
            "checkpoints": [
                Checkpoints(every_s=s, write_s=question.checkpoint_write_s if s else 0.0)
                for s in question.checkpoint_s
            ],
            "autoscale": [
                None if n is None else Autoscale(
                    nodes_min=n, boot_s=question.boot_s, idle_s=question.idle_s
                )
                for n in question.autoscale_from
            ],
            "queues": [
                tuple(Queue(_label(name, known), gpus) for name, gpus in sorted(table.items()))
                for table in question.quotas
            ],
            "price_gpu_hour": question.prices,
        },
    )  # fmt: skip
    return Study(
        scenarios=scenarios,
        replications=question.replications,
        seed=question.seed,
        window=question.window,
        jobs_csv=question.jobs_csv,
    )


def _check_size(question: WhatIf, runs_max: int) -> None:
    axes = (
        question.policies,
        question.loads,
        question.faults,
        question.checkpoint_s,
        question.autoscale_from,
        question.prices,
        question.quotas,
    )
    clusters = len(question.gpus) + len(question.nodes) + len(question.clusters)
    scenarios = clusters * prod(map(len, axes))
    if scenarios > SCENARIOS_MAX:
        raise ValueError(
            f"the lists span {scenarios} scenarios; at most {SCENARIOS_MAX} are taken: shorten a list"
        )
    if (runs := scenarios * question.replications) > runs_max:
        raise ValueError(
            f"{scenarios} scenarios with {question.replications} replications are {runs} runs; "
            f"at most {runs_max} are taken"
        )
    for name, values in (("policies", question.policies), ("loads", question.loads),
                         ("faults", question.faults), ("checkpoint_s", question.checkpoint_s),
                         ("autoscale_from", question.autoscale_from),
                         ("prices", question.prices), ("quotas", question.quotas)):  # fmt: skip
        if not values:
            raise ValueError(f"{name}: the list is empty; leave it out for the default")


def _check_numbers(question: WhatIf) -> None:
    if not 1 <= question.replications <= REPLICATIONS_MAX:
        raise ValueError(f"replications: {question.replications} is not 1 to {REPLICATIONS_MAX}")
    for name in ("start_s", "stop_s", "begin_s", "checkpoint_write_s", "boot_s", "idle_s"):
        if not 0 <= getattr(question, name) < 1e12:
            raise ValueError(f"{name}: {getattr(question, name):g} is not a number of seconds")
    days = question.synthetic_days
    if days is not None and not 0 < days <= SYNTHETIC_DAYS_MAX:
        message = f"synthetic_days: {days:g} is not above 0 and up to {SYNTHETIC_DAYS_MAX}"
        raise ValueError(message)
    for load in question.loads:
        if not 0 < load <= 1000:
            raise ValueError(f"load: {load:g} is not above 0 and up to 1000")
    for price in question.prices:
        if not 0 <= price < 1e9:
            raise ValueError(f"price: {price:g} is not a price")
    for every in question.checkpoint_s:
        if not 0 <= every < 1e12:
            raise ValueError(f"checkpoint: {every:g} is not a number of seconds")


def _clusters(question: WhatIf) -> dict[ClusterChoice, int]:
    """Return the clusters of a question with their numbers of nodes.

    Each is built once to check it.
    """
    choices = [ClusterChoice(gpus=gpus) for gpus in question.gpus]
    for text in question.nodes:
        parse_nodes(text)
        choices.append(ClusterChoice(nodes=text.strip()))
    choices += [ClusterChoice(file=each.name, document=each.document) for each in question.clusters]
    if not choices:
        raise ValueError("a study needs a cluster: gpus, nodes, or a cluster file")
    nodes: dict[ClusterChoice, int] = {}
    for choice in choices:
        if choice not in nodes:
            made = make_cluster(Scenario(cluster=choice, workload=WorkloadChoice(path="")), 0)
            nodes[choice] = len(made.model.nodes)
        if sum(nodes.values()) > GRID_NODES_MAX:
            raise ValueError(f"the clusters have more than {GRID_NODES_MAX} nodes together")
    return nodes


def _check_autoscale(question: WhatIf, clusters: dict[ClusterChoice, int]) -> None:
    for nodes_min in question.autoscale_from:
        for nodes in clusters.values():
            if nodes_min is not None and (not 0 <= nodes_min <= nodes or nodes == 1):
                raise ValueError(
                    f"autoscale: {nodes_min} of {nodes} nodes is not a range to scale in"
                )


def _label(queue: str, known: set[str]) -> str:
    return labels_of(known).get(queue, queue)


def ask(
    question: WhatIf,
    out: str | Path,
    *,
    study: Study | None = None,
    executor: Executor | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_probe: Callable[[Probe], None] | None = None,
    title: str = "What if",
) -> dict[str, Any]:
    """Answer a question and write the result to the folder `out`.

    The files are result.json, report.html, jobs/ and the cells. Cells that are already in this
    folder are used again, so an interrupted study continues, and a larger grid computes only its
    new cells. `study` is the grid of the question, if the caller has built it already. Raise
    ValueError for a mistake in the question.
    """
    study = study or study_of(question)
    asked = parse_goal(question.goal) if question.goal else None
    if asked is not None and not study.scenarios[0].cluster.nodes:
        raise ValueError("a goal needs a cluster that is given as nodes, as in 64x8")
    store = Store(Path(out))
    executor = executor or executor_for("local", os.cpu_count() or 1)
    goal: dict[str, Any] | None = None
    if asked is not None:
        base = study.scenarios[0]
        goal = fewest_nodes(base, asked, study, store, executor, on_probe)
        study = _with_sizes(study, goal)
    result = conduct(study, store, executor, on_progress)
    if goal is not None:
        result["goal"] = goal
    _write_files(study, store, result, title)
    return result


def _with_sizes(study: Study, goal: dict[str, Any]) -> Study:
    """Add the sizes that the search tried as scenarios; the first scenario stays the base."""
    base = study.scenarios[0]
    tried = [
        replace(base, cluster=ClusterChoice(nodes=other_count(base.cluster.nodes, probe["nodes"])))
        for probe in goal["tried"]
    ]
    return replace(study, scenarios=tuple(dict.fromkeys((*study.scenarios, *tried))))


def _write_files(study: Study, store: Store, result: dict[str, Any], title: str) -> None:
    if study.jobs_csv:
        for number, scenario in enumerate(study.scenarios):
            content = store.side_file(study.task(scenario, 0), "jobs")
            write_whole(store.folder / "jobs" / f"{number:03}.csv", content)
    encoded = msgspec.json.Encoder(order="sorted").encode(result)
    write_whole(store.folder / "result.json", msgspec.json.format(encoded, indent=1) + b"\n")
    write_whole(store.folder / "report.html", page(result, title=title).encode())


def schedule_of(study: Study, out: str | Path) -> bytes:
    """Return the `id,start,end` lines of a study that has been conducted.

    Raise ValueError if it has several runs.
    """
    if len(study.scenarios) != 1 or study.replications != 1:
        raise ValueError("a schedule is that of a single run: one scenario, one replication")
    return Store(Path(out)).side_file(study.task(study.scenarios[0], 0), "schedule")
