"""Every manifest in examples/ is read, told, written again, and run to its end in virtual time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapters.memory_log import MemoryLog
from adapters.simpy_clock import SimpyClock, as_process
from adapters.simulated_cluster import SimulatedCluster
from controlplane.commands import SubmitJob
from controlplane.engine import Engine, EngineOptions
from controlplane.errors import Rejected
from controlplane.job import Job, Phase
from controlplane.kinds.kind import Gang, Submission
from controlplane.kinds.native import NAME
from controlplane.kinds.registry import forms, kind_of, read_manifest, write_manifest
from simulator.topology import Delays, grid
from simulator.virtual_time import VirtualTime

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
def test_an_example_says_the_same_in_every_form(document: dict[str, Any]) -> None:
    job = read_manifest(document)

    assert not job.warnings
    assert read_manifest(write_manifest(job)) == job
    assert read_manifest(write_manifest(job, NAME)) == job


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_rank_of_an_example_has_a_name_of_its_own(document: dict[str, Any]) -> None:
    job = read_manifest(document)
    gang = Gang(job.namespace, job.name, job.spec)
    tell = kind_of(job.spec).tell(gang)

    assert len({tell(rank).name for rank in range(job.spec.size)}) == job.spec.size


@pytest.mark.parametrize("document", DOCUMENTS)
def test_an_example_runs_to_its_end(document: dict[str, Any]) -> None:
    submission = read_manifest(document)
    if submission.name == TOO_LARGE:
        with pytest.raises(Rejected):
            ended(submission)
        return

    job = ended(submission)

    assert job.phase is OTHER_ENDS.get(job.name, Phase.SUCCEEDED)
    assert job.live_attempt is None, "finished, but not gone"


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
