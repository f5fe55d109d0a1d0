"""Validation of resource requests: an amount that is not a quantity is refused."""

from collections.abc import Mapping
from typing import Any

from controlplane.kinds.manifest.structure import shown
from controlplane.kinds.manifest.validation import Findings
from controlplane.model import quantities as q


def check_amounts(field: str, given: object, findings: Findings) -> None:
    """Check a mapping of resources to amounts."""
    if not isinstance(given, Mapping):
        findings.mistyped(field, "a mapping of resources to amounts is needed here")
        return
    for name, amount in given.items():
        quantity = q.parse(amount)
        if quantity is None or quantity.amount < 0:
            message = f"{shown(amount)!r} is no amount such as 500m, 2 or 16Gi"
            findings.invalid(f"{field}[{shown(name)}]", message)


def check_init_containers(field: str, given: object, findings: Findings) -> None:
    """Check the requests of init containers, which count for the pod; the rest is only kept."""
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
