"""What pod templates require of nodes that Muster, where it binds pods itself, cannot keep to.

A scheduler of Kubernetes would honour these; Muster would bind past them, and the job would run
where its author said that it must not. So such a job is refused, with what to do. What a template
only prefers is not a requirement, and is not looked at.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from controlplane.errors import Rejected
from controlplane.model import JobSpec

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_INSTEAD = {
    "podAffinity": "use `scheduling.topology` to keep the ranks of a gang together",
    "podAntiAffinity": "use `scheduling.packing: spread`, or a pod that asks for all GPUs of a node",
    "topologySpreadConstraints": "say ScheduleAnyway, or use `scheduling.packing: spread`",
    "resourceClaims": "ask for an extended resource of a device plugin",
}
_CLUSTER = "or leave nodes to the cluster's scheduler (muster up --scheduler cluster)"


def refusal(spec: JobSpec) -> Rejected | None:
    """Why a job cannot be bound by Muster; None if it can."""
    for role in spec.roles:
        for name, path in _unheeded(role.template):
            field = f"spec.roles[{role.name}].template.spec.{path}"
            message = f"{field}: Muster binds pods itself and does not support this requirement; "
            return Rejected("invalid_job", f"{message}{_INSTEAD[name]}, {_CLUSTER}", field=field)
    return None


def _unheeded(template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The name of each such requirement, and its path."""
    pod = template.get("spec")
    if not isinstance(pod, Mapping):
        return
    affinity = pod.get("affinity")
    for name in ("podAffinity", "podAntiAffinity"):
        asked = affinity.get(name) if isinstance(affinity, Mapping) else None
        if isinstance(asked, Mapping) and asked.get(_REQUIRED):
            yield name, f"affinity.{name}.{_REQUIRED}"
    spread = pod.get("topologySpreadConstraints")
    for index, each in enumerate(spread if isinstance(spread, list) else ()):
        # DoNotSchedule is what Kubernetes takes where nothing is said.
        if isinstance(each, Mapping) and each.get("whenUnsatisfiable") != "ScheduleAnyway":
            yield "topologySpreadConstraints", f"topologySpreadConstraints[{index}]"
    if pod.get("resourceClaims"):
        yield "resourceClaims", "resourceClaims"
