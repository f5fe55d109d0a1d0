"""A scenario's nodes, queues and jobs in our own words.

A scenario without nodes is about quota alone: it gets one node (one for each flavour) that has room
for everything. Half a GPU in such a scenario becomes a rank that shares a device.
"""

from typing import Any, NamedTuple

from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.model.cluster import NodeInfo
from controlplane.model.policy import (
    FlavorQuota,
    Policy,
    Preempt,
    Queue,
    Reclaim,
    WithinQueue,
)
from controlplane.model.spec import (
    DoneWhen,
    JobSpec,
    Repair,
    Role,
    Scheduling,
    StartPolicy,
    TopologyAsk,
)

FOREVER_S = 1e8

# Where a scenario names no discipline, any job that fits may go ahead.
DISCIPLINES = {
    None: "fit",
    "strict_fifo": "fifo",
    "best_effort": "fit",
    "easy_backfill": "easy",
    "conservative_backfill": "conservative",
    "sjf": "sjf",
    "shortest_job_first": "sjf",
    "sjf_fit": "sjffit",
    "attained_service": "las",
}


class OneJob(NamedTuple):
    id: str
    arrival: float
    spec: JobSpec
    given: dict[str, Any]


def policy(scenario: dict[str, Any]) -> Policy:
    given = scenario["policy"]
    return Policy(
        discipline=DISCIPLINES[given.get("queueing")],
        model=given.get("model", "quota_classic"),
        strategies=tuple(given.get("strategies", ("final", "initial"))),
        preempt=preempt(given.get("preempt")) or Preempt(),
        levels=tuple(scenario.get("levels", ("rack",))),
        packing={"binpack": "pack", "bin_pack": "pack"}.get(
            given.get("packing", "pack"), given.get("packing", "pack")
        ),
        protected_s=float(given.get("min_runtime", 0.0)),
        consolidate=given.get("consolidate", False),
        ageing_per_hour=float(given.get("ageing_per_hour", 0.0)),
    )


def preempt(given: dict[str, Any] | None) -> Preempt | None:
    if given is None:
        return None
    borrow = given.get("borrow")
    return Preempt(
        within_queue=WithinQueue(given.get("within_queue", "never")),
        reclaim=Reclaim(given.get("reclaim", "never")),
        borrow_below=None if not borrow else borrow.get("max_priority", 0),
    )


def queues(scenario: dict[str, Any]) -> list[Queue]:
    queues_ = [
        Queue(_cohort(cohort["id"]), parent=_cohort(cohort.get("parent")),
              nominal=cohort.get("nominal"), borrow_max=cohort.get("borrow_limit"),
              lend_max=cohort.get("lend_limit"), weight=cohort.get("weight", 1.0))
        for cohort in scenario.get("cohorts", ())
    ]  # fmt: skip
    for given in scenario["queues"]:
        flavors = tuple(
            FlavorQuota(f["id"], f.get("nominal", 0), f.get("borrow_limit"), f.get("lend_limit"))
            for f in given.get("flavors", ())
        )
        queues_.append(
            Queue(
                name=given["id"],
                gpus_max=given.get("limit"),
                parent=given.get("parent") or _cohort(given.get("cohort")),
                nominal=given.get("nominal"),
                borrow_max=given.get("borrow_limit"),
                lend_max=given.get("lend_limit"),
                weight=given.get("weight", 1.0),
                rank=given.get("queue_priority", 0),
                flavors=flavors,
                discipline=DISCIPLINES[given["queueing"]] if "queueing" in given else None,
                preempt=preempt(given.get("preempt")),
            )
        )
    return queues_


def _cohort(name: str | None) -> str:
    return f"cohort/{name}" if name else ""


def nodes(scenario: dict[str, Any]) -> list[NodeInfo]:
    nodes_ = []
    for given in scenario["nodes"]:
        taints = given.get("taints", [given["taint"]] if "taint" in given else [])
        labels = dict(given.get("labels", {}))
        if "flavor" in given:
            labels["flavor"] = given["flavor"]
        nodes_.append(
            NodeInfo(
                name=given["id"],
                gpus=given["gpus"],
                gpu_memory_mib=given.get("gpu_memory_mib", 0),
                labels=labels,
                path=tuple(given.get("path", ())),
                taints=tuple(taints),
            )
        )
    if nodes_:
        return nodes_
    everything = [*scenario["running"], *scenario["pending"]]
    room = sum(-(-j["gpus"] // 1) * j["replicas"] * j.get("copies", 1) for j in everything)
    flavors = sorted({f["id"] for q in scenario["queues"] for f in q.get("flavors", ())})
    return [
        NodeInfo(f"room-{flavor}", int(room) + 1, labels={"flavor": flavor} if flavor else {})
        for flavor in flavors or [""]
    ]


def jobs(scenario: dict[str, Any], key: str) -> list[OneJob]:
    groups: dict[str, int] = {}
    for given in [*scenario["running"], *scenario["pending"]]:
        if "group" in given:
            groups[given["group"]] = groups.get(given["group"], 0) + 1
    jobs_ = []
    for given in scenario[key]:
        copies = given.get("copies", 1)
        spec = job_spec(given, scenario["policy"], groups)
        arrival = max(given.get("member_arrivals", [given.get("arrival", 0)]))
        for copy in range(copies):
            name = given["id"] if copies == 1 else f"{given['id']}#{copy}"
            jobs_.append(OneJob(name, float(arrival), spec, given))
    return jobs_


def job_spec(given: dict[str, Any], how: dict[str, Any], groups: dict[str, int]) -> JobSpec:
    replicas, gpus = given["replicas"], given["gpus"]
    whole, part = int(gpus), round((gpus - int(gpus)) * 1000)
    fewest = given.get("min", replicas)
    if given.get("gang") is False:
        fewest = 1
    elastic = {"min_replicas": fewest, "max_replicas": given.get("max", replicas)}
    roles = [
        Role(name="worker", replicas=replicas, gpus=whole,
             node=given.get("node", ""), devices=tuple(given.get("devices", ())),
             gpu_memory_mib=given.get("gpu_memory_mib", 0),
             **(elastic if fewest < replicas else {}))
    ]  # fmt: skip
    if part:
        shared = Role(name="part", replicas=replicas, gpu_share=part)
        roles = [*roles, shared] if whole else [shared]
    backoff = how.get("backoff")
    start = None
    if backoff is not None:
        start = StartPolicy(
            backoff_s_first=backoff["base"], backoff_s_max=backoff["max"],
            limit=backoff.get("limit"),
        )  # fmt: skip
    return JobSpec(
        roles=tuple(roles),
        done_when=DoneWhen(roles[0].name),
        queue=given["queue"],
        priority=given.get("priority", 0),
        start_timeout_s=how.get("ready_timeout", 1e8),
        start=start,
        hints=hints_of(Workload(duration_s=given.get("runtime", FOREVER_S))),
        scheduling=Scheduling(
            topology=_topology(given.get("topology", {})),
            selector=given.get("selector", given.get("node_selector", {})),
            tolerates=tuple(given.get("tolerates", ())),
            flavors=tuple(given.get("flavors", ())),
            preemptible=given.get("preemptible", True),
            away_priority=given.get("away_priority"),
            group=given.get("group", ""),
            group_size=groups.get(given.get("group", ""), 0),
            members_missing=replicas - given.get("members_submitted", replicas),
            estimate_s=given.get("estimate", given.get("runtime")),
            checkpoint_every_s=given.get("checkpoint_every"),
            repair=Repair.REPLACE,
            recovery_timeout_s=how.get("stale_grace", 1_800.0),
        ),
    )


def _topology(given: dict[str, Any]) -> TopologyAsk:
    part = given.get("slice", {})
    return TopologyAsk(
        required=given.get("required", ""),
        preferred=given.get("preferred", ""),
        exclusive=given.get("exclusive", False),
        slice_level=part.get("level", ""),
        slice_size=part.get("size", 0),
    )
