"""EASY and conservative back-fill as plainly as they can be written, to be compared with.

Every job behind the head is considered in order. What is free besides the plans is computed again for
each, device by device, from who runs and who was planned; nothing is kept and nothing is skipped.
"""

from controlplane.model.phases import WITH_DEVICES
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.decisions import Start
from controlplane.scheduling.placement.fit import Fit, fit
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.devices import FreeDevices, mask_of
from controlplane.state.run_lengths import ends_when_overdue
from controlplane.state.world import World

Plan = tuple[float, float, Fit]  # from, to, where


class SlowBackfill:
    """One queue without quotas, on plain gangs."""

    def __init__(self, world: World, queue: str = "default") -> None:
        self.world, self.queue, self.now = world, queue, world.at
        self.free = world.devices.free.copy()
        self.plans: list[Plan] = []
        self.ends: list[tuple[float, Fit]] = []
        for job_id in world.devices.holders.get(queue, ()):
            job = world.jobs[job_id]
            length = self.length(job_id)
            ends_at = job.attempt.placed_at + length
            if ends_at <= self.now and job_id not in world.devices.stopping:
                ends_at = ends_when_overdue(job, length, self.now)
            held = [
                slot
                for slot, rank in zip(job.attempt.placement, job.attempt.ranks, strict=True)
                if rank.state in WITH_DEVICES
            ]
            self.ends.append((max(ends_at, self.now), Fit(tuple(held))))

    def length(self, job_id: str) -> float:
        return self.world.estimate(self.world.jobs[job_id]).planned_s

    def starts(self) -> list[str]:
        discipline = self.world.discipline(self.queue)
        everyone = discipline.plans_all
        started, blocked = [], False
        for place in self.world.waiting.queues[self.queue].order:
            gang = Snapshot(self.world).gang(place[3])
            runs_s = self.length(gang.id)
            placed = fit(ClusterView(self.world), self.free_with_plans(self.now + runs_s), gang)
            if placed is not None:
                started.append(gang.id)
                self.take(self.free, placed)
                self.ends.append((self.now + runs_s, placed))
                continue
            planned_max = self.world.policy.planned_max if everyone else 1
            if len(self.plans) < planned_max and (everyone or not blocked):
                self.plan(gang, runs_s, first=not self.plans)
            blocked = True
        return started

    def plan(self, gang, runs_s: float, *, first: bool) -> None:
        instants = {self.now, *(at for at, _ in self.ends)}
        instants |= {at for plan in self.plans for at in plan[:2]}
        for at in sorted(instants):
            placed = fit(ClusterView(self.world), self.within(at, at + runs_s), gang)
            if placed is not None:
                placed = self.rather_late(placed, at) if first else placed
                self.plans.append((at, at + runs_s, placed))
                return

    def rather_late(self, placed: Fit, at: float) -> Fit:
        """On the same nodes, the devices that are not free yet, as far as there are any."""
        view, slots, taken = self.at(at), [], {}
        for slot in placed.placement:
            ordinal = self.world.nodes[slot.node].ordinal
            gone = taken.setdefault(ordinal, set())
            there = [d for d in range(64) if view.masks[ordinal] >> d & 1 and d not in gone]
            there.sort(key=lambda d: (self.free.masks[ordinal] >> d & 1, d))
            chosen = tuple(sorted(there[: len(slot.devices)]))
            gone |= set(chosen)
            slots.append(type(slot)(slot.node, chosen))
        return Fit(tuple(slots))

    def at(self, when: float) -> FreeDevices:
        """What is free at a time to come."""
        view = self.free.copy()
        for ends_at, placed in self.ends:
            if ends_at <= when:
                self.give(view, placed)
        for starts_at, ends_at, placed in self.plans:
            if starts_at <= when < ends_at:
                self.take(view, placed)
        return view

    def free_with_plans(self, until: float) -> FreeDevices:
        """What is free now, truly, and not needed for a plan before then."""
        view = self.free.copy()
        for starts_at, _, placed in self.plans:
            if starts_at < until:
                self.take(view, placed)
        return view

    def within(self, first: float, last: float) -> FreeDevices:
        """What is free at one time and at every other before another."""
        view = self.at(first)
        for starts_at, _, placed in self.plans:
            if first < starts_at < last:
                self.take(view, placed)
        return view

    def take(self, view: FreeDevices, placed: Fit) -> None:
        for slot in placed.placement:
            ordinal = self.world.nodes[slot.node].ordinal
            view.allocate(ordinal, mask_of(slot.devices) & view.masks[ordinal])

    def give(self, view: FreeDevices, placed: Fit) -> None:
        for slot in placed.placement:
            view.release(self.world.nodes[slot.node].ordinal, mask_of(slot.devices))


def started(decisions) -> list[str]:
    return [d.job for d in decisions if isinstance(d, Start)]
