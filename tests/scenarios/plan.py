"""A wide world as a value, drawn from a seed: cluster, policy, queues, and all that will be done to it.

A plan fixes everything beforehand, so that a failing one can be made smaller (`shrink.py`) by leaving
out what does not matter. `ACTIONS` is the table of what people and nodes do.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from msgspec.structs import replace

from controlplane.disciplines.registry import DISCIPLINES
from controlplane.model import commands as c
from controlplane.model.cluster import NodeInfo
from controlplane.model.dependencies import After, Condition
from controlplane.model.owners import indices_text
from controlplane.model.policy import (
    FlavorQuota,
    Policy,
    Preempt,
    Queue,
    Reclaim,
    WithinQueue,
)
from controlplane.model.spec import JobSpec
from controlplane.scheduling.quota_models.quota_model import QUOTA_MODELS
from simulator.network.topology import ClusterModel, Delays, FaultModel, NodeModel
from tests.scenarios.faulty_ports import Faults
from tests.scenarios.jobs import SHAPES, SPOT, drawn_spec

TROUBLE_S = 2_000.0
NAMESPACE = "default"

# Shapes that worlds leave out, each with the reason.
LEFT_OUT: dict[str, str] = {}


@dataclass(frozen=True)
class Flap:
    """A node fails and comes back on the machine's side, without a command to the control plane."""

    node: str
    repair_s: float


Step = c.Request | Flap
Timed = tuple[float, Step]


@dataclass(frozen=True)
class WorldPlan:
    seed: int
    cluster: ClusterModel
    # Node -> the taints and the block it is reported with, which the simulator knows nothing of.
    taints: dict[str, tuple[str, ...]]
    faults: Faults
    policy: Policy
    queues: tuple[Queue, ...]
    timeline: tuple[Timed, ...]
    # The log refuses once after each of these positions: the engine stops, and another one starts.
    stops: frozenset[int]
    snapshot_every: int | None

    def as_reported(self, info: NodeInfo) -> NodeInfo:
        """A node with the further properties of its plan."""
        block = f"block-{info.rack[-1:]}"
        return replace(info, taints=self.taints.get(info.name, ()), path=(block, info.rack))


def drawn_plan(seed: int) -> WorldPlan:
    dice = Random(f"wide/{seed}")
    cluster = _cluster(dice, seed)
    queues = _queues(dice, cluster)
    tainted = dice.random() < 0.25
    taints = {node.name: (SPOT,) for node in cluster.nodes if tainted and dice.random() < 0.4}
    if len(taints) == len(cluster.nodes):
        taints = {}
    cast = Cast(dice, cluster, tuple(queue.name for queue in queues))
    faults = dice.choice([Faults(), Faults.drawn(dice)])
    return WorldPlan(
        seed=seed,
        cluster=cluster,
        taints=taints,
        faults=faults,
        policy=drawn_policy(dice),
        queues=queues,
        timeline=tuple(
            sorted((*_timeline(cast), *Flows(seed, cast).timeline()), key=lambda timed: timed[0])
        ),
        stops=frozenset(dice.sample(range(1, 400), dice.choice([0, 0, 3, 12]))),
        snapshot_every=dice.choice([None, 5, 50]),
    )


# ---------------------------------------------------------------- the cluster


def _cluster(dice: Random, seed: int) -> ClusterModel:
    kinds = dice.choice([("V100",), ("V100",), ("V100", "A100")])
    nodes = tuple(
        NodeModel(
            f"rack-{rack}-{number}",
            f"rack-{rack}",
            gpus=dice.choice([2, 4, 4, 8]),
            gpu_type=dice.choice(kinds),
            gpu_memory_mib=dice.choice([16_384, 32_768]),
            labels={"rack": f"rack-{rack}"},
        )
        for rack in range(dice.randint(1, 3))
        for number in range(dice.randint(1, 3))
    )
    faults = FaultModel(node_mtbf_s=dice.choice([None, None, 4_000.0]), node_repair_s=200.0)
    delays = Delays(start_s=5.0, start_jitter_s=3.0, stop_s=dice.choice([2.0, 20.0]))
    return ClusterModel(nodes, delays, faults, seed)


# ---------------------------------------------------------------- policy and queues


# How many gangs may start in one scheduling cycle, and how long that is.
_STARTS: tuple[tuple[int | None, float], ...] = (
    *[(None, 1.0)] * 4, (1, 2.0), (1, 10.0), (2, 30.0), (4, 120.0),
)  # fmt: skip


def drawn_policy(dice: Random) -> Policy:
    # Dice of its own, so that the rest of a world is what it is without a limit.
    own = Random()
    own.setstate(dice.getstate())
    starts, cycle_s = own.choice(_STARTS)
    return Policy(
        starts_per_cycle_max=starts,
        cycle_s=cycle_s,
        discipline=dice.choice(DISCIPLINES.names),
        model=dice.choice(QUOTA_MODELS.names),
        preempt=_preempt(dice),
        levels=("block", "rack"),
        packing=dice.choice(["pack", "pack", "spread", "pack_emptiest"]),
        consolidate=dice.random() < 0.2,
        ageing_per_hour=dice.choice([0.0, 0.0, 2.0]),
        usage_halflife_s=dice.choice([None, None, 500.0]),
        estimate_s_default=dice.choice([200.0, 86_400.0]),
        planned_max=dice.choice([2, 100]),
        protected_s=dice.choice([0.0, 0.0, 30.0]),
        second_chance_s_max=dice.choice([0.0, 600.0]),
        quarantine_after=dice.choice([None, None, 3]),
        records_reasons=dice.random() < 0.7,
    )


def _preempt(dice: Random) -> Preempt:
    return Preempt(
        within_queue=dice.choice(list(WithinQueue)),
        reclaim=dice.choice(list(Reclaim)),
        borrow_below=dice.choice([None, None, 1]),
    )


def _queues(dice: Random, cluster: ClusterModel) -> tuple[Queue, ...]:
    """Lines of their own, or a tree below one or two parents."""
    names = ["a", "b", "c"][: dice.randint(1, 3)]
    if dice.random() < 0.4:
        return tuple(drawn_queue(dice, cluster, name) for name in names)
    parents = ["lab", "dept"][: dice.randint(1, 2)]
    above = [drawn_queue(dice, cluster, "lab")]
    above += [drawn_queue(dice, cluster, "dept", parent="lab") for name in parents[1:]]
    below = [drawn_queue(dice, cluster, name, parent=dice.choice(parents)) for name in names]
    return (*above, *below)


def drawn_queue(dice: Random, cluster: ClusterModel, name: str, parent: str = "") -> Queue:
    total = cluster.gpus

    def some(*shares: float | None) -> int | None:
        share = dice.choice(shares)
        return None if share is None else int(total * share)

    kinds = sorted({node.gpu_type for node in cluster.nodes})
    flavors = tuple(FlavorQuota(kind, some(0.3, 0.6) or 0, some(None, 0.2)) for kind in kinds)
    return Queue(
        name,
        gpus_max=some(None, None, 0.3, 0.5, 0.8),
        parent=parent,
        nominal=some(None, 0.2, 0.3, 0.5) if not parent else some(0.0, 0.2, 0.3, 0.5),
        borrow_max=some(None, None, 0.0, 0.2),
        lend_max=some(None, None, 0.0, 0.2),
        weight=dice.choice([0.0, 1.0, 1.0, 2.0]),
        rank=dice.choice([0, 0, 1]),
        flavors=flavors if dice.random() < 0.15 else (),
        discipline=dice.choice([None, None, *DISCIPLINES.names]),
        preempt=dice.choice([None, None, _preempt(dice)]),
    )


# ---------------------------------------------------------------- actions


class Cast:
    """Who and what there is to act upon while a timeline is drawn."""

    def __init__(self, dice: Random, cluster: ClusterModel, queues: tuple[str, ...]) -> None:
        self.dice = dice
        self.cluster = cluster
        self.queues = queues
        self.shapes = self._shapes()
        self.specs: list[JobSpec] = []
        self.commands = 0

    def _shapes(self) -> list[str]:
        """All of them, or a few, so that each is also seen without the others."""
        known = [name for name in SHAPES if name not in LEFT_OUT]
        return self.dice.choice([known, self.dice.sample(known, 3)])

    def id(self) -> str:
        self.commands += 1
        return f"c-{self.commands}"

    def node(self) -> str:
        return self.dice.choice(self.cluster.nodes).name

    def job(self) -> dict[str, str]:
        """Some job that was drawn before, as requests name it."""
        name = f"job-{self.dice.randrange(max(1, len(self.specs)))}"
        return {"id": self.id(), "namespace": NAMESPACE, "name": name}

    def submission(self, group: str = "", group_size: int = 0) -> c.SubmitJob:
        dice, number = self.dice, len(self.specs)
        queue = dice.choice((*self.queues, "default"))
        spec = drawn_spec(dice, self.cluster, dice.choice(self.shapes), queue)
        if group:
            asks = replace(spec.scheduling, group=group, group_size=group_size)
            spec = replace(spec, scheduling=asks)
        self.specs.append(spec)
        return c.SubmitJob(
            id=self.id(),
            job=f"id-{number}",
            namespace=NAMESPACE,
            name=f"job-{number}",
            spec=spec,
            suspended=dice.random() < 0.05,
        )


# What an action does: steps, each so many seconds after its beginning.
Action = Callable[[Cast], Iterator[Timed]]


def _submit(cast: Cast) -> Iterator[Timed]:
    yield 0.0, cast.submission()


def _submit_together(cast: Cast) -> Iterator[Timed]:
    for _ in range(cast.dice.randint(2, 6)):
        yield 0.0, cast.submission()


def _submit_group(cast: Cast) -> Iterator[Timed]:
    """Gangs that start together, each in a queue of its own, and one of them late."""
    size = cast.dice.randint(2, 3)
    name = f"group-{len(cast.specs)}"
    for _ in range(size):
        yield cast.dice.choice([0.0, 0.0, 60.0]), cast.submission(name, size)


def _cancel(cast: Cast) -> Iterator[Timed]:
    yield 0.0, c.CancelJob(**cast.job())


def _cancel_storm(cast: Cast) -> Iterator[Timed]:
    for number in range(len(cast.specs)):
        if cast.dice.random() < 0.5:
            yield 0.0, c.CancelJob(id=cast.id(), namespace=NAMESPACE, name=f"job-{number}")


def _suspend_and_resume(cast: Cast) -> Iterator[Timed]:
    job = cast.job()
    yield 0.0, c.SuspendJob(**job)
    yield cast.dice.uniform(0.0, 200.0), c.ResumeJob(**{**job, "id": cast.id()})


def _scale(cast: Cast) -> Iterator[Timed]:
    """Only of gangs that go everywhere: another one might never fit again."""
    anywhere = [number for number, spec in enumerate(cast.specs) if _goes_everywhere(spec)]
    if anywhere:
        job = {**cast.job(), "name": f"job-{cast.dice.choice(anywhere)}"}
        yield 0.0, c.ScaleJob(**job, role="Worker", replicas=cast.dice.randint(1, 6))


def _goes_everywhere(spec: JobSpec) -> bool:
    asks, near = spec.scheduling, spec.scheduling.topology
    shares = any(role.node or role.gpu_share or role.gpu_memory_mib for role in spec.roles)
    bound = near.required or near.slice_level or asks.selector or asks.flavors
    return SPOT in asks.tolerates and not shares and not bound


def _amend(cast: Cast) -> Iterator[Timed]:
    dice = cast.dice
    yield (
        0.0,
        c.AmendJob(
            **cast.job(),
            ttl_s=dice.choice([None, 0.0, 600.0]),
            # Some hang, so no job may lose its deadline.
            active_deadline_s=dice.choice([1.0, 900.0]),
            restart_limit=dice.choice([None, 0, 5]),
        ),
    )


def _delete(cast: Cast) -> Iterator[Timed]:
    yield 0.0, c.DeleteJob(**cast.job())


def _change_policy(cast: Cast) -> Iterator[Timed]:
    yield 0.0, c.SetPolicy(id=cast.id(), policy=drawn_policy(cast.dice))


def _change_quota(cast: Cast) -> Iterator[Timed]:
    """Another quota for a queue; below which parent it stands may change, too."""
    name = cast.dice.choice(cast.queues)
    parents = [other for other in cast.queues if other != name]
    parent = cast.dice.choice(["", *parents])
    queue = drawn_queue(cast.dice, cast.cluster, name, parent=parent)
    yield 0.0, c.DefineQueue(id=cast.id(), queue=queue)


def _remove_queue(cast: Cast) -> Iterator[Timed]:
    yield 0.0, c.RemoveQueue(id=cast.id(), name=cast.dice.choice(cast.queues))


def _drain(cast: Cast) -> Iterator[Timed]:
    node = cast.node()
    yield 0.0, c.DrainNode(id=cast.id(), node=node)
    yield cast.dice.uniform(0.0, 300.0), c.UncordonNode(id=cast.id(), node=node)


def _cordon(cast: Cast) -> Iterator[Timed]:
    node = cast.node()
    yield 0.0, c.CordonNode(id=cast.id(), node=node)
    yield cast.dice.uniform(0.0, 300.0), c.UncordonNode(id=cast.id(), node=node)


def _lose_node(cast: Cast) -> Iterator[Timed]:
    yield 0.0, Flap(cast.node(), cast.dice.uniform(1.0, 400.0))


def _flap(cast: Cast) -> Iterator[Timed]:
    node = cast.node()
    for turn in range(cast.dice.randint(2, 5)):
        yield turn * 30.0, Flap(node, cast.dice.uniform(0.0, 25.0))


# ---------------------------------------------------------------- arrays and dependencies


class Flows:
    """Who acts upon arrays and chains: with dice of its own, so that other worlds stay what they are."""

    def __init__(self, seed: int, cast: Cast) -> None:
        self.dice = Random(f"wide/workflows/{seed}")
        self.cast = cast
        self.names: list[str] = []
        self.arrays: dict[str, tuple[int, ...]] = {}
        # Not in every world in all queues, so that some can be removed.
        self.queues = self.dice.choice([("default",), (*cast.queues, "default")])
        self.commands = 0

    def id(self) -> str:
        self.commands += 1
        return f"flow-{self.commands}"

    def timeline(self) -> Iterator[Timed]:
        dice = self.dice
        count = dice.choice([0, 0, 6, 15])
        for at in sorted(dice.uniform(0.0, TROUBLE_S * 0.8) for _ in range(count)):
            step = dice.choices(
                [self._array, self._job, self._request, self._retry], [5, 4, 5, 2], k=1
            )[0]()
            if step is not None:
                yield at, step

    def _spec(self) -> JobSpec:
        dice = self.dice
        queue = dice.choice(self.queues)
        shape = dice.choice(["small", "plain", "elastic"])
        spec = drawn_spec(dice, self.cast.cluster, shape, queue)
        return replace(spec, after=self._after())

    def _after(self) -> tuple[After, ...]:
        """On some that came before; those may be gone by then, and the submission is refused."""
        dice, known = self.dice, self.names
        count = min(len(known), dice.choice([0, 0, 1, 1, 2]))
        conditions = [c for c in Condition if c is not Condition.CORRESPONDING]
        return tuple(After(name, dice.choice(conditions)) for name in dice.sample(known, count))

    def _array(self) -> c.SubmitJob:
        dice, number = self.dice, len(self.names)
        indices = tuple(sorted(dice.sample(range(20), dice.randint(1, 8))))
        spec = self._spec()
        alike = [name for name, has in self.arrays.items() if set(has) >= set(indices)]
        if alike and dice.random() < 0.7:
            spec = replace(spec, after=(After(dice.choice(alike), Condition.CORRESPONDING),))
        name = f"flow-{number}"
        self.names.append(name)
        self.arrays[name] = indices
        limit = dice.choice(["", "%1", "%2", "%5"])
        return c.SubmitJob(
            id=self.id(),
            job=f"a{number}",
            namespace=NAMESPACE,
            name=name,
            spec=replace(spec, array=f"{indices_text(indices)}{limit}"),
            suspended=dice.random() < 0.1,
        )

    def _job(self) -> c.SubmitJob:
        number = len(self.names)
        spec = self._spec()
        self.names.append(f"flow-{number}")
        return c.SubmitJob(
            id=self.id(), job=f"f{number}", namespace=NAMESPACE, name=f"flow-{number}", spec=spec
        )

    def _named(self) -> dict[str, str] | None:
        """Something that was submitted before, or one index of it."""
        if not self.names:
            return None
        name = self.dice.choice(self.names)
        if name in self.arrays and self.dice.random() < 0.3:
            name = f"{name}-{self.dice.choice(self.arrays[name])}"
        return {"id": self.id(), "namespace": NAMESPACE, "name": name}

    def _request(self) -> c.Request | None:
        named = self._named()
        kinds = [c.CancelJob, c.SuspendJob, c.SuspendJob, c.ResumeJob, c.ResumeJob, c.DeleteJob]
        return None if named is None else self.dice.choice(kinds)(**named)

    def _retry(self) -> c.Request | None:
        named = self._named()
        if named is None:
            return None
        some = self.arrays.get(named["name"], (0,))
        indices = self.dice.choice([(), tuple(self.dice.sample(some, 1))])
        return c.RetryMembers(**named, indices=indices)


# How often each action is drawn, relative to the others.
ACTIONS: dict[Action, int] = {
    _submit: 30,
    _submit_together: 6,
    _submit_group: 4,
    _cancel: 4,
    _cancel_storm: 1,
    _suspend_and_resume: 4,
    _scale: 8,
    _amend: 3,
    _delete: 2,
    _change_policy: 2,
    _change_quota: 4,
    _remove_queue: 1,
    _drain: 2,
    _cordon: 2,
    _lose_node: 6,
    _flap: 2,
}


def _timeline(cast: Cast) -> Iterator[Timed]:
    dice = cast.dice
    actions, weights = list(ACTIONS), list(ACTIONS.values())
    count = dice.choice([8, 20, 40])
    times = sorted(dice.uniform(0.0, TROUBLE_S * 0.8) for _ in range(count))
    for at, action in zip(times, dice.choices(actions, weights, k=count), strict=True):
        for after_s, step in action(cast):
            yield at + after_s, step
