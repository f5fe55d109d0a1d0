"""Gangs that belong together: all of a group start in one pass, or none of them."""

from collections.abc import Callable

from controlplane.devices import FreeDevices
from controlplane.job import AWAKE
from controlplane.scheduling.fitting import Fit, fit
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.snapshot import Snapshot


class Groups:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._members: dict[str, list[Gang]] | None = None
        # Gangs that were started with their group before their turn came.
        self.started: set[str] = set()

    def of(self, gang: Gang) -> tuple[list[Gang], str]:
        """The waiting gangs of its group in order, or the code of what is missing."""
        asks = gang.asks
        if asks.members_missing:
            return [], "gang_incomplete"
        members = self._waiting().get(asks.group, [])
        if len(members) + self._awake(asks.group) < asks.group_size:
            return [], "group_incomplete"
        return members, ""

    def _waiting(self) -> dict[str, list[Gang]]:
        if self._members is None:
            self._members = {}
            snapshot = self._snapshot
            places = sorted(p for q in snapshot.queues for p in snapshot.line(q).order)
            for place in places:
                group = snapshot.job(place[3]).spec.scheduling.group
                if group:
                    self._members.setdefault(group, []).append(snapshot.gang(place[3]))
        return self._members

    def _awake(self, group: str) -> int:
        """Members that run already, as after a restart of one of them."""
        world = self._snapshot.world
        jobs = (world.jobs[i] for queue in world.holders.values() for i in queue)
        return sum(j.spec.scheduling.group == group and j.phase in AWAKE for j in jobs)

    def fit_all(
        self, members: list[Gang], quota_code: Callable[[Gang, str], str], free: FreeDevices
    ) -> list[tuple[Gang, Fit]] | None:
        """A place for every one of them beside the others, or None."""
        snapshot, view = self._snapshot, free.copy()
        found: list[tuple[Gang, Fit]] = []
        charged: list[Gang] = []
        for gang in members:
            place = None if quota_code(gang, "") else fit(snapshot.world, view, gang)
            if place is None:
                break
            snapshot.hold(view, place)
            found.append((gang, place))
            if snapshot.has_quotas:
                snapshot.reserve_quota(gang.queue, gang.milli)
                charged.append(gang)
        for gang in charged:
            snapshot.free_quota(gang.queue, gang.milli)
        return found if len(found) == len(members) else None
