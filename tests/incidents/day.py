"""A busy simulated day to look back at: many jobs, many people, and hardware that fails.

Everything is drawn from one seed. The policy changes several times: strict lines, lines that may be
passed, back-fill, preemption by priority, and nodes that are put aside when they fail too often.
"""

from collections.abc import Iterator
from random import Random

from simpy.events import Event

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.engine import Engine, EngineOptions
from controlplane.model import commands as c
from controlplane.model.policy import Policy, Preempt, Queue, Reclaim, WithinQueue
from controlplane.model.spec import (
    DoneWhen,
    JobSpec,
    RestartPolicy,
    RestartRule,
    RestartScope,
    Role,
)
from simulator.faults import FaultModel
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import ClusterModel, Delays, grid
from tests.gangs import is_elastic

ORIGIN = 1_763_251_200.0
DAY_S = 86_400.0
USERS = ("ann", "bob", "cyd", "dan", "eve")
Timed = tuple[float, c.AnyCommand]


def cluster_model(seed: int, *, racks: int = 6, nodes: int = 8) -> ClusterModel:
    model = grid(racks, nodes, 8, delays=Delays(start_s=8.0, start_jitter_s=4.0, stop_s=3.0))
    faults = FaultModel(node_mtbf_s=3 * DAY_S, node_repair_s=1_800.0)
    return ClusterModel(model.nodes, model.delays, faults, seed)


def some_spec(dice: Random, ttl_s: float | None = None) -> JobSpec:
    gpus = dice.choice([1, 1, 1, 2, 4, 8, 8, 16, 32])
    luck = dice.random()
    code, failing = (0, None) if luck < 0.8 else dice.choice([(1, None), (137, 1), (137, 2)])
    worker = Role(
        name="Worker",
        replicas=max(1, gpus // 8),
        gpus=min(gpus, 8),
        image=f"registry.example/{dice.choice(['vision', 'text', 'speech'])}:{dice.randint(1, 3)}",
        restart=dice.choice([RestartRule.ON_FAILURE, RestartRule.EXIT_CODE]),
        max_replicas=8 if luck > 0.9 else None,
    )
    others = dice.choice(
        [(), (), (Role(name="PS", is_server=True),), (Role(name="Chief", gpus=1),)]
    )
    scope = RestartScope.RANK if dice.random() < 0.1 else RestartScope.GANG
    return JobSpec(
        kind=dice.choice(["PyTorchJob", "TFJob", "MPIJob"]),
        roles=(*others, worker),
        done_when=DoneWhen("Worker"),
        queue=dice.choice(["default", "default", "research"]),
        priority=dice.choice([0, 0, 0, 5]),
        restart=RestartPolicy(limit=3, scope=scope),
        active_deadline_s=dice.choice([None, None, 7_200.0]),
        ttl_s=dice.choice([ttl_s, 3_600.0]),
        hints=hints_of(
            Workload(
                duration_s=dice.lognormvariate(5.6, 1.1), exit_code=code, failing_attempts=failing
            )
        ),
    )


def commands(
    seed: int, *, jobs: int, day_s: float = DAY_S, ttl_s: float | None = None
) -> list[Timed]:
    """What people ask in a day, in the order of time (in seconds from its beginning)."""
    dice = Random(f"{seed}/people")
    asked: list[Timed] = [(1.0, c.DefineQueue(id="q", actor="ann", queue=Queue("research", 16)))]
    for number in range(jobs):
        at, who = dice.uniform(2.0, day_s * 0.95), dice.choice(USERS)
        name = f"job-{number}"
        submit = c.SubmitJob(
            id=f"submit-{number}",
            actor=who,
            job=f"j{number:06}",
            namespace="team",
            name=name,
            spec=some_spec(dice, ttl_s),
            suspended=dice.random() < 0.02,
        )
        asked.append((at, submit))
        elastic = is_elastic(submit.spec.roles[-1])
        for turn in range(dice.choice([1, 2] if elastic else [0] * 12 + [1, 2])):
            at += dice.expovariate(1 / 200.0)
            asked.append((at, _some_request(dice, f"{number}-{turn}", who, name, elastic)))
    asked += _cordons(dice, day_s)
    asked += _policies(day_s)
    return sorted(asked, key=lambda timed: timed[0])


def _some_request(dice: Random, id: str, who: str, name: str, elastic: bool) -> c.AnyCommand:
    verbs = (c.CancelJob, c.SuspendJob, c.ResumeJob, c.ScaleJob, c.DeleteJob)
    verb = c.ScaleJob if elastic and dice.random() < 0.8 else dice.choice(verbs)
    more = {"role": "Worker", "replicas": dice.randint(1, 4)} if verb is c.ScaleJob else {}
    return verb(id=id, actor=who, namespace="team", name=name, **more)


def _cordons(dice: Random, day_s: float) -> Iterator[Timed]:
    for number in range(20):
        at, node = dice.uniform(0.0, day_s * 0.9), f"rack-{dice.randrange(6)}-{dice.randrange(8)}"
        yield at, c.CordonNode(id=f"cordon-{number}", actor="ann", node=node)
        back = at + dice.uniform(60.0, 7_200.0)
        yield back, c.UncordonNode(id=f"uncordon-{number}", actor="ann", node=node)
    for number in range(6):
        queue = Queue("research", dice.choice([None, 16, 32, 64]))
        asked = c.DefineQueue(id=f"queue-{number}", actor="ann", queue=queue)
        yield dice.uniform(10.0, day_s * 0.9), asked


def drains_and_amendments(
    seed: int, *, jobs: int, day_s: float, racks: int, nodes: int
) -> list[Timed]:
    """Nodes that are drained, cordoned before or not, and limits that change while jobs live."""
    dice = Random(f"{seed}/drains")
    asked: list[Timed] = []
    for number in range(40):
        at = dice.uniform(100.0, day_s * 0.9)
        node = f"rack-{dice.randrange(racks)}-{dice.randrange(nodes)}"
        if dice.random() < 0.5:
            before = c.CordonNode(id=f"before-{number}", actor="bob", node=node)
            asked.append((at - dice.uniform(0.0, 90.0), before))
        asked.append((at, c.DrainNode(id=f"drain-{number}", actor="bob", node=node)))
        back = c.UncordonNode(id=f"drained-{number}", actor="bob", node=node)
        asked.append((at + dice.uniform(60.0, 600.0), back))
    for number in range(200):
        limits = {
            "ttl_s": dice.choice([None, 0.0, 600.0]),
            "active_deadline_s": dice.choice([None, 1.0, 900.0]),
            "restart_limit": dice.choice([None, 0, 5]),
        }
        name = f"job-{dice.randrange(jobs)}"
        amend = c.AmendJob(id=f"amend-{number}", actor="cyd", namespace="team", name=name, **limits)
        asked.append((dice.uniform(0.0, day_s * 0.9), amend))
    return asked


def _policies(day_s: float) -> Iterator[Timed]:
    lower = Preempt(within_queue=WithinQueue.LOWER, reclaim=Reclaim.ANY)
    policies = (
        Policy(discipline="fit"),
        Policy(discipline="fit", preempt=lower, protected_s=60.0),
        Policy(discipline="easy", quarantine_after=1),
        Policy(discipline="sjffit", packing="spread", ageing_per_hour=1.0),
        Policy(preempt=lower),
    )
    for number, policy in enumerate(policies, 1):
        at = day_s * number / (len(policies) + 1) + 0.5
        yield at, c.SetPolicy(id=f"policy-{number}", actor="ann", policy=policy)


class Day:
    """The engine on the simulator, asked what was drawn; `log` holds what came of it."""

    def __init__(
        self,
        seed: int = 1,
        *,
        jobs: int = 300,
        day_s: float = DAY_S,
        ttl_s: float | None = None,
        analyser=None,
        restless: bool = False,
        **cluster,
    ) -> None:  # type: ignore[no-untyped-def]
        self.seed, self.day_s = seed, day_s
        self.model = cluster_model(seed, **cluster)
        # The environment's time is the day's own, so that no time is rounded when it is recorded.
        self.env = VirtualTime(initial_time=ORIGIN)
        self.log = MemoryLog()
        self.cluster = SimulatedCluster(self.env, self.model)
        options = EngineOptions(resync_s=600.0, snapshot_every=None)
        clock = SimpyClock(self.env)
        self.engine = Engine(clock, self.log, self.cluster, options, on_recorded=analyser)
        self.asked = commands(seed, jobs=jobs, day_s=day_s, ttl_s=ttl_s)
        if restless:
            more = drains_and_amendments(seed, jobs=jobs, day_s=day_s, **cluster)
            self.asked = sorted([*self.asked, *more], key=lambda timed: timed[0])

    def run(self) -> "Day":
        as_process(self.env, self.engine.run())
        self.env.process(self._people())
        self.env.run(until=ORIGIN + self.day_s)
        return self

    def _people(self) -> Iterator[Event]:
        for at, command in self.asked:
            yield self.env.timeout(max(0.0, ORIGIN + at - self.env.now))
            self.engine.submit(command)
