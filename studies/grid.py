"""A study: a grid of scenarios, each run several times, and the results side by side."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from studies.answers.goodput import PARTS
from studies.cells import Task
from studies.comparison import MEASURES, interval, measure, paired
from studies.executors import Executor
from studies.scenario import Cell, Scenario
from studies.store import Store

FORMAT = 1


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """The first scenario is the base that the others are compared with."""

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
    done: int
    total: int


def crossed(base: Scenario, axes: dict[str, Sequence[Any]]) -> tuple[Scenario, ...]:
    """Every combination of the values of the axes, which are fields of a scenario.

    `load` is the workload's; the last axis varies fastest.
    """
    found = []
    for values in product(*axes.values()):
        changes = dict(zip(axes, values, strict=True))
        load = changes.pop("load", None)
        scenario = replace(base, **changes)
        if load is not None:
            scenario = replace(scenario, workload=replace(scenario.workload, load=load))
        found.append(scenario)
    return tuple(dict.fromkeys(found))


def compute(
    tasks: Sequence[Task],
    store: Store,
    executor: Executor,
    on_progress: Callable[[Progress], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """The documents of all tasks by key: those that are kept, and the others computed now."""
    found: dict[str, dict[str, Any]] = {}
    missing: dict[str, Task] = {}
    for task in tasks:
        document = store.find(task)
        if document is None:
            missing[task.key] = task
        else:
            found[task.key] = document
    total = len(found) + len(missing)
    if on_progress is not None:
        on_progress(Progress(len(found), total))
    if missing:
        for result in executor(list(missing.values())):
            store.keep(result)
            found[result.key] = msgspec.json.decode(result.document)
            if on_progress is not None:
                on_progress(Progress(len(found), total))
    return found


def conduct(
    study: Study,
    store: Store,
    executor: Executor,
    on_progress: Callable[[Progress], None] | None = None,
) -> dict[str, Any]:
    """Runs what is missing and returns the result as one document."""
    by_scenario = [study.tasks(scenario) for scenario in study.scenarios]
    tasks = [task for each in by_scenario for task in each]
    documents = compute(tasks, store, executor, on_progress)
    summaries = [[documents[task.key]["summary"] for task in each] for each in by_scenario]
    names = names_of(study.scenarios)
    values = [
        {name: [measure(summary, name) for summary in each] for name in MEASURES}
        for each in summaries
    ]
    told = []
    for number, scenario in enumerate(study.scenarios):
        first = documents[by_scenario[number][0].key]
        entry: dict[str, Any] = {
            "name": names[number],
            "scenario": msgspec.to_builtins(scenario),
            "measures": {name: interval(values[number][name]) for name in MEASURES},
            # Where the GPU time went, in the mean of all replications.
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
        told.append(entry)
    return {
        "format": FORMAT,
        "replications": study.replications,
        "seed": study.seed,
        "measures": {name: label for name, (_, label) in MEASURES.items()},
        "scenarios": told,
    }


def names_of(scenarios: Sequence[Scenario]) -> list[str]:
    """Names that say how scenarios differ, and nothing about what they have in common."""
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
