"""What ranks request of their nodes beside GPUs, counted as Kubernetes counts it.

An amount is a whole number: thousandths of cores of `cpu`, and units of everything else (bytes of
`memory`, devices of `rdma/hca`). GPUs are counted elsewhere, device by device.
"""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Any

import msgspec

from controlplane import quantities as q
from controlplane.job_life import grows
from controlplane.model import JobSpec, Role
from controlplane.supplies import NO_SUPPLIES, Supplies

CPU = "cpu"
MEMORY = "memory"
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
# Where a manifest of a kind that has no field for them says what supplies it wants.
SUPPLIES_ANNOTATION = "muster.dev/supplies"
# The only resource of which Kubernetes gives parts.
_PARTS = {CPU: 1_000}

# Resource -> amount, without those of which there is nothing.
Amounts = Mapping[str, int]
Quantities = dict[str, q.Quantity]

NO_AMOUNTS: Amounts = {}


def requests_of(spec: JobSpec) -> tuple[Amounts, ...]:
    """What one rank of each role requests; nothing at all if that is nothing for every role."""
    if says_nothing(spec):
        return ()
    supplies = supplies_of(spec)
    found = tuple(amounts(role_requests(role, supplies)) for role in spec.roles)
    return found if any(found) else ()


def says_nothing(spec: JobSpec) -> bool:
    """Whether there is nothing that could request something: quick, and mostly so when simulated."""
    if spec.supplies is not NO_SUPPLIES or spec.annotations:
        return False
    for role in spec.roles:  # noqa: SIM110 - this is the hot form of it
        if role.template:
            return False
    return True


def of_rank(spec: JobSpec, requests: tuple[Amounts, ...], rank: int, ranks: int) -> Amounts:
    """What a rank of an attempt of so many requests, by what each role does.

    An attempt that has another size than the spec is of an elastic gang, whose surplus ranks are of
    the last role; or the job was scaled since and the attempt is being stopped. Then nobody knows any
    more whose rank is whose, so each is counted with the most that any could have.
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
    """The same for every rank of a gang; nothing if nobody requests anything."""
    if not requests:
        return ()
    pairs = zip(spec.roles, requests, strict=True)
    return tuple([amounts for role, amounts in pairs for _ in range(role.replicas)])


def supplies_of(spec: JobSpec) -> Supplies:
    """What the job asks for; an annotation counts where the form has no field for it."""
    if spec.supplies != NO_SUPPLIES:
        return spec.supplies
    told = spec.annotations.get(SUPPLIES_ANNOTATION)
    if told is None:
        return NO_SUPPLIES
    try:
        return msgspec.json.decode(told, type=Supplies)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        # It was refused when it was submitted, unless the log is older than the rule.
        return NO_SUPPLIES


# ------------------------------------------------------------------ one pod


def role_requests(role: Role, supplies: Supplies) -> Quantities:
    """What a pod of the role requests with what the job's supplies add to it."""
    if not supplies.resources:
        return pod_requests(role.template) if role.template else {}
    pod = role.template.get("spec") or {}
    containers = pod.get("containers") or [{}]
    names = [each.get("name") for each in containers]
    speaker = names.index(role.container) if role.container in names else 0
    # They are the speaker's, as far as it says nothing of them itself.
    said = {**supplies.resources, **_said(containers[speaker])}
    more = {**containers[speaker], "resources": {"requests": said}}
    supplied = [*containers[:speaker], more, *containers[speaker + 1 :]]
    return pod_requests({"spec": {**pod, "containers": supplied}})


def pod_requests(template: Mapping[str, Any]) -> Quantities:
    """What Kubernetes counts for one pod, or for one of a template.

    The sum of its containers and sidecars, or what one of its init containers needs while it runs
    if that is more; what the pod says for all of them together, instead; and its overhead.
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


def amounts(found: Quantities) -> dict[str, int]:
    """As whole numbers, rounded up, and without GPUs."""
    return {
        name: number
        for name, each in sorted(found.items())
        if name not in GPU_RESOURCES and (number := ceil(each.amount * _PARTS.get(name, 1))) > 0
    }


def written(resource: str, amount: int) -> str:
    """An amount as Kubernetes writes it: 1500m, 16Gi."""
    spelling = "binary" if is_bytes(resource) else "decimal"
    return str(q.Quantity(Fraction(amount, _PARTS.get(resource, 1)), spelling))


def told(resource: str, amount: int) -> str:
    """The same for people, without what it is of: 1.5, 16 GiB."""
    if resource == CPU:
        return f"{amount / 1_000:g}"
    if is_bytes(resource):
        power = next((p for p in (40, 30, 20, 10) if amount >= 1 << p), 0)
        unit = {40: "TiB", 30: "GiB", 20: "MiB", 10: "KiB", 0: "bytes"}[power]
        return f"{amount / (1 << power):.4g} {unit}"
    return str(amount)


def noun(resource: str) -> str:
    """What stands behind a number of it: CPUs, of memory, rdma/hca."""
    if resource == CPU:
        return "CPUs"
    return f"of {resource}" if is_bytes(resource) else resource


def is_bytes(resource: str) -> bool:
    return resource == MEMORY or resource.endswith("storage") or resource.startswith("hugepages-")


def _requests(container: Mapping[str, Any]) -> Quantities:
    """Resource by resource: what is requested, or else the limit."""
    return _quantities(_said(container))


def _said(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _quantities(given: Mapping[str, Any]) -> Quantities:
    """What is no amount counts as nothing: it is refused at the door, but logs may be older."""
    found = {name: q.parse(text) for name, text in given.items()}
    return {name: amount for name, amount in found.items() if amount is not None}


def _larger(one: q.Quantity, other: q.Quantity) -> q.Quantity:
    return max(one, other, key=lambda each: each.amount)


def _sum(one: Quantities, other: Quantities) -> Quantities:
    total = dict(one)
    add_up(total, other)
    return total


def add_up(total: Quantities, more: Quantities) -> None:
    for name, amount in more.items():
        total[name] = total[name].plus(amount) if name in total else amount
