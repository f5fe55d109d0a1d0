"""What a Kubeflow manifest asks of the scheduler, by annotations and labels.

Ours are named after the fields of the native form. Those that Kueue, KAI and JobSet read are
understood where they mean the same, so that a manifest need not be changed; ours go before theirs.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from controlplane.kinds import checking
from controlplane.kinds.findings import Findings
from controlplane.kinds.structure import shown
from controlplane.model import PLAIN_SCHEDULING, Repair, Role, Scheduling, TopologyAsk

PREFIX = "muster.dev/"
# The level below all others: the node itself.
HOSTNAME, NODE = "kubernetes.io/hostname", "node"

QUEUE_ANNOTATION = "muster.dev/queue"
QUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "kai.scheduler/queue")
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"


class Wish(NamedTuple):
    """A field, how its text is read, and how it is written."""

    field: str
    read: Callable[[str], Any]
    write: Callable[[Any], str]


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= checking.SECONDS_MAX:
        raise ValueError
    return seconds


def _size(text: str) -> int:
    number = int(text)
    if not 0 <= number <= checking.RANKS_MAX:
        raise ValueError
    return number


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _pairs(text: str) -> dict[str, str]:
    found = [name.partition("=") for name in _names(text)]
    if not all(equals for _, equals, _ in found):
        raise ValueError
    return {key: value for key, _, value in found}


def _written_pairs(pairs: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in pairs.items())


def _level(text: str) -> str:
    return NODE if text == HOSTNAME else text


# What each annotation says, below PREFIX; the kind of text is told when it cannot be read.
TOPOLOGY = {
    "topology-required": Wish("required", _level, str),
    "topology-preferred": Wish("preferred", _level, str),
    "topology-exclusive": Wish("exclusive", _truth, lambda v: str(v).lower()),
    "slice-level": Wish("slice_level", _level, str),
    "slice-size": Wish("slice_size", _size, str),
}
WISHES = {
    "node-selector": Wish("selector", _pairs, _written_pairs),
    "tolerates": Wish("tolerates", _names, ",".join),
    "flavors": Wish("flavors", _names, ",".join),
    "packing": Wish("packing", str, str),
    "preemptible": Wish("preemptible", _truth, lambda v: str(v).lower()),
    "away-priority": Wish("away_priority", int, str),
    "group": Wish("group", str, str),
    "group-size": Wish("group_size", _size, str),
    "members-missing": Wish("members_missing", _size, str),
    "estimate-seconds": Wish("estimate_s", _seconds, lambda v: f"{v:g}"),
    "checkpoint-every-seconds": Wish("checkpoint_every_s", _seconds, lambda v: f"{v:g}"),
    "repair": Wish("repair", Repair, lambda v: v.value),
    "recovery-timeout-seconds": Wish("recovery_timeout_s", _seconds, lambda v: f"{v:g}"),
}
_FORMS = {
    _seconds: "a number of seconds",
    _size: "a whole number",
    int: "a whole number",
    _truth: "true or false",
    _pairs: "KEY=VALUE, several with commas",
    Repair: "restart or replace",
}
# What others call the same, on the job or on the pods of its first role.
_ALIASES = {
    "kueue.x-k8s.io/podset-required-topology": "topology-required",
    "kueue.x-k8s.io/podset-preferred-topology": "topology-preferred",
    "kueue.x-k8s.io/podset-slice-required-topology": "slice-level",
    "kueue.x-k8s.io/podset-slice-size": "slice-size",
    "kai.scheduler/topology-required-placement": "topology-required",
    "kai.scheduler/topology-preferred-placement": "topology-preferred",
}
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
MAX_SECONDS_LABEL = "kueue.x-k8s.io/max-exec-time-seconds"


def queue_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """The queue that a manifest names beside its run policy, or nothing."""
    named = [annotations.get(QUEUE_ANNOTATION), *(labels.get(key) for key in QUEUE_LABELS)]
    return next((name for name in named if name), "")


def scheduling_of(
    labels: Mapping[str, str], annotations: Mapping[str, str], findings: Findings
) -> Scheduling:
    said: dict[str, tuple[str, str]] = {}
    if EXCLUSIVE in annotations:
        said["topology-required"] = EXCLUSIVE, annotations[EXCLUSIVE]
        said["topology-exclusive"] = EXCLUSIVE, "true"
    for theirs, ours in _ALIASES.items():
        if theirs in annotations:
            said[ours] = theirs, annotations[theirs]
    if MAX_SECONDS_LABEL in labels:
        said["estimate-seconds"] = MAX_SECONDS_LABEL, labels[MAX_SECONDS_LABEL]
    for ours in (*TOPOLOGY, *WISHES):
        if PREFIX + ours in annotations:
            said[ours] = PREFIX + ours, annotations[PREFIX + ours]
    if not said:
        return PLAIN_SCHEDULING
    near = _read(TOPOLOGY, said, findings)
    wishes = _read(WISHES, said, findings)
    return Scheduling(topology=TopologyAsk(**near), **wishes)


def _read(
    wishes: Mapping[str, Wish], said: Mapping[str, tuple[str, str]], findings: Findings
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in [name for name in wishes if name in said]:
        key, text = said[name]
        try:
            found[wishes[name].field] = wishes[name].read(text)
        except (ValueError, KeyError, OverflowError):
            told = _FORMS.get(wishes[name].read, "what it should be")
            findings.invalid(f"metadata.annotations[{key}]", f"{shown(text)!r} is not {told}")
    return found


def annotations_for(asks: Scheduling) -> dict[str, str]:
    """The annotations that say the same as `spec.scheduling` of the native form."""
    found = _written(TOPOLOGY, asks.topology, TopologyAsk())
    return found | _written(WISHES, asks, PLAIN_SCHEDULING)


def _written(wishes: Mapping[str, Wish], asks: Any, plain: Any) -> dict[str, str]:
    return {
        PREFIX + name: wish.write(value)
        for name, wish in wishes.items()
        if (value := getattr(asks, wish.field)) != getattr(plain, wish.field)
    }


# ------------------------------------------------------------------ parts of devices, by role

FRACTION, MEMORY = "gpu-fraction", "gpu-memory"


def with_parts(path: str, roles: Iterable[Role], findings: Findings) -> tuple[Role, ...]:
    """Pods that say how much of one device they need, in KAI's words, share it with others."""
    return tuple([_with_part(f"{path}[{role.name}]", role, findings) for role in roles])


def _with_part(path: str, role: Role, findings: Findings) -> Role:
    metadata = role.template.get("metadata") if role.template else None
    said = (metadata or {}).get("annotations") or {}
    if not isinstance(said, dict) or not (FRACTION in said or MEMORY in said):
        return role
    where = f"{path}.template.metadata.annotations"
    try:
        if FRACTION in said:
            share = round(float(said[FRACTION]) * 1_000)
            if not 0 < share < 1_000:
                raise ValueError
            return replace(role, gpus=0, gpu_share=share)
        mib = int(said[MEMORY])
        if mib <= 0:
            raise ValueError
        return replace(role, gpus=0, gpu_memory_mib=mib)
    except (TypeError, ValueError):
        key = FRACTION if FRACTION in said else MEMORY
        form = "a part of one, as 0.5" if key == FRACTION else "a number of MiB"
        findings.invalid(f"{where}[{key}]", f"{shown(str(said[key]))!r} is not {form}")
        return role
