"""Resource requests of ranks besides GPUs, computed as Kubernetes computes them.

An amount is an integer: thousandths of a core for `cpu`, and whole units for every other resource
(bytes of `memory`, devices of `rdma/hca`). GPUs are allocated by device index, so they are not
counted here.
"""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Any

import msgspec

from controlplane.model import quantities as q
from controlplane.model.spec import JobSpec, Role, grows
from controlplane.model.supplies import NO_SUPPLIES, Supplies

CPU = "cpu"
MEMORY = "memory"
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
# The annotation with the supplies of a job whose kind has no field for them.
SUPPLIES_ANNOTATION = "muster.dev/supplies"
# Amounts per unit; cpu is the only resource that Kubernetes divides.
_PARTS = {CPU: 1_000}

# Resource -> amount; a resource with amount 0 is left out.
Amounts = Mapping[str, int]
Quantities = dict[str, q.Quantity]

NO_AMOUNTS: Amounts = {}


def requests_of(spec: JobSpec) -> tuple[Amounts, ...]:
    """Return the requests of one rank of each role, in the order of `spec.roles`.

    The tuple is empty if no role requests anything.
    """
    if has_plain_pods(spec):
        return ()
    supplies = supplies_of(spec)
    requests = tuple(amounts(role_requests(role, supplies)) for role in spec.roles)
    return requests if any(requests) else ()


def has_plain_pods(spec: JobSpec) -> bool:
    """Return whether the spec has nothing that could request resources.

    A cheap test before `requests_of`; most simulated jobs pass it.
    """
    if spec.supplies is not NO_SUPPLIES or spec.annotations:
        return False
    for role in spec.roles:  # noqa: SIM110 - this is the hot form of it
        if role.template:
            return False
    return True


def of_rank(spec: JobSpec, requests: tuple[Amounts, ...], rank: int, ranks: int) -> Amounts:
    """Return what `rank` requests in an attempt of `ranks` ranks.

    `requests` has the amounts of each role, as `requests_of` returns them. An attempt whose size
    differs from the spec's belongs to an elastic gang, whose surplus ranks have the last role; or
    the job was scaled and the attempt is stopping. In the second case the role of a rank is no
    longer known, so every rank counts with the maximum over all roles, resource by resource.
    """
    if len(requests) == 1:
        return requests[0]
    if ranks != spec.size and not grows(spec):
        names = sorted({name for each in requests for name in each})
        return {name: max(each.get(name, 0) for each in requests) for name in names}
    for role, amounts in zip(spec.roles, requests, strict=True):
        if rank < role.replicas:
            return amounts
        rank -= role.replicas
    return requests[-1]


def by_rank(spec: JobSpec, requests: tuple[Amounts, ...]) -> tuple[Amounts, ...]:
    """Return the requests of every rank of the gang; empty if `requests` is empty."""
    if not requests:
        return ()
    pairs = zip(spec.roles, requests, strict=True)
    return tuple(amounts for role, amounts in pairs for _ in range(role.replicas))


def supplies_of(spec: JobSpec) -> Supplies:
    """Return the job's supplies: its field, or else its annotation, or else `NO_SUPPLIES`.

    An annotation that cannot be decoded counts as none.
    """
    if spec.supplies != NO_SUPPLIES:
        return spec.supplies
    annotation = spec.annotations.get(SUPPLIES_ANNOTATION)
    if annotation is None:
        return NO_SUPPLIES
    try:
        return msgspec.json.decode(annotation, type=Supplies)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        # Admission refuses such an annotation; a log older than that rule may still have one.
        return NO_SUPPLIES


# ------------------------------------------------------------------ one pod


def role_requests(role: Role, supplies: Supplies) -> Quantities:
    """Return what a pod of the role requests, with `supplies.resources` added."""
    if not supplies.resources:
        return pod_requests(role.template) if role.template else {}
    pod = role.template.get("spec") or {}
    containers = pod.get("containers") or [{}]
    names = [each.get("name") for each in containers]
    main = names.index(role.container) if role.container in names else 0
    # The supplies go to the container whose exit code counts; its own requests take precedence.
    requests = {**supplies.resources, **_requests_or_limits(containers[main])}
    more = {**containers[main], "resources": {"requests": requests}}
    supplied = [*containers[:main], more, *containers[main + 1 :]]
    return pod_requests({"spec": {**pod, "containers": supplied}})


def pod_requests(template: Mapping[str, Any]) -> Quantities:
    """Return the effective requests of a pod, or of a pod of a template, as Kubernetes defines them.

    For each resource: the sum over containers and sidecars, or the need of an init container (with
    the sidecars that already run) if that is more. Requests at the level of the pod replace this
    result, and the pod's overhead is added.
    """
    pod = template.get("spec") or {}
    running: Quantities = {}
    highest: Quantities = {}
    for container in pod.get("initContainers") or ():
        asked = _requests(container)
        if container.get("restartPolicy") == "Always":
            add_up(running, asked)
            asked = running
        else:
            asked = _sum(running, asked)
        for name, amount in asked.items():
            highest[name] = _larger(highest.get(name, q.NOTHING), amount)
    for container in pod.get("containers") or ():
        add_up(running, _requests(container))
    for name, amount in highest.items():
        running[name] = _larger(running.get(name, q.NOTHING), amount)
    running |= _requests(pod)
    add_up(running, _quantities(pod.get("overhead") or {}))
    return running


def amounts(quantities: Quantities) -> dict[str, int]:
    """Return the quantities as integers, rounded up, without GPUs and without zeros."""
    return {
        name: number
        for name, each in sorted(quantities.items())
        if name not in GPU_RESOURCES and (number := ceil(each.amount * _PARTS.get(name, 1))) > 0
    }


def written(resource: str, amount: int) -> str:
    """Return an amount in the notation of Kubernetes: 1500m, 16Gi."""
    spelling = "binary" if is_bytes(resource) else "decimal"
    return str(q.Quantity(Fraction(amount, _PARTS.get(resource, 1)), spelling))


def in_units(resource: str, amount: int) -> str:
    """Return an amount for people, without the name of the resource: 1.5, 16 GiB."""
    if resource == CPU:
        return f"{amount / 1_000:g}"
    if is_bytes(resource):
        power = next((p for p in (40, 30, 20, 10) if amount >= 1 << p), 0)
        unit = {40: "TiB", 30: "GiB", 20: "MiB", 10: "KiB", 0: "bytes"}[power]
        return f"{amount / (1 << power):.4g} {unit}"
    return str(amount)


def noun(resource: str) -> str:
    """Return the words that follow an amount of the resource: CPUs, of memory, rdma/hca."""
    if resource == CPU:
        return "CPUs"
    return f"of {resource}" if is_bytes(resource) else resource


def is_bytes(resource: str) -> bool:
    return resource == MEMORY or resource.endswith("storage") or resource.startswith("hugepages-")


def _requests(container: Mapping[str, Any]) -> Quantities:
    """Return, for each resource, the request or else the limit, as Kubernetes defaults it."""
    return _quantities(_requests_or_limits(container))


def _requests_or_limits(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _quantities(given: Mapping[str, Any]) -> Quantities:
    """Parse quantities; leave out what is not one.

    Admission refuses such values; a log older than that rule may still have them.
    """
    parsed = {name: q.parse(text) for name, text in given.items()}
    return {name: amount for name, amount in parsed.items() if amount is not None}


def _larger(one: q.Quantity, other: q.Quantity) -> q.Quantity:
    return max(one, other, key=lambda each: each.amount)


def _sum(one: Quantities, other: Quantities) -> Quantities:
    total = dict(one)
    add_up(total, other)
    return total


def add_up(total: Quantities, more: Quantities) -> None:
    for name, amount in more.items():
        total[name] = total[name].plus(amount) if name in total else amount
