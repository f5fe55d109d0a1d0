"""Gangs that belong together: all of a group start in one pass, or none of them."""

from controlplane.devices import FreeDevices
from controlplane.job import AWAKE
from controlplane.scheduling.fitting import Fit, fit
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.quota_gate import QuotaGate
from controlplane.scheduling.snapshot import Snapshot


class Groups:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._members: dict[str, list[Gang]] | None = None

    def of(self, gang: Gang) -> tuple[list[Gang], str]:
        """The waiting gangs of its group in order, or the code of what is missing."""
        asks = gang.asks
        if asks.members_missing:
            return [], "gang_incomplete"
        decided = self._snapshot.decided
        waiting = self._waiting().get(asks.group, [])
        if len(waiting) + self._awake(asks.group) < asks.group_size:
            return [], "group_incomplete"
        return [member for member in waiting if member.id not in decided], ""

    def _waiting(self) -> dict[str, list[Gang]]:
        if self._members is None:
            self._members = {}
            snapshot = self._snapshot
            places = sorted(p for q in snapshot.queues for p in snapshot.line(q).order)
            for place in places:
                group = snapshot.job(place.job).spec.scheduling.group
                if group:
                    self._members.setdefault(group, []).append(snapshot.gang(place.job))
        return self._members

    def _awake(self, group: str) -> int:
        """Members that run already, as after a restart of one of them."""
        world = self._snapshot.world
        jobs = (world.jobs[i] for queue in world.holders.values() for i in queue)
        return sum(j.spec.scheduling.group == group and j.phase in AWAKE for j in jobs)

    def fit_all(
        self, members: list[Gang], gate: QuotaGate, free: FreeDevices
    ) -> list[tuple[Gang, Fit]] | None:
        """A place and quota of everything for every one of them beside the others, or None."""
        snapshot, view = self._snapshot, free.copy()
        found: list[tuple[Gang, Fit]] = []
        for gang in members:
            places = (
                None if gate.code(gang, flavor) else fit(snapshot.world, view, gang, flavor)
                for flavor in gate.flavors(gang)
            )
            place = next((place for place in places if place is not None), None)
            if place is None:
                break
            snapshot.hold(view, place)
            snapshot.fence_off(view, gang, place)
            snapshot.charge(gang, place.flavor)
            found.append((gang, place))
        for gang, place in reversed(found):
            snapshot.discharge(gang, place.flavor)
        return found if len(found) == len(members) else None
