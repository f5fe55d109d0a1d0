"""Elastic gangs that lose ranks with their nodes: they go on, down to their minimum, and grow back."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import Training, Workload, hints_of
from controlplane.audit.redecide import redecide
from controlplane.engine import Engine, EngineOptions
from controlplane.kinds.registry import read_manifest
from controlplane.lifecycle.job import Job
from controlplane.log.replay import rebuild
from controlplane.log.snapshots import state_hash
from controlplane.model.commands import SubmitJob
from controlplane.model.failures import Cause
from controlplane.model.phases import Phase, RankState
from controlplane.model.spec import DoneWhen, JobSpec, RestartPolicy, Role
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import parse_cluster
from tests.adapters.test_simulated_cluster import at_once
from tests.controlplane.held_waits import held_waits

EXAMPLE = Path(__file__).parents[2] / "examples" / "pytorchjob-elastic.yaml"
TRAINING = Training(model="resnet50", steps=20_000, checkpoint_s=300.0, checkpoint_write_s=5.0)


class World:
    """One job on a few nodes of four GPUs, with the given crashes."""

    def __init__(self, spec: JobSpec, *crashes: tuple[float, str, float], nodes: int = 3) -> None:
        rack = {"name": "a", "nodes": nodes, "gpus": 4, "gpu_type": "P100", "link": "pcie3"}
        script = [
            {"at_s": at, "node": node, "kind": "crash", "repair_s": repair_s}
            for at, node, repair_s in crashes
        ]
        document = {"racks": [rack | {"net": "25GbE"}], "faults": {"script": script}}
        self.env, self.log = VirtualTime(), MemoryLog()
        self.cluster = SimulatedCluster(self.env, parse_cluster(document))
        options = EngineOptions(resync_s=None, snapshot_every=None)
        self.engine = Engine(SimpyClock(self.env), self.log, self.cluster, options)
        as_process(self.env, self.engine.run())
        self.env.run(until=10.0)
        self.engine.submit(
            SubmitJob(id="c", actor="ann", job="j", namespace="t", name="j", spec=spec)
        )

    def at(self, until_s: float) -> Job:
        self.env.run(until=until_s)
        self.engine.world.check()
        held_waits(self.engine.world)
        assert at_once(redecide(self.log)) is None, "the log would be decided otherwise"
        return self.engine.world.jobs["j"]

    def types(self) -> list[str]:
        return [row.type for row in at_once(self.log.read(0, 100_000))]


def _spec(
    replicas: int = 3, least: int | None = 1, work: Workload | None = None, **more: Any
) -> JobSpec:
    worker = Role(name="Worker", replicas=replicas, gpus=4, min_replicas=least, max_replicas=4)
    return JobSpec(
        roles=(worker,),
        done_when=DoneWhen("Worker"),
        hints=hints_of(work or Workload(training=TRAINING)),
        **more,
    )


def _states(job: Job) -> list[RankState]:
    assert job.attempt is not None
    return [rank.state for rank in job.attempt.ranks]


UP, GONE = RankState.RUNNING, RankState.EXITED


@pytest.mark.parametrize("lost", ["a-0", "a-1", "a-2"])
def test_a_gang_goes_on_with_the_ranks_that_are_left_and_grows_back(lost: str) -> None:
    world = World(_spec(), (1_000.0, lost, 2_000.0))
    before = world.at(999.0)
    assert _states(before) == [UP] * 3
    smaller = world.at(2_900.0)
    assert (smaller.phase, smaller.restarts, smaller.attempt.number) == (Phase.RUNNING, (), 1)
    assert sorted(_states(smaller)) == sorted([UP, UP, GONE])
    # The ranks that are left train: they meet again within the time of a start.
    assert "j" in {key[0] for key in world.cluster.running}
    grown = world.at(3_100.0)
    assert _states(grown) == [UP] * 3
    assert (grown.restarts, grown.failures, grown.attempt.number) == ((), 0, 1)
    done = world.at(1e6)
    assert (done.phase, done.restarts) == (Phase.SUCCEEDED, ())
    assert world.types().count("RanksReplaced") == 1
    assert "JobRestarting" not in world.types()
    assert state_hash(at_once(rebuild(world.log)).world) == state_hash(world.engine.world)


def test_the_fewer_ranks_make_less_progress_and_only_the_last_checkpoint_is_lost() -> None:
    whole = World(_spec()).at(1e6).finished_at
    lossy = World(_spec(), (1_000.0, "a-1", 1e7))
    ended = lossy.at(1e6)
    assert ended.phase is Phase.SUCCEEDED
    assert ended.finished_at > whole + 300.0
    assert 0.0 < sum(lossy.cluster.lost_s.values()) <= 310.0
    # The rank that never came back does not stand in the way of success.
    assert sorted(rank.done for rank in ended.attempt.ranks) == [False, True, True]


def test_below_its_minimum_it_starts_again_as_a_whole() -> None:
    world = World(_spec(3, 2), (1_000.0, "a-0", 1e7), (2_000.0, "a-1", 1_000.0))
    assert world.at(1_500.0).restarts == ()
    again = world.at(2_900.0)
    assert [r.cause for r in again.restarts] == [Cause.NODE_LOST]
    assert not again.restarts[0].spends_budget
    # It starts with the two nodes that there are by then.
    assert world.at(4_000.0).phase is Phase.RUNNING
    assert world.at(1e6).phase is Phase.SUCCEEDED


def test_without_a_minimum_a_lost_rank_restarts_all() -> None:
    role = Role(name="Worker", replicas=2, gpus=4)
    world = World(replace(_spec(), roles=(role,)), (1_000.0, "a-0", 1e7))
    assert [r.cause for r in world.at(2_000.0).restarts] == [Cause.NODE_LOST]


def test_a_budget_is_not_spent_on_lost_ranks_that_the_gang_does_without() -> None:
    spec = _spec(restart=RestartPolicy(limit=0))
    crashes = [(1_000.0 * i, "a-1", 400.0) for i in range(1, 5)]
    job = World(spec, *crashes).at(1e6)
    assert (job.phase, job.failures, job.restarts) == (Phase.SUCCEEDED, 0, ())


def test_a_gang_with_a_given_duration_goes_on_too() -> None:
    world = World(_spec(work=Workload(duration_s=3_000.0)), (1_000.0, "a-2", 1e7))
    job = world.at(1e5)
    assert (job.phase, job.restarts) == (Phase.SUCCEEDED, ())
    # What has no checkpoints begins again, when the others have met.
    assert job.finished_at == pytest.approx(1_005.0 + 3_000.0)


def test_several_losses_one_after_the_other() -> None:
    crashes = [(1_000.0, "a-0", 3_000.0), (1_500.0, "a-1", 3_000.0), (1_502.0, "a-2", 100.0)]
    world = World(_spec(4, 1), *crashes, nodes=4)
    job = world.at(1_600.0)
    assert (job.phase, job.restarts) == (Phase.RUNNING, ())
    assert _states(world.at(6_000.0)) == [UP] * 4
    assert world.at(1e6).phase is Phase.SUCCEEDED


def test_an_elastic_pytorchjob_goes_on_as_well() -> None:
    spec = read_manifest(yaml.safe_load(EXAMPLE.read_text())).spec
    spec = replace(spec, hints=hints_of(Workload(training=TRAINING)), ttl_s=None)
    role = spec.roles[-1]
    assert role.min_replicas is not None
    world = World(spec, nodes=role.replicas)
    job = world.at(900.0)
    assert job.phase is Phase.RUNNING
    taken = job.attempt.placement[-1].node
    world.cluster.fail_node(taken, 1e7)
    left = world.at(1_200.0)
    if role.replicas - sum(s.node == taken for s in job.attempt.placement) >= role.min_replicas:
        assert (left.phase, left.restarts) == (Phase.RUNNING, ())
    assert world.at(1e6).phase is Phase.SUCCEEDED
