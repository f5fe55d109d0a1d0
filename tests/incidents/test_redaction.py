"""A history without names decides itself as before: queues, quotas, groups, what pods request."""

from pathlib import Path
from random import Random

import pytest

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import Workload, hints_of
from cli.log.incident import check_bundle
from controlplane.audit.bundle import IncidentBundle, make_bundle
from controlplane.engine import Engine, EngineOptions
from controlplane.log.codec import from_row
from controlplane.model.commands import DefineQueue, RemoveQueue, ReportRanks, SetPolicy, SubmitJob
from controlplane.model.events import JobSubmitted
from controlplane.model.failures import Exit, Stuck
from controlplane.model.policy import Policy, Queue, ResourceQuota
from controlplane.model.resources import SUPPLIES_ANNOTATION
from controlplane.model.spec import DoneWhen, JobSpec, Role, Scheduling
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import parse_cluster
from tests.incidents.test_bundles import written
from tests.scenarios.scenario import run_now
from tests.scenarios.test_cores import FILE

POLICY = Policy(discipline="easy", usage_halflife_s=500.0)
QUEUES = (
    Queue("acme-dept", nominal=0),
    Queue("acme-vision", parent="acme-dept", nominal=10, borrow_max=4),
    Queue("acme-speech", parent="acme-dept", nominal=8, resources=(ResourceQuota("cpu", 20),)),
    Queue("acme-short"),
)
# Names may be the words that the log itself uses, or those of things that keep their names.
NAMES = ("preemption", "ttl", "deleted", "needs", "exit", "small-0", "w", "rack", "cpu", "default")
SECRETS = (b"acme", b"hunter2", b"5ecre7", b"ann@")


def spec(dice: Random, number: int) -> JobSpec:
    containers = [
        {"name": "acme-side", "resources": {"requests": {"cpu": "500m"}}},
        {
            "name": "acme-main",
            "image": "acme/train",
            "env": [{"name": "KEY", "value": "hunter2"}],
            "resources": {"limits": {"cpu": dice.choice(["1", "2", "3"]), "memory": "2Gi"}},
        },
    ]
    pod = {"containers": containers, "overhead": {"cpu": "250m"}, "hostname": "acme-host"}
    supplied = {SUPPLIES_ANNOTATION: '{"resources":{"cpu":"3500m"}}'} if number % 3 == 0 else {}
    role = Role(
        name="w",
        replicas=dice.randint(1, 4),
        gpus=dice.randint(0, 2),
        image="acme/train:9",
        container="acme-main",
        template={"metadata": {"labels": {"team": "acme"}}, "spec": pod},
    )
    seconds = dice.uniform(50, 500)
    together = {"group": f"acme-{number // 2}", "group_size": 2} if number >= 34 else {}
    return JobSpec(
        roles=(role,),
        done_when=DoneWhen("w"),
        kind="TrainJob",
        options={"trainer": {"env": [{"name": "KEY", "value": "hunter2"}], "numNodes": 1}},
        queue=dice.choice(["acme-vision", "acme-speech"]),
        annotations={"note": "acme", **supplied},
        ttl_s=dice.choice([None, 100.0]),
        hints=hints_of(Workload(duration_s=seconds)),
        scheduling=Scheduling(estimate_s=seconds * dice.uniform(0.5, 2), **together),
    )


@pytest.fixture(scope="module")
def history() -> MemoryLog:
    env, dice, log = VirtualTime(), Random(3), MemoryLog()
    # Gangs come up slowly, so that some are stuck before.
    cluster = SimulatedCluster(env, parse_cluster(FILE | {"start_delay_s": 20}))
    engine = Engine(SimpyClock(env), log, cluster, EngineOptions(snapshot_every=None))
    as_process(env, engine.run())
    for command in (
        SetPolicy(id="p", actor="ann@acme", policy=POLICY),
        *(DefineQueue(id=queue.name, queue=queue) for queue in QUEUES),
        RemoveQueue(id="r", name="acme-short"),
    ):
        engine.submit(command)
    for number in range(40):
        env.run(until=env.now + dice.uniform(1, 60))
        name = NAMES[number] if number < len(NAMES) else f"acme-job-{number}"
        team = dice.choice(["acme-team", "default"])
        engine.submit(
            SubmitJob(id=f"c{number}", actor="ann@acme", job=f"j{number}", namespace=team, name=name, spec=spec(dice, number))
        )  # fmt: skip
        detail = f'rpc error: "acme/train:9": not found for {team}/{name}.'
        stuck = Stuck(0, "ErrImagePull", detail)
        report = ReportRanks(job=f"j{number}", attempt=1, commits=((0, "5ecre7"),), stuck=(stuck,))
        env.run(until=env.now + dice.uniform(0, 10))
        engine.submit(report)
        if number % 4 == 0:
            env.run(until=env.now + 30)
            ended = Exit(0, 1, detail=f"{name}: hunter2", lines=("the key is hunter2",))
            engine.submit(ReportRanks(job=f"j{number}", attempt=1, exited=(ended,)))
    env.run(until=env.now + 10_000)
    return log


def without_names(log: MemoryLog, first: int, last: int) -> IncidentBundle:
    return run_now(make_bundle(log, first=first, last=last, release="9", redact=True))


def check(bundle: IncidentBundle, path: Path) -> None:
    text = b"".join(bundle.lines())
    for secret in SECRETS:
        assert secret not in text, secret
    submitted = [
        event for row in bundle.rows if isinstance(event := from_row(row).event, JobSubmitted)
    ]
    assert not {job.name for job in (*bundle.base.jobs, *submitted)} & set(NAMES)
    check_bundle(written(bundle, path))


def test_the_whole_history_is_decided_alike_and_reveals_no_name(
    history: MemoryLog, tmp_path: Path
) -> None:
    kinds = {type(recorded.event).__name__ for recorded in history.events}
    assert kinds >= {"QueueRemoved", "CodeResolved", "GangWaiting", "JobRestarting", "JobRemoved"}
    assert "RanksStuck" in kinds
    check(without_names(history, 1, len(history.events)), tmp_path / "whole.bundle")


@pytest.mark.parametrize("part", range(1, 6))
def test_a_part_begins_with_a_state_that_is_decided_alike(
    history: MemoryLog, tmp_path: Path, part: int
) -> None:
    length = len(history.events)
    redacted = without_names(history, part * length // 7, (part + 1) * length // 7)
    check(redacted, tmp_path / "part.bundle")
