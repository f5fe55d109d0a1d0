"""A study: a grid of scenarios, each run several times, and one document that compares them."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from studies.metrics.goodput import PARTS
from studies.whatif.cells import Task
from studies.whatif.comparison import MEASURES, interval, measure, paired
from studies.whatif.executors import Executor
from studies.whatif.scenario import Cell, Scenario
from studies.whatif.store import Store

FORMAT = 1


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """Scenarios and their replications; the first scenario is the base of all comparisons."""

    scenarios: tuple[Scenario, ...]
    replications: int = 1
    seed: int = 0
    window: tuple[float, float] | None = None
    jobs_csv: bool = True

    def task(self, scenario: Scenario, replication: int) -> Task:
        cell = Cell(
            scenario=scenario,
            replication=replication,
            replications=self.replications,
            seed=self.seed,
        )
        return Task(
            cell=cell,
            window=self.window,
            jobs_csv=self.jobs_csv and replication == 0,
            schedule=replication == 0,
        )

    def tasks(self, scenario: Scenario) -> list[Task]:
        return [self.task(scenario, n) for n in range(self.replications)]


class Progress(NamedTuple):
    """How many cells of a study are done."""

    done: int
    total: int


def crossed(base: Scenario, axes: dict[str, Sequence[Any]]) -> tuple[Scenario, ...]:
    """Return every combination of the values of `axes`, without duplicates.

    An axis is a field of `Scenario`, or `load`, a field of its workload. The last axis varies
    fastest.
    """
    scenarios = []
    for values in product(*axes.values()):
        changes = dict(zip(axes, values, strict=True))
        load = changes.pop("load", None)
        scenario = replace(base, **changes)
        if load is not None:
            scenario = replace(scenario, workload=replace(scenario.workload, load=load))
        scenarios.append(scenario)
    return tuple(dict.fromkeys(scenarios))


def compute(
    tasks: Sequence[Task],
    store: Store,
    executor: Executor,
    on_progress: Callable[[Progress], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Return the documents of all tasks by key: read from `store`, or computed now and stored."""
    documents: dict[str, dict[str, Any]] = {}
    missing: dict[str, Task] = {}
    for task in tasks:
        document = store.find(task)
        if document is None:
            missing[task.key] = task
        else:
            documents[task.key] = document
    total = len(documents) + len(missing)
    if on_progress is not None:
        on_progress(Progress(len(documents), total))
    if missing:
        for result in executor(list(missing.values())):
            store.keep(result)
            documents[result.key] = msgspec.json.decode(result.document)
            if on_progress is not None:
                on_progress(Progress(len(documents), total))
    return documents


def conduct(
    study: Study,
    store: Store,
    executor: Executor,
    on_progress: Callable[[Progress], None] | None = None,
) -> dict[str, Any]:
    """Run the cells that are not stored yet, and return the result of the study as one document."""
    by_scenario = [study.tasks(scenario) for scenario in study.scenarios]
    tasks = [task for each in by_scenario for task in each]
    documents = compute(tasks, store, executor, on_progress)
    summaries = [[documents[task.key]["summary"] for task in each] for each in by_scenario]
    names = names_of(study.scenarios)
    values = [
        {name: [measure(summary, name) for summary in each] for name in MEASURES}
        for each in summaries
    ]
    entries = []
    for number, scenario in enumerate(study.scenarios):
        first = documents[by_scenario[number][0].key]
        entry: dict[str, Any] = {
            "name": names[number],
            "scenario": msgspec.to_builtins(scenario),
            "measures": {name: interval(values[number][name]) for name in MEASURES},
            # The shares of GPU time, as means over all replications.
            "goodput_share": {
                part: interval([s["goodput"]["share"][part] for s in summaries[number]])["mean"]
                for part in PARTS
            },
            "schedule_sha256": first["schedule_sha256"],
            "replication_0": first["summary"],
        }
        if number:
            entry["against_base"] = {
                name: paired(values[number][name], values[0][name]) for name in MEASURES
            }
        entries.append(entry)
    return {
        "format": FORMAT,
        "replications": study.replications,
        "seed": study.seed,
        "measures": {name: label for name, (_, label) in MEASURES.items()},
        "scenarios": entries,
    }


def names_of(scenarios: Sequence[Scenario]) -> list[str]:
    """Return names that contain only the fields in which the scenarios differ."""
    parts = [_parts(scenario) for scenario in scenarios]
    differing = [
        column for column in parts[0] if len({str(part[column]) for part in parts}) > 1
    ] or ["cluster", "policy"]
    return [", ".join(part[column] for column in differing if part[column]) for part in parts]


def _parts(scenario: Scenario) -> dict[str, str]:
    s = scenario
    scale = s.autoscale
    return {
        "cluster": s.cluster.name,
        "policy": s.policy,
        "load": f"load {s.workload.load:g}",
        "start": f"start-up {s.start_s:g} s",
        "faults": f"faults {s.faults.name}",
        "checkpoints": f"checkpoint every {s.checkpoints.every_s:g} s"
        if s.checkpoints.every_s
        else "no checkpoints",
        "autoscale": f"from {scale.nodes_min} nodes" if scale else "fixed",
        "price": f"{s.price_gpu_hour:g} a GPU-hour",
        "queues": "; ".join(
            f"{q.name}={q.gpus_max if q.gpus_max is not None else q.nominal}" for q in s.queues
        )
        or "no quotas",
    }
