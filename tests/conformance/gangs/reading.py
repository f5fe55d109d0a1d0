"""A scenario's nodes, queues and jobs in our own words.

A scenario without nodes is about quota alone: it gets one node (one for each flavour) that has room
for everything. Half a GPU in such a scenario becomes a rank that shares a device.
"""

from typing import Any, NamedTuple

from controlplane.model import (
    DoneWhen,
    JobSpec,
    NodeInfo,
    Repair,
    Role,
    Scheduling,
    StartPolicy,
    TopologyAsk,
    Workload,
)
from controlplane.sharing import (
    Discipline,
    FlavorQuota,
    Policy,
    Preempt,
    Queue,
    QuotaModel,
    Reclaim,
    WithinQueue,
)

FOREVER_S = 1e8

# Where a scenario says nothing, whoever fits may go ahead.
DISCIPLINES = {
    None: Discipline.FIFO_FIT,
    "strict_fifo": Discipline.STRICT_FIFO,
    "best_effort": Discipline.FIFO_FIT,
    "easy_backfill": Discipline.EASY_BACKFILL,
    "conservative_backfill": Discipline.CONSERVATIVE_BACKFILL,
    "sjf": Discipline.STRICT_SHORTEST,
    "shortest_job_first": Discipline.STRICT_SHORTEST,
    "sjf_fit": Discipline.SHORTEST_FIT,
    "attained_service": Discipline.LEAST_ATTAINED_FIT,
}


class OneJob(NamedTuple):
    id: str
    arrival: float
    spec: JobSpec
    given: dict[str, Any]


def policy(scenario: dict[str, Any]) -> Policy:
    said = scenario["policy"]
    return Policy(
        discipline=DISCIPLINES[said.get("queueing")],
        model=QuotaModel(said.get("model", QuotaModel.CLASSIC)),
        strategies=tuple(said.get("strategies", ("final", "initial"))),
        preempt=preempt(said.get("preempt")) or Preempt(),
        levels=tuple(scenario.get("levels", ("rack",))),
        packing={"binpack": "pack", "bin_pack": "pack"}.get(
            said.get("packing", "pack"), said.get("packing", "pack")
        ),
        protected_s=float(said.get("min_runtime", 0.0)),
        consolidate=said.get("consolidate", False),
        ageing_per_hour=float(said.get("ageing_per_hour", 0.0)),
    )


def preempt(said: dict[str, Any] | None) -> Preempt | None:
    if said is None:
        return None
    borrow = said.get("borrow")
    return Preempt(
        within_queue=WithinQueue(said.get("within_queue", "never")),
        reclaim=Reclaim(said.get("reclaim", "never")),
        borrow_below=None if not borrow else borrow.get("max_priority", 0),
    )


def queues(scenario: dict[str, Any]) -> list[Queue]:
    found = [
        Queue(_cohort(cohort["id"]), parent=_cohort(cohort.get("parent")),
              nominal=cohort.get("nominal"), borrow_max=cohort.get("borrow_limit"),
              lend_max=cohort.get("lend_limit"), weight=cohort.get("weight", 1.0))
        for cohort in scenario.get("cohorts", ())
    ]  # fmt: skip
    for said in scenario["queues"]:
        flavors = tuple(
            FlavorQuota(f["id"], f.get("nominal", 0), f.get("borrow_limit"), f.get("lend_limit"))
            for f in said.get("flavors", ())
        )
        found.append(
            Queue(
                name=said["id"],
                gpus_max=said.get("limit"),
                parent=said.get("parent") or _cohort(said.get("cohort")),
                nominal=said.get("nominal"),
                borrow_max=said.get("borrow_limit"),
                lend_max=said.get("lend_limit"),
                weight=said.get("weight", 1.0),
                rank=said.get("queue_priority", 0),
                flavors=flavors,
                discipline=DISCIPLINES[said["queueing"]] if "queueing" in said else None,
                preempt=preempt(said.get("preempt")),
            )
        )
    return found


def _cohort(name: str | None) -> str:
    return f"cohort/{name}" if name else ""


def nodes(scenario: dict[str, Any]) -> list[NodeInfo]:
    found = []
    for said in scenario["nodes"]:
        taints = said.get("taints", [said["taint"]] if "taint" in said else [])
        labels = dict(said.get("labels", {}))
        if "flavor" in said:
            labels["flavor"] = said["flavor"]
        found.append(
            NodeInfo(
                name=said["id"],
                gpus=said["gpus"],
                gpu_memory_mib=said.get("gpu_memory_mib", 0),
                labels=labels,
                path=tuple(said.get("path", ())),
                taints=tuple(taints),
            )
        )
    if found:
        return found
    everything = [*scenario["running"], *scenario["pending"]]
    room = sum(-(-j["gpus"] // 1) * j["replicas"] * j.get("copies", 1) for j in everything)
    flavors = sorted({f["id"] for q in scenario["queues"] for f in q.get("flavors", ())})
    return [
        NodeInfo(f"room-{flavor}", int(room) + 1, labels={"flavor": flavor} if flavor else {})
        for flavor in flavors or [""]
    ]


def jobs(scenario: dict[str, Any], key: str) -> list[OneJob]:
    groups: dict[str, int] = {}
    for said in [*scenario["running"], *scenario["pending"]]:
        if "group" in said:
            groups[said["group"]] = groups.get(said["group"], 0) + 1
    found = []
    for said in scenario[key]:
        copies = said.get("copies", 1)
        spec = job_spec(said, scenario["policy"], groups)
        arrival = max(said.get("member_arrivals", [said.get("arrival", 0)]))
        for copy in range(copies):
            name = said["id"] if copies == 1 else f"{said['id']}#{copy}"
            found.append(OneJob(name, float(arrival), spec, said))
    return found


def job_spec(said: dict[str, Any], how: dict[str, Any], groups: dict[str, int]) -> JobSpec:
    replicas, gpus = said["replicas"], said["gpus"]
    whole, part = int(gpus), round((gpus - int(gpus)) * 1000)
    fewest = said.get("min", replicas)
    if said.get("gang") is False:
        fewest = 1
    elastic = {"min_replicas": fewest, "max_replicas": said.get("max", replicas)}
    roles = [
        Role(name="worker", replicas=replicas, gpus=whole,
             node=said.get("node", ""), devices=tuple(said.get("devices", ())),
             gpu_memory_mib=said.get("gpu_memory_mib", 0),
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
        queue=said["queue"],
        priority=said.get("priority", 0),
        start_timeout_s=how.get("ready_timeout", 1e8),
        start=start,
        workload=Workload(duration_s=said.get("runtime", FOREVER_S)),
        scheduling=Scheduling(
            topology=_topology(said.get("topology", {})),
            selector=said.get("selector", said.get("node_selector", {})),
            tolerates=tuple(said.get("tolerates", ())),
            flavors=tuple(said.get("flavors", ())),
            preemptible=said.get("preemptible", True),
            away_priority=said.get("away_priority"),
            group=said.get("group", ""),
            group_size=groups.get(said.get("group", ""), 0),
            members_missing=replicas - said.get("members_submitted", replicas),
            estimate_s=said.get("estimate", said.get("runtime")),
            checkpoint_every_s=said.get("checkpoint_every"),
            repair=Repair.REPLACE,
            recovery_timeout_s=how.get("stale_grace", 1_800.0),
        ),
    )


def _topology(said: dict[str, Any]) -> TopologyAsk:
    part = said.get("slice", {})
    return TopologyAsk(
        required=said.get("required", ""),
        preferred=said.get("preferred", ""),
        exclusive=said.get("exclusive", False),
        slice_level=part.get("level", ""),
        slice_size=part.get("size", 0),
    )
