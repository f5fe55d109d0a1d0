"""A busy day on a simulated cluster: its nodes and faults, its queues, and the jobs that arrive.

Arrivals are a Poisson process whose rate follows the time of the day. Jobs are drawn from a few classes,
from notebooks of an hour to gangs on a third of the cluster, so that the cluster is slightly overloaded:
jobs wait, small ones are backfilled, urgent ones preempt, nodes fail and gangs restart. The same seed
makes the same day.
"""

from collections.abc import Iterator
from math import pi, sin
from random import Random
from typing import Any, NamedTuple

from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.model.commands import DefineQueue, Request, SetPolicy, SubmitJob
from controlplane.model.policy import Policy, Preempt, Queue, Reclaim, WithinQueue
from controlplane.model.spec import DoneWhen, JobSpec, RestartPolicy, Role, Scheduling

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
# The mean over the day; at night about half as many jobs arrive, in the afternoon half as many again.
JOBS_PER_HOUR = 18.0
# Jobs that are there when the day begins, so that the cluster is busy at once.
JOBS_AT_FIRST = 40
ACTOR = "demo"

CLUSTER: dict[str, Any] = {
    "racks": [
        {"name": f"rack-{letter}", "nodes": 6, "gpus": 8, "gpu_type": kind, "gpu_memory_mib": memory}
        for letter, kind, memory in (
            ("a", "H100", 81_920), ("b", "H100", 81_920), ("c", "A100", 81_920), ("d", "A100", 40_960),
        )
    ],
    "start_delay_s": 20,
    "start_jitter_s": 10,
    "stop_delay_s": 5,
    "seed": 7,
    "faults": {
        # Of one node: about one crash in two hours among 24 nodes.
        "node_mtbf_s": 170_000,
        "node_repair_s": 2_400,
        "script": [
            {"at_s": 900, "node": "rack-b-2", "kind": "crash", "repair_s": 1_500},
            {"at_s": 2_400, "node": "rack-c-4", "kind": "crash", "repair_s": 2_700},
            {"at_s": 4_500, "node": "rack-a-1", "kind": "spot_reclaim", "repair_s": 1_800},
            {"at_s": 7_200, "node": "rack-d-0", "kind": "crash", "repair_s": 5_400},
            {"at_s": 7_230, "node": "rack-d-1", "kind": "crash", "repair_s": 5_400},
        ],
    },
}  # fmt: skip

POLICY = Policy(
    discipline="easy",
    preempt=Preempt(within_queue=WithinQueue.LOWER, reclaim=Reclaim.ANY),
    protected_s=300.0,
)
QUEUES = (
    Queue("production", nominal=96),
    Queue("research", nominal=72),
    Queue("interactive", nominal=24, borrow_max=24),
)


class JobClass(NamedTuple):
    """A class of jobs: how frequent they are, how large and how long, and who submits them."""

    share: float
    names: tuple[str, ...]
    kind: str
    queue: str
    priority: int
    # The sizes as (ranks, GPUs of a rank).
    sizes: tuple[tuple[int, int], ...]
    minutes: tuple[float, float]
    users: tuple[str, ...]


CLASSES = (
    JobClass(0.30, ("notebook", "debug", "profile"), "Job", "interactive", 0,
             ((1, 1), (1, 1), (1, 2)), (10, 60), ("ann", "chen", "femi", "gita")),
    JobClass(0.22, ("eval", "ablation", "probe"), "PyTorchJob", "research", 0,
             ((1, 2), (1, 4), (1, 8)), (15, 70), ("bob", "chen", "dana")),
    JobClass(0.26, ("bert-finetune", "vit-train", "whisper-tune"), "PyTorchJob", "research", 5,
             ((1, 8), (2, 8), (4, 4)), (30, 110), ("ann", "bob", "eli")),
    JobClass(0.12, ("ranker", "speech-nightly"), "MPIJob", "production", 10,
             ((4, 8), (2, 8)), (30, 90), ("release", "dana")),
    JobClass(0.05, ("llm-pretrain", "diffusion"), "PyTorchJob", "production", 8,
             ((8, 8), (6, 8)), (60, 150), ("release", "eli")),
    JobClass(0.05, ("broken-loader", "nan-loss"), "PyTorchJob", "research", 0,
             ((1, 4), (2, 4)), (3, 12), ("bob", "femi")),
)  # fmt: skip
# The jobs of the last class fail by themselves.
FAILING = CLASSES[-1]


def settings() -> Iterator[Request]:
    """Yield the commands that set the policy and the queues."""
    yield SetPolicy(id="demo-policy", actor=ACTOR, policy=POLICY)
    for queue in QUEUES:
        yield DefineQueue(id=f"demo-queue-{queue.name}", actor=ACTOR, queue=queue)


def arrivals(seed: int = 0) -> Iterator[tuple[float, SubmitJob]]:
    """Yield jobs without end, each with the seconds since the begin of the day at which it arrives."""
    dice, at, number = Random(seed), 0.0, 0
    while True:
        number += 1
        yield at, submission(dice, number)
        if number >= JOBS_AT_FIRST:
            at += dice.expovariate(rate_at(at) / HOUR_S)


def rate_at(at: float) -> float:
    """Return how many jobs arrive in an hour, `at` seconds after the begin of the day."""
    return JOBS_PER_HOUR * (1 + 0.5 * sin(2 * pi * at / DAY_S))


def submission(dice: Random, number: int) -> SubmitJob:
    """Return a job, drawn with `dice`; `number` makes its name unique."""
    drawn = dice.choices(CLASSES, weights=[each.share for each in CLASSES])[0]
    ranks, gpus = dice.choice(drawn.sizes)
    run_s = 60.0 * dice.uniform(*drawn.minutes)
    user = dice.choice(drawn.users)
    name = f"{dice.choice(drawn.names)}-{number}"
    workload = Workload(duration_s=run_s)
    if drawn is FAILING:
        failing = dice.choice((1, 2, None))
        workload = Workload(duration_s=run_s, exit_code=1, failing_attempts=failing)
    spec = JobSpec(
        kind=drawn.kind,
        roles=(Role(name="Worker", replicas=ranks, gpus=gpus, image=f"registry.example/{user}:4"),),
        done_when=DoneWhen("Worker"),
        queue=drawn.queue,
        priority=drawn.priority,
        restart=RestartPolicy(limit=2),
        hints=hints_of(workload),
        labels={"user": user},
        # People estimate badly, and mostly too long.
        scheduling=Scheduling(estimate_s=run_s * dice.uniform(1.0, 2.5)),
    )
    return SubmitJob(
        id=f"demo-{number}",
        actor=user,
        job=f"demo-{number}",
        namespace="default",
        name=name,
        spec=spec,
    )
