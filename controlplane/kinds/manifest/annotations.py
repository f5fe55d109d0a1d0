"""Scheduling constraints of a Kubeflow manifest, from annotations and labels.

Muster's annotations are named after the fields of the native form. Annotations of Kueue, KAI and
JobSet are read where they mean the same, so that a manifest need not be changed; Muster's take
precedence.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from controlplane.kinds.manifest import checking
from controlplane.kinds.manifest.structure import shown
from controlplane.kinds.manifest.validation import Findings
from controlplane.model.dependencies import parse_after
from controlplane.model.owners import plain_array
from controlplane.model.spec import PLAIN_SCHEDULING, JobSpec, Repair, Role, Scheduling, TopologyAsk

PREFIX = "muster.dev/"
# The lowest topology level: the node itself.
HOSTNAME, NODE = "kubernetes.io/hostname", "node"

QUEUE_ANNOTATION = "muster.dev/queue"
QUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "kai.scheduler/queue")
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"


class AnnotatedField(NamedTuple):
    """A field that an annotation sets, with the functions that read and write its text."""

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
    pairs = [name.partition("=") for name in _names(text)]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError
    return {key: value for key, _, value in pairs}


def _written_pairs(pairs: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in pairs.items())


def _level(text: str) -> str:
    return NODE if text == HOSTNAME else text


# The annotations below PREFIX; a message on a text that cannot be read names the expected format.
TOPOLOGY = {
    "topology-required": AnnotatedField("required", _level, str),
    "topology-preferred": AnnotatedField("preferred", _level, str),
    "topology-exclusive": AnnotatedField("exclusive", _truth, lambda v: str(v).lower()),
    "slice-level": AnnotatedField("slice_level", _level, str),
    "slice-size": AnnotatedField("slice_size", _size, str),
}
SCHEDULING = {
    "node-selector": AnnotatedField("selector", _pairs, _written_pairs),
    "tolerates": AnnotatedField("tolerates", _names, ",".join),
    "flavors": AnnotatedField("flavors", _names, ",".join),
    "packing": AnnotatedField("packing", str, str),
    "preemptible": AnnotatedField("preemptible", _truth, lambda v: str(v).lower()),
    "away-priority": AnnotatedField("away_priority", int, str),
    "group": AnnotatedField("group", str, str),
    "group-size": AnnotatedField("group_size", _size, str),
    "members-missing": AnnotatedField("members_missing", _size, str),
    "estimate-seconds": AnnotatedField("estimate_s", _seconds, lambda v: f"{v:g}"),
    "checkpoint-every-seconds": AnnotatedField("checkpoint_every_s", _seconds, lambda v: f"{v:g}"),
    "repair": AnnotatedField("repair", Repair, lambda v: v.value),
    "recovery-timeout-seconds": AnnotatedField("recovery_timeout_s", _seconds, lambda v: f"{v:g}"),
}
_FORMS = {
    _seconds: "a number of seconds",
    _size: "a whole number",
    int: "a whole number",
    _truth: "true or false",
    _pairs: "KEY=VALUE, several with commas",
    Repair: "restart or replace",
}
# Annotations of Kueue, KAI and JobSet with the same meaning, on the job or on the pods of its first
# role.
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
    """Return the queue that an annotation or a label names, or "" if none does."""
    named = [annotations.get(QUEUE_ANNOTATION), *(labels.get(key) for key in QUEUE_LABELS)]
    return next((name for name in named if name), "")


def scheduling_of(
    labels: Mapping[str, str], annotations: Mapping[str, str], findings: Findings
) -> Scheduling:
    given: dict[str, tuple[str, str]] = {}
    if EXCLUSIVE in annotations:
        given["topology-required"] = EXCLUSIVE, annotations[EXCLUSIVE]
        given["topology-exclusive"] = EXCLUSIVE, "true"
    for theirs, ours in _ALIASES.items():
        if theirs in annotations:
            given[ours] = theirs, annotations[theirs]
    if MAX_SECONDS_LABEL in labels:
        given["estimate-seconds"] = MAX_SECONDS_LABEL, labels[MAX_SECONDS_LABEL]
    for ours in (*TOPOLOGY, *SCHEDULING):
        if PREFIX + ours in annotations:
            given[ours] = PREFIX + ours, annotations[PREFIX + ours]
    if not given:
        return PLAIN_SCHEDULING
    topology = _read(TOPOLOGY, given, findings)
    rest = _read(SCHEDULING, given, findings)
    return Scheduling(topology=TopologyAsk(**topology), **rest)


def _read(
    fields: Mapping[str, AnnotatedField], given: Mapping[str, tuple[str, str]], findings: Findings
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in [name for name in fields if name in given]:
        key, text = given[name]
        try:
            values[fields[name].field] = fields[name].read(text)
        except (ValueError, KeyError, OverflowError):
            message = _FORMS.get(fields[name].read, "valid")
            findings.invalid(f"metadata.annotations[{key}]", f"{shown(text)!r} is not {message}")
    return values


def annotations_for(asks: Scheduling) -> dict[str, str]:
    """Return the annotations that are equivalent to `spec.scheduling` of the native form."""
    topology = _written(TOPOLOGY, asks.topology, TopologyAsk())
    return topology | _written(SCHEDULING, asks, PLAIN_SCHEDULING)


def _written(fields: Mapping[str, AnnotatedField], asks: Any, plain: Any) -> dict[str, str]:
    return {
        PREFIX + name: field.write(value)
        for name, field in fields.items()
        if (value := getattr(asks, field.field)) != getattr(plain, field.field)
    }


# ------------------------------------------------------------------ arrays and dependencies

AFTER, ARRAY = f"{PREFIX}after", f"{PREFIX}array"


def with_workflow(spec: JobSpec, findings: Findings) -> JobSpec:
    """Return the spec with the dependencies and the array of its annotations.

    Fields of the manifest take precedence over annotations.
    """
    annotations, changes = spec.annotations, dict[str, Any]()
    try:
        if AFTER in annotations and not spec.after:
            changes["after"] = tuple(parse_after(each) for each in _names(annotations[AFTER]))
        if ARRAY in annotations and not spec.array:
            changes["array"] = annotations[ARRAY]
    except ValueError as error:
        findings.invalid(f"metadata.annotations[{AFTER}]", str(error))
    if text := changes.get("array", spec.array):
        try:
            changes["array"] = plain_array(text)
        except ValueError as error:
            where = "spec.array" if spec.array else f"metadata.annotations[{ARRAY}]"
            findings.invalid(where, str(error))
    return replace(spec, **changes) if changes else spec


def workflow_annotations(spec: JobSpec) -> dict[str, str]:
    """Return the annotations that are equivalent to `after` and `array` of the native form."""
    texts = {AFTER: ",".join(map(str, spec.after)), ARRAY: spec.array}
    return {key: text for key, text in texts.items() if text}


# ------------------------------------------------------------------ shares of devices, by role

FRACTION, MEMORY = "gpu-fraction", "gpu-memory"


def with_parts(path: str, roles: Iterable[Role], findings: Findings) -> tuple[Role, ...]:
    """Return the roles with the device shares that their pods request by KAI's annotations."""
    return tuple(_with_part(f"{path}[{role.name}]", role, findings) for role in roles)


def _with_part(path: str, role: Role, findings: Findings) -> Role:
    metadata = role.template.get("metadata") if role.template else None
    annotations = (metadata or {}).get("annotations") or {}
    if not isinstance(annotations, dict) or not (FRACTION in annotations or MEMORY in annotations):
        return role
    where = f"{path}.template.metadata.annotations"
    try:
        if FRACTION in annotations:
            share = round(float(annotations[FRACTION]) * 1_000)
            if not 0 < share < 1_000:
                raise ValueError
            return replace(role, gpus=0, gpu_share=share)
        mib = int(annotations[MEMORY])
        if mib <= 0:
            raise ValueError
        return replace(role, gpus=0, gpu_memory_mib=mib)
    except (TypeError, ValueError):
        key = FRACTION if FRACTION in annotations else MEMORY
        form = "a part of one, as 0.5" if key == FRACTION else "a number of MiB"
        findings.invalid(f"{where}[{key}]", f"{shown(str(annotations[key]))!r} is not {form}")
        return role
