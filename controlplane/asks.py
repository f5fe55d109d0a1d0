"""What a job asks of the scheduler: what it says itself, and what its pods' templates say."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from controlplane.model import JobSpec, Scheduling

# In `tolerates`: `KEY=*` is that taint with any value, and this is any taint.
ANY_TAINT = "*"
_SOFT = "PreferNoSchedule"

Pod = Mapping[str, Any]


def asks_of(spec: JobSpec) -> Scheduling:
    """What it says itself, and the taints that all of its pods tolerate."""
    pods = _pods(spec)
    if not pods or len(pods) < len(spec.roles):
        return spec.scheduling
    tolerated = _tolerated(pods)
    if not tolerated:
        return spec.scheduling
    both = dict.fromkeys((*spec.scheduling.tolerates, *tolerated))
    return replace(spec.scheduling, tolerates=tuple(both))


def pods_selector(spec: JobSpec) -> dict[str, str]:
    """The labels that its pods ask of their nodes; a gang keeps to nodes that suit all of its roles.

    Where roles contradict each other about a label, that label is left to the cluster.
    """
    values: dict[str, set[str]] = {}
    for pod in _pods(spec):
        for key, value in (pod.get("nodeSelector") or {}).items():
            values.setdefault(key, set()).add(value)
    return {key: next(iter(found)) for key, found in values.items() if len(found) == 1}


def _pods(spec: JobSpec) -> list[Pod]:
    return [pod for role in spec.roles if (pod := role.template.get("spec"))]


def tolerates(wishes: Sequence[str], taint: str) -> bool:
    """Whether a taint, written `KEY` or `KEY=VALUE`, is among those that are borne."""
    if not wishes:
        return False
    return taint in wishes or ANY_TAINT in wishes or f"{taint.partition('=')[0]}=*" in wishes


def _tolerated(pods: Sequence[Pod]) -> list[str]:
    first, *others = [list(_written(pod)) for pod in pods]
    return [taint for taint in first if all(taint in other for other in others)]


def _written(pod: Pod) -> Iterator[str]:
    for each in pod.get("tolerations") or ():
        # Who bears a taint for a while only does not want to be sent there.
        if each.get("effect") == _SOFT or each.get("tolerationSeconds") is not None:
            continue
        key, value = each.get("key") or "", each.get("value") or ""
        if each.get("operator") == "Exists":
            yield f"{key}=*" if key else ANY_TAINT
        else:
            yield f"{key}={value}" if value else key
