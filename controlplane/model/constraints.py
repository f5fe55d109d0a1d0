"""Scheduling constraints of a job: from its spec, and from its pod templates."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from controlplane.model.spec import JobSpec, Scheduling

# Entries of `tolerates`: `KEY=*` matches the taint with any value, and `*` matches every taint.
ANY_TAINT = "*"
_SOFT = "PreferNoSchedule"

Pod = Mapping[str, Any]


def asks_of(spec: JobSpec) -> Scheduling:
    """Return `spec.scheduling` with the taints added that all pods of the job tolerate."""
    pods = _pods(spec)
    if not pods or len(pods) < len(spec.roles):
        return spec.scheduling
    tolerated = _tolerated(pods)
    if not tolerated:
        return spec.scheduling
    both = dict.fromkeys((*spec.scheduling.tolerates, *tolerated))
    return replace(spec.scheduling, tolerates=tuple(both))


def pods_selector(spec: JobSpec) -> dict[str, str]:
    """Return the node selector of the whole gang, merged from its pod templates.

    A gang uses only nodes that suit all of its roles. A label for which roles require different
    values is left out, and the cluster decides.
    """
    values: dict[str, set[str]] = {}
    for pod in _pods(spec):
        for key, value in (pod.get("nodeSelector") or {}).items():
            values.setdefault(key, set()).add(value)
    return {key: next(iter(wanted)) for key, wanted in values.items() if len(wanted) == 1}


def _pods(spec: JobSpec) -> list[Pod]:
    return [pod for role in spec.roles if (pod := role.template.get("spec"))]


def tolerates(tolerations: Sequence[str], taint: str) -> bool:
    """Return whether `tolerations`, a list of tolerations, covers a taint `KEY` or `KEY=VALUE`."""
    if not tolerations:
        return False
    return (
        taint in tolerations
        or ANY_TAINT in tolerations
        or f"{taint.partition('=')[0]}=*" in tolerations
    )


def _tolerated(pods: Sequence[Pod]) -> list[str]:
    first, *others = [list(_written(pod)) for pod in pods]
    return [taint for taint in first if all(taint in other for other in others)]


def _written(pod: Pod) -> Iterator[str]:
    for each in pod.get("tolerations") or ():
        # A pod that tolerates a taint only for some seconds should not be placed there.
        if each.get("effect") == _SOFT or each.get("tolerationSeconds") is not None:
            continue
        key, value = each.get("key") or "", each.get("value") or ""
        if each.get("operator") == "Exists":
            yield f"{key}=*" if key else ANY_TAINT
        else:
            yield f"{key}={value}" if value else key
