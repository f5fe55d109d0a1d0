"""Job specs of wide worlds: every shape that a gang may have, drawn from dice.

`SHAPES` is the table: each row makes the roles and the scheduling constraints of a gang that an empty
cluster could hold. How long the job runs and how it ends is drawn alike for all of them.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from msgspec.structs import replace

from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.model.spec import (
    DoneWhen,
    JobSpec,
    Repair,
    RestartPolicy,
    RestartRule,
    RestartScope,
    Role,
    Scheduling,
    TopologyAsk,
)
from simulator.network.topology import ClusterModel, NodeModel

# The fields of a JobSpec that a shape decides.
Fields = dict[str, Any]
Shape = Callable[[Random, ClusterModel], Fields]

SPOT = "spot"


def drawn_spec(dice: Random, cluster: ClusterModel, shape: str, queue: str) -> JobSpec:
    """A gang of this shape that ends by itself, or by its deadline if it hangs."""
    fields = SHAPES[shape](dice, cluster)
    hangs = dice.random() < 0.1
    duration_s = 1e6 if hangs else dice.uniform(0.0, 300.0)
    asks = _at_home(shape, fields.pop("scheduling", Scheduling()))
    return JobSpec(
        **fields,
        done_when=DoneWhen("Worker", first=dice.random() < 0.2),
        queue=queue,
        priority=dice.choice([0, 0, 1, 2]),
        restart=RestartPolicy(
            limit=dice.choice([0, 1, 5]),
            backoff_s_max=100.0,
            scope=dice.choice([RestartScope.GANG, RestartScope.GANG, RestartScope.RANK]),
            counts_platform=dice.random() < 0.1,
        ),
        ttl_s=dice.choice([None, None, 30.0]),
        active_deadline_s=400.0 if hangs else dice.choice([None, None, 2_000.0]),
        start_timeout_s=dice.choice([20.0, 120.0]),
        hints=hints_of(
            Workload(
                duration_s=duration_s,
                exit_code=dice.choice([0, 0, 0, 1, 137]),
                failing_attempts=dice.choice([None, 1, 2]),
            )
        ),
        scheduling=_with_time_limits(dice, asks, duration_s),
    )


def _with_time_limits(dice: Random, asks: Scheduling, duration_s: float) -> Scheduling:
    return replace(
        asks,
        estimate_s=dice.choice([None, duration_s, 100.0]),
        checkpoint_every_s=dice.choice([None, None, 50.0]),
        preemptible=dice.random() < 0.8,
    )


def _at_home(shape: str, asks: Scheduling) -> Scheduling:
    """Large and choosy gangs go everywhere: without tainted nodes there may never be room for them."""
    stays = shape == "small" or asks.away_priority is not None
    return asks if stays else replace(asks, tolerates=(SPOT,))


# ---------------------------------------------------------------- shapes


def _worker(dice: Random, **fields: Any) -> Role:
    return Role(name="Worker", restart=dice.choice(list(RestartRule)), **fields)


def _size(dice: Random, cluster: ClusterModel, ranks_max: int = 4) -> dict[str, int]:
    """Replicas and GPUs of a role that fits on an empty cluster, if all of it is there."""
    gpus = dice.choice([n for n in (1, 1, 2, 4, 8) if n <= _smallest(cluster)])
    room = sum(node.gpus // gpus for node in cluster.nodes)
    return {"replicas": dice.randint(1, min(ranks_max, room)), "gpus": gpus}


def _smallest(cluster: ClusterModel) -> int:
    return min(node.gpus for node in cluster.nodes)


def _some_node(dice: Random, cluster: ClusterModel) -> NodeModel:
    return dice.choice(cluster.nodes)


def _plain(dice: Random, cluster: ClusterModel) -> Fields:
    return {"roles": (_worker(dice, **_size(dice, cluster)),)}


def _small(dice: Random, cluster: ClusterModel) -> Fields:
    return {"roles": (_worker(dice, replicas=1, gpus=1),)}


def _without_gpus(dice: Random, cluster: ClusterModel) -> Fields:
    return {"roles": (_worker(dice, replicas=dice.randint(1, 3)),)}


def _with_servers(dice: Random, cluster: ClusterModel) -> Fields:
    server = Role(
        name="PS",
        replicas=dice.randint(1, 2),
        is_server=True,
        starts_after=dice.choice(["", "", "Worker"]),
    )
    worker = _worker(dice, **_size(dice, cluster), optional=dice.random() < 0.3)
    return {"roles": (server, worker) if dice.random() < 0.5 else (worker, server)}


def _elastic(dice: Random, cluster: ClusterModel) -> Fields:
    """It starts with any number between its limits, and grows into what is left."""
    gpus = dice.choice([1, 1, 2])
    most = min(6, sum(node.gpus // gpus for node in cluster.nodes))
    replicas = dice.randint(1, most)
    least = dice.randint(1, replicas)
    worker = _worker(dice, replicas=replicas, gpus=gpus, min_replicas=least, max_replicas=most)
    return {"roles": (worker,), "scheduling": Scheduling(repair=dice.choice(list(Repair)))}


def _below_full_size(dice: Random, cluster: ClusterModel) -> Fields:
    size = _size(dice, cluster, ranks_max=6)
    worker = _worker(dice, **size)
    return {"roles": (worker,), "min_available": dice.randint(1, size["replicas"])}


def _repaired(dice: Random, cluster: ClusterModel) -> Fields:
    asks = Scheduling(repair=Repair.REPLACE, recovery_timeout_s=dice.choice([50.0, 600.0]))
    return {"roles": (_worker(dice, **_size(dice, cluster)),), "scheduling": asks}


def _shared(dice: Random, cluster: ClusterModel) -> Fields:
    share = dice.choice([100, 250, 300, 500, 700])
    room = cluster.gpus * (1_000 // share)
    role = _worker(dice, replicas=dice.randint(1, min(4, room)), gpu_share=share)
    return {"roles": (role,), "scheduling": Scheduling(repair=dice.choice(list(Repair)))}


def _by_memory(dice: Random, cluster: ClusterModel) -> Fields:
    memory = dice.choice([2_048, 8_192, 16_384])
    room = sum(node.gpus * (node.gpu_memory_mib // memory) for node in cluster.nodes)
    role = _worker(dice, replicas=dice.randint(1, min(3, room)), gpu_memory_mib=memory)
    return {"roles": (role,), "scheduling": Scheduling(repair=dice.choice(list(Repair)))}


def _pinned(dice: Random, cluster: ClusterModel) -> Fields:
    node = _some_node(dice, cluster)
    device = dice.randrange(node.gpus)
    role = dice.choice(
        [
            {"gpus": 1, "node": node.name, "devices": (device,)},
            {"gpus": 1, "node": node.name},
        ]
    )
    asks = Scheduling(repair=dice.choice(list(Repair)))
    return {"roles": (_worker(dice, replicas=1, **role),), "scheduling": asks}


def _near(dice: Random, cluster: ClusterModel) -> Fields:
    """Within one domain: what a single node can hold fits in every one."""
    level = dice.choice(["rack", "node"])
    gpus = dice.choice([1, 2])
    replicas = dice.randint(1, max(1, _smallest(cluster) // gpus))
    near = dice.choice(
        [
            TopologyAsk(required=level),
            TopologyAsk(preferred=level),
            TopologyAsk(required=level, exclusive=True),
            TopologyAsk(slice_level=level, slice_size=replicas),
        ]
    )
    asks = Scheduling(topology=near, repair=dice.choice(list(Repair)))
    return {"roles": (_worker(dice, replicas=replicas, gpus=gpus),), "scheduling": asks}


def _choosy(dice: Random, cluster: ClusterModel) -> Fields:
    """On one kind of node, or as a guest on nodes that others own."""
    node = _some_node(dice, cluster)
    asks = dice.choice(
        [
            Scheduling(selector={"rack": node.rack}),
            Scheduling(flavors=(node.gpu_type,)),
            Scheduling(away_priority=dice.choice([-1, 0])),
            Scheduling(packing=dice.choice(["spread", "pack_emptiest"])),
        ]
    )
    return {"roles": (_worker(dice, replicas=1, gpus=1),), "scheduling": asks}


SHAPES: dict[str, Shape] = {
    "plain": _plain,
    "small": _small,
    "without GPUs": _without_gpus,
    "with servers": _with_servers,
    "elastic": _elastic,
    "below full size": _below_full_size,
    "repaired": _repaired,
    "shared": _shared,
    "by memory": _by_memory,
    "pinned": _pinned,
    "near": _near,
    "choosy": _choosy,
}
