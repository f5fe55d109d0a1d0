"""Every manifest in examples/ is read, has environments, is written again, and runs to its end in virtual time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from controlplane.engine import Engine, EngineOptions
from controlplane.kinds.kind import GangContext, Submission
from controlplane.kinds.native import NAME
from controlplane.kinds.registry import forms, kind_of, read_manifest, write_manifest
from controlplane.lifecycle.job import Job
from controlplane.model.commands import SubmitJob
from controlplane.model.errors import Rejected
from controlplane.model.phases import OwnerPhase, Phase
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import Delays, grid

EXAMPLES = Path(__file__).parents[2] / "examples"
# How those end that are to show something else than a success.
OTHER_ENDS = {"broken-loader": Phase.FAILED}
TOO_LARGE = "too-large"
LONG_ENOUGH_S = 20_000.0


def documents() -> Iterator[Any]:
    for path in sorted(EXAMPLES.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            # A description of a cluster is no manifest.
            if "apiVersion" in document:
                yield pytest.param(document, id=f"{path.stem}:{document['metadata']['name']}")


DOCUMENTS = list(documents())


def test_every_version_of_every_kind_has_an_example() -> None:
    shown = {(param.values[0]["apiVersion"], param.values[0]["kind"]) for param in DOCUMENTS}
    assert set(forms()) - shown == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_an_example_has_the_same_meaning_in_every_form(document: dict[str, Any]) -> None:
    job = read_manifest(document)

    assert not job.warnings
    assert read_manifest(write_manifest(job)) == job
    assert read_manifest(write_manifest(job, NAME)) == job


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_rank_of_an_example_has_a_name_of_its_own(document: dict[str, Any]) -> None:
    job = read_manifest(document)
    gang = GangContext(job.namespace, job.name, job.spec)
    environment = kind_of(job.spec).environments(gang)

    assert len({environment(rank).name for rank in range(job.spec.size)}) == job.spec.size


ALONE = [p for p in DOCUMENTS if not {"after", "array"} & p.values[0].get("spec", {}).keys()]


@pytest.mark.parametrize("document", ALONE)
def test_an_example_runs_to_its_end(document: dict[str, Any]) -> None:
    submission = read_manifest(document)
    if submission.name == TOO_LARGE:
        with pytest.raises(Rejected):
            ended(submission)
        return

    job = ended(submission)

    assert job.phase is OTHER_ENDS.get(job.name, Phase.SUCCEEDED)
    assert job.live_attempt is None, "finished, but not gone"


def test_the_array_and_the_chain_run_to_their_ends() -> None:
    env = VirtualTime()
    cluster = SimulatedCluster(env, grid(2, 4, 8, delays=Delays(start_s=5.0, stop_s=2.0)))
    options = EngineOptions(resync_s=None, snapshot_every=None)
    engine = Engine(SimpyClock(env), MemoryLog(), cluster, options)
    as_process(env, engine.run())
    env.run(until=1.0)
    for name in ("chain", "array"):
        for document in yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text()):
            job = read_manifest(document)
            engine.submit(
                SubmitJob(
                    id=job.name, job=job.name, namespace="default", name=job.name, spec=job.spec
                )
            )
    env.run(until=500.0)
    world = engine.world
    assert world.owners["sweep"].phase is OwnerPhase.SUCCEEDED
    ends = {name: world.jobs[name].phase for name in ("prepare", "train", "evaluate", "clean-up")}
    assert list(ends.values()) == [Phase.SUCCEEDED] * 3 + [Phase.FAILED]


def ended(submission: Submission) -> Job:
    """The job after all there is to happen has happened, on a cluster of its own."""
    env = VirtualTime()
    cluster = SimulatedCluster(env, grid(2, 4, 8, delays=Delays(start_s=5.0, stop_s=2.0)))
    log = MemoryLog()
    engine = Engine(
        SimpyClock(env), log, cluster, EngineOptions(resync_s=None, snapshot_every=None)
    )
    as_process(env, engine.run())
    env.run(until=1.0)
    answers: list[Any] = []
    command = SubmitJob(
        id="c",
        job="j",
        namespace=submission.namespace,
        name=submission.name,
        spec=submission.spec,
        suspended=submission.suspended,
    )
    engine.submit(command, answers.append)
    env.run(until=2.0)
    if isinstance(answers[0], Rejected):
        raise answers[0]
    last = engine.world.jobs["j"]
    while env.peek() < LONG_ENOUGH_S:
        env.run(until=env.peek() + 1.0)
        # A time to live may take the finished job away.
        last = engine.world.jobs.get("j", last)
        if last.finished and last.live_attempt is None:
            break
    return last
