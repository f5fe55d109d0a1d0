"""Whether a pass could decide anything, told by counting alone: on a busy cluster most could not."""

from controlplane.lines import Line
from controlplane.scheduling.gangs import gang_of
from controlplane.scheduling.snapshot import Snapshot
from controlplane.world import World


def may_decide(snapshot: Snapshot) -> bool:
    """False only if nobody who waits finds enough free devices, wherever they are.

    Whoever repairs, grows, takes what was promised to it, makes others give way or is told why it
    waits has more than that to hope for.
    """
    world = snapshot.world
    if world.growing or world.crippled or world.claimed or world.policy.records_reasons:
        return True
    if snapshot.evicts:
        return True
    room = world.free.total
    hopes = [_has_hope(world, line, room) for line in world.lines.values()]
    return True in hopes


def _has_hope(world: World, line: Line, room: int) -> bool:
    if not line.order:
        return False
    if line.skips or line.plans:
        for alike in line.by_shape.values():  # noqa: SIM110 - in the hot path
            if alike.gpus <= room or alike.elastic:
                return True
        return False
    head = gang_of(world, world.jobs[line.order[0].job])
    return head.gpus <= room or head.elastic is not None
