"""What may be wrong with what a job asks of the scheduler."""

from collections.abc import Iterator
from operator import attrgetter

from controlplane.model import PLAIN_SCHEDULING, JobSpec, Role, Scheduling, TopologyAsk

WHOLE = 1_000
TEN_YEARS_S = 10 * 365 * 86_400
_TIMES = ("estimate_s", "checkpoint_every_s", "recovery_timeout_s")
_times_of = attrgetter(*_TIMES)
_PACKINGS = ("", "pack", "spread", "pack_emptiest")

Problem = tuple[str, str]


def wish_problems(spec: JobSpec) -> list[Problem]:
    """As (field of the native form, what is wrong)."""
    found: list[Problem] = []
    for role in spec.roles:
        if role.gpu_share or role.gpu_memory_mib or role.devices:
            found += _role_problems(role)
    if spec.scheduling is not PLAIN_SCHEDULING:
        found += _scheduling_problems(spec.scheduling)
    return found


def _scheduling_problems(asks: Scheduling) -> Iterator[Problem]:
    where = "spec.scheduling"
    if asks.packing not in _PACKINGS:
        yield f"{where}.packing", f"{asks.packing!r} is not one of {', '.join(_PACKINGS[1:])}"
    for name, number in zip(_TIMES, _times_of(asks), strict=True):
        if number is not None and not 0 <= number <= TEN_YEARS_S:
            yield f"{where}.{name}", f"{number} is not between 0 and {TEN_YEARS_S}"
    near = asks.topology
    if near is not PLAIN_SCHEDULING.topology:
        yield from _topology_problems(near)
    if near.slice_size < 0 or asks.group_size < 0 or asks.members_missing < 0:
        yield where, "sizes are not negative"


def _topology_problems(near: TopologyAsk) -> Iterator[Problem]:
    where = "spec.scheduling.topology"
    if near.exclusive and not near.required:
        yield f"{where}.exclusive", "say in `required` what it wants for itself"
    if bool(near.slice_level) != bool(near.slice_size):
        yield where, "slice_level and slice_size go together"


def _role_problems(role: Role) -> Iterator[Problem]:
    where = f"spec.roles[{role.name}]"
    if role.gpu_share or role.gpu_memory_mib:
        if not 0 <= role.gpu_share < WHOLE:
            yield f"{where}.gpu_share", f"{role.gpu_share} is not between 1 and {WHOLE - 1}"
        if role.gpu_memory_mib < 0:
            yield f"{where}.gpu_memory_mib", f"{role.gpu_memory_mib} is negative"
        if role.gpus or (role.gpu_share and role.gpu_memory_mib):
            yield where, "give one of gpus, gpu_share and gpu_memory_mib"
    if role.devices:
        if not role.node:
            yield f"{where}.node", "devices are those of a node: say which"
        if len(set(role.devices)) < len(role.devices) or min(role.devices) < 0:
            yield f"{where}.devices", "each is given once, counted from 0"
        if role.gpus and len(role.devices) != role.gpus:
            yield f"{where}.devices", f"{len(role.devices)} devices for {role.gpus} GPUs"
