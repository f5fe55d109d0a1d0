"""A scenario: all inputs of a run, as a plain value that can be stored, compared and sent.

The same scenario gives the same result in every process and on every machine, so a result is stored
under the fingerprint of its scenario.
"""

import hashlib
import os
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from controlplane.model.policy import Queue
from simulator.faults.presets import PRESETS
from simulator.network.topology import ClusterModel, Delays, parse_cluster
from studies.whatif.clusters import StudyCluster, equal_nodes, from_model, parse_nodes, pool
from studies.whatif.scenario_parts import (
    Autoscale,
    Checkpoints,
    Choice,
    ClusterChoice,
    Faults,
    WorkloadChoice,
)
from studies.workloads.formats import read_trace
from studies.workloads.resampling import resampled, scaled
from studies.workloads.synthetic import fit_profile, synthetic
from studies.workloads.trace import Trace


class Scenario(Choice, frozen=True):
    """All inputs of a run except its random numbers. Times are in seconds."""

    cluster: ClusterChoice
    workload: WorkloadChoice
    policy: str = "fifo"
    start_s: float = 0.0
    stop_s: float = 0.0
    faults: Faults = Faults()
    checkpoints: Checkpoints = Checkpoints()
    autoscale: Autoscale | None = None
    queues: tuple[Queue, ...] = ()
    price_gpu_hour: float = 0.0
    # The length of the study in seconds from the first submission; None runs until the last job
    # ends.
    until_s: float | None = None
    # The hardware of the trace, as in `V100:25GbE`, if jobs should run at the speed of the studied
    # hardware; "" keeps the recorded durations.
    recorded_on: str = ""
    # Whether the control plane records why each job waits.
    reasons: bool = False


class Cell(Choice, frozen=True):
    """One run of a scenario. Runs with the same replication number share their random numbers."""

    scenario: Scenario
    replication: int = 0
    # The number of replications; a single one runs the recorded trace unchanged.
    replications: int = 1
    seed: int = 0


_encode = msgspec.json.Encoder(order="sorted").encode


def fingerprint_of(value: msgspec.Struct) -> str:
    """Return 16 hexadecimal digits that identify a value."""
    return hashlib.sha256(_encode(value)).hexdigest()[:16]


# ---------------------------------------------------------------- clusters and traces


def make_cluster(scenario: Scenario, seed: int) -> StudyCluster:
    """Build the cluster of a scenario, with its delays, faults and seed."""
    choice = scenario.cluster
    delays = Delays(start_s=scenario.start_s, stop_s=scenario.stop_s)
    if choice.gpus is not None:
        cluster = pool(choice.gpus, delays=delays)
    elif choice.nodes:
        cluster = equal_nodes(*parse_nodes(choice.nodes), delays=delays)
    else:
        assert choice.document is not None, "a cluster is a pool, nodes or a document"
        model = parse_cluster(msgspec.json.decode(choice.document))
        cluster = from_model(choice.file, model)
        if scenario.start_s or scenario.stop_s:
            cluster = cluster.with_delays(delays)
    faults = scenario.faults
    model = _with_faults(cluster.model, faults) if faults.node_mtbf_s else cluster.model
    return cluster.with_model(_seeded(model, seed))


def _with_faults(model: ClusterModel, faults: Faults) -> ClusterModel:
    preset = PRESETS.get(faults.name)
    if preset is not None:
        return replace(model, faults=replace(model.faults, preset=preset))
    chance = replace(
        model.faults, node_mtbf_s=faults.node_mtbf_s, node_repair_s=faults.node_repair_s
    )
    return replace(model, faults=chance)


def _seeded(model: ClusterModel, seed: int) -> ClusterModel:
    return replace(model, seed=seed)


def make_trace(cell: Cell) -> Trace:
    """Return the workload of a cell; cells with the same replication number share it."""
    choice = cell.scenario.workload
    trace = _chosen(choice)
    seed = f"{cell.seed}/{cell.replication}/workload"
    if choice.synthetic_days is not None:
        profile = fit_profile(trace)
        return synthetic(profile, seed, days=choice.synthetic_days, load=choice.load)
    if cell.replications > 1:
        trace = resampled(trace, seed)
    return trace if choice.load == 1.0 else scaled(trace, choice.load)


def _chosen(choice: WorkloadChoice) -> Trace:
    """Return the jobs submitted in the chosen window; raise ValueError if there are none."""
    trace = whole_trace(choice)
    since = trace.submit - trace.submit[0]
    chosen = since >= choice.begin_s
    if choice.length_s is not None:
        chosen &= since < choice.begin_s + choice.length_s
    if not bool(chosen.any()):
        raise ValueError(f"no job of {choice.path} was submitted in the chosen window")
    return trace if bool(chosen.all()) else trace.rows(chosen.nonzero()[0])


def workload_in(path: str, form: str, **more: Any) -> WorkloadChoice:
    """Return the workload in a file, identified by its content.

    Raise BadTrace if the file cannot be read.
    """
    return WorkloadChoice(
        path=os.path.abspath(path), form=form, sha256=content_of(Path(path)), **more
    )


def whole_trace(choice: WorkloadChoice) -> Trace:
    """Return the trace of a workload; a process reads it once as long as its content is the same."""
    return _read(choice.path, choice.form, choice.sha256)


@lru_cache(maxsize=2)
def _read(path: str, form: str, sha256: str) -> Trace:
    return read_trace(Path(path), form)


def content_of(path: Path) -> str:
    """Return the SHA-256 of a file, or of all files of a folder."""
    digest = hashlib.sha256()
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if file.is_file():
            digest.update(file.read_bytes())
    return digest.hexdigest()
