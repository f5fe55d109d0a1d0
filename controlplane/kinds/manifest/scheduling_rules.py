"""Validation of the scheduling constraints of a job."""

from collections.abc import Iterator

from controlplane.model.spec import PLAIN_SCHEDULING, JobSpec, Role, Scheduling, TopologyAsk

WHOLE = 1_000
TEN_YEARS_S = 10 * 365 * 86_400
WHERE = "spec.scheduling"
_PACKINGS = ("", "pack", "spread", "pack_emptiest")

Problem = tuple[str, str]


def scheduling_problems(spec: JobSpec) -> list[Problem]:
    """Return the problems of a job's scheduling fields, as (field of the native form, message)."""
    problems: list[Problem] = []
    for role in spec.roles:
        if role.gpu_share or role.gpu_memory_mib or role.devices:
            problems += _role_problems(role)
    if spec.scheduling is not PLAIN_SCHEDULING:
        problems += _scheduling_problems(spec.scheduling)
    return problems


def _scheduling_problems(asks: Scheduling) -> list[Problem]:
    problems: list[Problem] = []
    if asks.packing not in _PACKINGS:
        message = f"{asks.packing!r} is not one of {', '.join(_PACKINGS[1:])}"
        problems.append((f"{WHERE}.packing", message))
    for name, seconds in (
        ("estimate_s", asks.estimate_s),
        ("checkpoint_every_s", asks.checkpoint_every_s),
        ("recovery_timeout_s", asks.recovery_timeout_s),
    ):
        if seconds is not None and not 0 <= seconds <= TEN_YEARS_S:
            problems.append((f"{WHERE}.{name}", f"{seconds} is not between 0 and {TEN_YEARS_S}"))
    near = asks.topology
    if near is not PLAIN_SCHEDULING.topology:
        problems += _topology_problems(near)
    if near.slice_size < 0 or asks.group_size < 0 or asks.members_missing < 0:
        problems.append((WHERE, "sizes are not negative"))
    return problems


def _topology_problems(near: TopologyAsk) -> Iterator[Problem]:
    where = "spec.scheduling.topology"
    if near.exclusive and not near.required:
        yield f"{where}.exclusive", "set `required` to the level that it needs for itself"
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
            yield f"{where}.node", "`devices` needs `node`: they are the devices of one node"
        if len(set(role.devices)) < len(role.devices) or min(role.devices) < 0:
            yield f"{where}.devices", "each is given once, counted from 0"
        if role.gpus and len(role.devices) != role.gpus:
            yield f"{where}.devices", f"{len(role.devices)} devices for {role.gpus} GPUs"
