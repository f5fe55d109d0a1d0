"""Coscheduling groups: all gangs of a group start in one pass, or none of them."""

from controlplane.model.phases import AWAKE
from controlplane.model.reasons import WaitReason
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.placement.fit import Fit, fit
from controlplane.scheduling.quota.gate import QuotaGate
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.devices import FreeDevices


class Groups:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._members: dict[str, list[Gang]] | None = None

    def of(self, gang: Gang) -> tuple[list[Gang], WaitReason | None]:
        """The waiting gangs of a gang's group in order, or the reason why the group cannot start."""
        asks = gang.asks
        if asks.members_missing:
            return [], WaitReason.GANG_INCOMPLETE
        decided = self._snapshot.decided
        waiting = self._waiting().get(asks.group, [])
        if len(waiting) + self._running_members(asks.group) < asks.group_size:
            return [], WaitReason.GROUP_INCOMPLETE
        return [member for member in waiting if member.id not in decided], None

    def _waiting(self) -> dict[str, list[Gang]]:
        if self._members is None:
            self._members = {}
            snapshot = self._snapshot
            places = sorted(p for q in snapshot.queues for p in snapshot.queue_index(q).order)
            for place in places:
                group = snapshot.job(place.job).spec.scheduling.group
                if group:
                    self._members.setdefault(group, []).append(snapshot.gang(place.job))
        return self._members

    def _running_members(self, group: str) -> int:
        """How many members run already, as after a restart of one of them."""
        cluster = self._snapshot.cluster
        jobs = (cluster.jobs[i] for queue in cluster.holders.values() for i in queue)
        return sum(j.spec.scheduling.group == group and j.phase in AWAKE for j in jobs)

    def fit_all(
        self, members: list[Gang], gate: QuotaGate, free: FreeDevices
    ) -> list[tuple[Gang, Fit]] | None:
        """A place with quota for each gang, so that all fit at the same time; or None."""
        snapshot, view = self._snapshot, free.copy()
        fits: list[tuple[Gang, Fit]] = []
        for gang in members:
            places = (
                None if gate.code(gang, flavor) else fit(snapshot.cluster, view, gang, flavor)
                for flavor in gate.flavors(gang)
            )
            place = next((place for place in places if place is not None), None)
            if place is None:
                break
            snapshot.allocate(view, place)
            snapshot.close_domain(view, gang, place)
            snapshot.charge(gang, place.flavor)
            fits.append((gang, place))
        for gang, place in reversed(fits):
            snapshot.discharge(gang, place.flavor)
        return fits if len(fits) == len(members) else None
