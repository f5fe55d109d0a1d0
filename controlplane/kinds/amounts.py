"""What a pod asks for, checked: amounts that nobody could add up are refused at the door."""

from collections.abc import Mapping
from typing import Any

from controlplane import quantities as q
from controlplane.kinds.findings import Findings
from controlplane.kinds.structure import shown


def check_amounts(field: str, given: object, findings: Findings) -> None:
    """A mapping of resources to amounts."""
    if not isinstance(given, Mapping):
        findings.mistyped(field, "a mapping of resources to amounts is needed here")
        return
    for name, amount in given.items():
        found = q.parse(amount)
        if found is None or found.amount < 0:
            told = f"{shown(amount)!r} is no amount such as 500m, 2 or 16Gi"
            findings.invalid(f"{field}[{shown(name)}]", told)


def check_init_containers(field: str, given: object, findings: Findings) -> None:
    """Only kept, but what they ask for counts for the pod."""
    if not isinstance(given, list):
        findings.mistyped(field, "a list of containers is needed here")
        return
    for index, container in enumerate(given):
        if not isinstance(container, Mapping):
            findings.mistyped(f"{field}[{index}]", "a container is needed here")
            continue
        resources: Any = container.get("resources") or {}
        if not isinstance(resources, Mapping):
            findings.mistyped(f"{field}[{index}].resources", "a mapping is needed here")
            continue
        for sort in ("limits", "requests"):
            if resources.get(sort):
                where = f"{field}[{index}].resources.{sort}"
                check_amounts(where, resources[sort], findings)
