"""A whole world that trains, fails and recovers: the same bytes from the same seed, anywhere."""

import hashlib
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import Training, Workload, hints_of
from controlplane.engine import Engine, EngineOptions
from controlplane.model.commands import ScaleJob, SubmitJob
from controlplane.model.failures import Cause
from controlplane.model.phases import Phase
from controlplane.model.spec import DoneWhen, JobSpec, Repair, Role, Scheduling
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import parse_cluster
from tests.adapters.test_simulated_cluster import at_once

DAY = 86_400.0
ROOT = Path(__file__).parents[2]


def _cluster(preset: str) -> object:
    rack = {"nodes": 8, "gpus": 4, "gpu_type": "P100", "link": "pcie3", "net": "25GbE"}
    return {
        "racks": [rack | {"name": "a"}, rack | {"name": "b"}, rack | {"name": "cloud"}],
        "fabric": {"oversubscription": 2},
        "pools": [{"rack": "cloud", "least": 2, "most": 8, "spot": True, "price_h": 3.0}],
        "faults": {
            "preset": preset,
            "spot": {"rack": "cloud", "mean_s": 20_000},
            "maintenance": [{"rack": "b", "at_s": 40_000, "duration_s": 3_600}],
            "script": [
                {"at_s": 9_000, "node": "a-1", "kind": "link", "factor": 0.3, "repair_s": 5_000},
                {"at_s": 12_000, "node": "a-2", "kind": "slow", "factor": 0.7, "repair_s": 9_000},
            ],
        },
        "seed": 11,
    }


def run(preset: str) -> tuple[Engine, SimulatedCluster, str]:
    """Thirty jobs in two days; the world, the cluster, and the hash of the log."""
    env, log = VirtualTime(), MemoryLog()
    engines: list[Engine] = []

    def waiting() -> int:
        world = engines[0].world
        jobs = [world.jobs[key.job] for queue in world.queues for key in world.waiting.keys(queue)]
        return sum(role.gpus * role.replicas for job in jobs for role in job.spec.roles)

    model = parse_cluster(_cluster(preset))
    cluster = SimulatedCluster(env, model, waiting_gpus=waiting)
    options = EngineOptions(resync_s=None, snapshot_every=None)
    engine = Engine(SimpyClock(env), log, cluster, options)
    engines.append(engine)
    as_process(env, engine.run())
    dice = Random(3)
    for number in range(30):
        env.run(until=env.now + dice.expovariate(1 / 1500))
        engine.submit(_job(number, dice))
    env.run(until=2 * DAY)
    rows = at_once(log.read(0, 1_000_000))
    assert len(rows) > 200
    return engine, cluster, hashlib.sha256(repr(rows).encode()).hexdigest()


def _job(number: int, dice: Random) -> SubmitJob:
    model = dice.choice(["resnet50", "vgg16", "inception_v3", "alexnet"])
    training = Training(
        model=model,
        steps=dice.randrange(5_000, 40_000),
        scheme=dice.choice(["ring", "ring", "ps-node"]),
        checkpoint_s=1_200.0,
        checkpoint_write_s=10.0,
    )
    spec = JobSpec(
        roles=(Role(name="Worker", replicas=dice.choice([1, 2, 4, 6]), gpus=4),),
        done_when=DoneWhen("Worker"),
        hints=hints_of(Workload(training=training)),
    )
    name = f"job-{number}"
    return SubmitJob(
        id=f"c{number}", actor="ann", job=f"{number:04}", namespace="t", name=name, spec=spec
    )


def test_training_survives_faults_and_every_job_ends() -> None:
    engine, cluster, _ = run("stepfun")
    phases = [job.phase for job in engine.world.jobs.values()]
    assert phases.count(Phase.SUCCEEDED) == 30
    assert sum(len(job.restarts) for job in engine.world.jobs.values()) > 5
    assert sum(cluster.lost_s.values()) > 0.0
    assert cluster.spent["cloud"] > 0.0
    engine.world.check()


def test_a_notice_moves_a_gang_before_its_node_is_taken() -> None:
    """Two equal nodes; the one that the gang got is reclaimed after a notice of two minutes."""
    rack = {"name": "a", "nodes": 2, "gpus": 4, "gpu_type": "P100", "link": "pcie3"}
    notice = {"at_s": 1_000, "node": "a-0", "kind": "spot_reclaim", "repair_s": 1e6}
    document = {"racks": [rack], "faults": {"script": [notice | {"notice_s": 120}]}}
    env, log = VirtualTime(), MemoryLog()
    cluster = SimulatedCluster(env, parse_cluster(document))
    engine = Engine(SimpyClock(env), log, cluster, EngineOptions(resync_s=None))
    as_process(env, engine.run())
    training = Training(model="resnet50", steps=20_000, checkpoint_s=600.0, checkpoint_write_s=30.0)
    spec = JobSpec(
        roles=(Role(name="Worker", gpus=4),),
        done_when=DoneWhen("Worker"),
        hints=hints_of(Workload(training=training)),
    )
    env.run(until=10.0)
    command = SubmitJob(id="c", actor="ann", job="j", namespace="t", name="spot", spec=spec)
    engine.submit(command)
    env.run(until=999.0)
    job = engine.world.jobs["j"]
    assert job.attempt is not None
    # A second before the reclaim it runs elsewhere already, and nothing is lost.
    assert [(r.cause, r.at) for r in job.restarts] == [(Cause.SPOT_RECLAIM, 880.0)]
    assert {slot.node for slot in job.attempt.placement} == {"a-1"}
    assert job.phase is Phase.RUNNING
    assert sum(cluster.lost_s.values()) == 0.0
    env.run(until=20_000.0)
    assert engine.world.jobs["j"].phase is Phase.SUCCEEDED
    assert len(engine.world.jobs["j"].restarts) == 1


def _elastic_end(replicas: int | None) -> float:
    """When a job of two ranks ends that is scaled after 1,000 s, or not at all."""
    rack = {"name": "a", "nodes": 4, "gpus": 4, "gpu_type": "P100", "link": "pcie3", "net": "25GbE"}
    env = VirtualTime()
    cluster = SimulatedCluster(env, parse_cluster({"racks": [rack]}))
    engine = Engine(SimpyClock(env), MemoryLog(), cluster, EngineOptions(resync_s=None))
    as_process(env, engine.run())
    worker = Role(name="Worker", replicas=2, gpus=4, min_replicas=1, max_replicas=4)
    spec = JobSpec(
        roles=(worker,),
        done_when=DoneWhen("Worker"),
        hints=hints_of(Workload(training=Training(model="resnet50", steps=10_000))),
    )
    env.run(until=10.0)
    engine.submit(SubmitJob(id="c", actor="ann", job="j", namespace="t", name="elastic", spec=spec))
    env.run(until=1_000.0)
    if replicas is not None:
        engine.submit(
            ScaleJob(
                id="s", actor="ann", namespace="t", name="elastic", role="Worker", replicas=replicas
            )
        )
    env.run(until=DAY)
    job = engine.world.jobs["j"]
    assert (job.phase, job.attempt and job.attempt.number) == (Phase.SUCCEEDED, 1)
    assert job.finished_at is not None
    return job.finished_at


def test_a_gang_that_grows_is_sooner_done_and_one_that_shrinks_later() -> None:
    as_it_was = _elastic_end(None)
    left_s = as_it_was - 1_000.0
    assert _elastic_end(4) - 1_000.0 == pytest.approx(left_s / 2, rel=0.1)
    assert _elastic_end(1) - 1_000.0 == pytest.approx(left_s * 2, rel=0.15)


def test_conditions_make_some_jobs_fail_by_themselves() -> None:
    engine, _, _ = run("acme")
    failed = [job for job in engine.world.jobs.values() if job.phase is Phase.FAILED]
    assert 3 <= len(failed) <= 20


def test_the_same_seed_gives_the_same_log_in_another_process_and_under_another_hash_seed() -> None:
    program = "from tests.scenarios.test_training_world import run; print(run('rsc1')[2])"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "271828")
    }
    assert hashes == {f"{run('rsc1')[2]}\n".encode()}


@pytest.mark.parametrize("is_training", [True, False])
def test_a_repaired_gang_begins_again_as_a_whole_and_ends(is_training: bool) -> None:
    """One node is lost, and later the one that its rank was moved to: each time there is a spare."""
    rack = {"name": "a", "nodes": 4, "gpus": 4, "gpu_type": "P100", "link": "pcie3"}
    crashes = [
        {"at_s": 1_000, "node": "a-0", "kind": "crash", "repair_s": 1e6},
        {"at_s": 2_000, "node": "a-2", "kind": "crash", "repair_s": 1e6},
    ]
    env = VirtualTime()
    document = {"racks": [rack], "faults": {"script": crashes}}
    cluster = SimulatedCluster(env, parse_cluster(document))
    engine = Engine(SimpyClock(env), MemoryLog(), cluster, EngineOptions(resync_s=None))
    as_process(env, engine.run())
    training = Training(model="resnet50", steps=20_000, checkpoint_s=600.0, checkpoint_write_s=30.0)
    spec = JobSpec(
        roles=(Role(name="Worker", replicas=2, gpus=4),),
        done_when=DoneWhen("Worker"),
        hints=hints_of(
            Workload(training=training) if is_training else Workload(duration_s=5_000.0)
        ),
        scheduling=Scheduling(repair=Repair.REPLACE),
    )
    env.run(until=10.0)
    engine.submit(SubmitJob(id="c", actor="ann", job="j", namespace="t", name="job", spec=spec))
    env.run(until=100_000.0)
    job = engine.world.jobs["j"]
    assert job.phase is Phase.SUCCEEDED
    assert (job.restarts, job.attempt.number) == ((), 1)
    assert [slot.node for slot in job.attempt.placement] == ["a-3", "a-1"]
    ends = {rank.ended_at for rank in job.attempt.ranks}
    assert len(ends) == 1, "all of them end together"
    if not is_training:
        # What has no checkpoints begins again from the start, when the second spare is up.
        assert ends == {2_005.0 + 5_000.0}
