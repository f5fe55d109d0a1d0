"""Requirements of pod templates that Muster does not support where it binds pods itself.

kube-scheduler honours these requirements. Muster would ignore them, and the job would run where its
author does not allow it. Such a job is therefore refused, with advice. Preferences of a template are
not requirements and are ignored.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from controlplane.model.errors import Rejected
from controlplane.model.spec import JobSpec

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_INSTEAD = {
    "podAffinity": "use `scheduling.topology` to keep the ranks of a gang together",
    "podAntiAffinity": "use `scheduling.packing: spread`, or a pod that asks for all GPUs of a node",
    "topologySpreadConstraints": "use ScheduleAnyway, or use `scheduling.packing: spread`",
    "resourceClaims": "ask for an extended resource of a device plugin",
}
_CLUSTER = "or leave nodes to the cluster's scheduler (muster up --scheduler cluster)"


def refusal(spec: JobSpec) -> Rejected | None:
    """Return the refusal of a job that Muster cannot bind, or None if it can."""
    for role in spec.roles:
        for name, path in _unheeded(role.template):
            field = f"spec.roles[{role.name}].template.spec.{path}"
            message = f"{field}: Muster binds pods itself and does not support this requirement; "
            return Rejected("invalid_job", f"{message}{_INSTEAD[name]}, {_CLUSTER}", field=field)
    return None


def _unheeded(template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and the path of each unsupported requirement of a pod template."""
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
        # Kubernetes' default for whenUnsatisfiable is DoNotSchedule.
        if isinstance(each, Mapping) and each.get("whenUnsatisfiable") != "ScheduleAnyway":
            yield "topologySpreadConstraints", f"topologySpreadConstraints[{index}]"
    if pod.get("resourceClaims"):
        yield "resourceClaims", "resourceClaims"
