"""Training gangs of the machine: timers for the ends that the trainer computes.

The end of a training moves when its rate changes; the timer of an earlier end is then void. The
progress in checkpoints is kept from attempt to attempt, and lost work is counted.

The gangs of one job train as one group. Ranks that come later join it, ranks that end leave it, and
its pace depends on the ranks that it has.
"""

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, MutableMapping
from functools import partial

from simulator.faults import FaultKind
from simulator.kernel.virtual_time import VirtualTime
from simulator.machine.gang import Duty, Gang, Guarded, Key, Part, Work, unguarded
from simulator.machine.trainer import Progress, Trainer
from simulator.network.topology import ClusterModel
from simulator.training.pace import Pace
from simulator.training.recipes import Recipe

Trained = Callable[[Gang, tuple[Part, ...]], None]
# The share of the work that a checkpoint holds, by `Work.resume`.
Saved = MutableMapping[Hashable, float]


class _Member:
    """A gang of a group, with the devices, servers and drivers of its living ranks."""

    __slots__ = ("drivers", "gang", "gpus", "servers")

    def __init__(self, gang: Gang, alive: Container[int]) -> None:
        self.gang = gang
        # By node: GPUs that compute (on CPUs, ranks), and ranks that serve parameters.
        self.gpus = Counter[str]()
        self.servers = Counter[str]()
        self.drivers = 0
        for part in _training_parts(gang):
            self.count(part, [rank for rank in part.ranks if rank in alive], 1)

    def count(self, part: Part, ranks: Iterable[int], sign: int) -> None:
        """Add (`sign` 1) or remove (-1) ranks of a part."""
        assert part.work is not None
        on_cpus = part.work.recipe.cpus is not None
        for rank in ranks:
            place = self.gang.places[rank]
            if Duty.COMPUTE in part.duty:
                self.gpus[place.node] += sign * (1 if on_cpus else len(place.devices))
            if Duty.SERVE_PARAMETERS in part.duty:
                self.servers[place.node] += sign
            if Duty.DRIVE in part.duty:
                self.drivers += sign


class _TrainingGroup:
    """Gangs that train together; the key is that of the first of them."""

    __slots__ = ("going", "key", "members", "speeds", "timer", "work")

    def __init__(self, key: Key, work: Work) -> None:
        self.key = key
        self.work = work
        self.members: dict[Key, _Member] = {}
        # Whether it trains now; it waits until its first driver is up.
        self.going = False
        # By gang that shares devices: the speed of these devices, by node.
        self.speeds: dict[Key, Mapping[str, float]] = {}
        # How often the end was scheduled; only the last timer is valid.
        self.timer = 0

    @property
    def gpus(self) -> Counter[str]:
        return _total(member.gpus for member in self.members.values())

    @property
    def servers(self) -> Counter[str]:
        return _total(member.servers for member in self.members.values())

    @property
    def can_go(self) -> bool:
        driven = not self.work.driven or any(one.drivers > 0 for one in self.members.values())
        return driven and any(one.gpus.total() > 0 for one in self.members.values())


def _total(counts: Iterable[Counter[str]]) -> Counter[str]:
    total = Counter[str]()
    for count in counts:
        total.update(count)
    return total


class Training:
    def __init__(
        self,
        env: VirtualTime,
        cluster: ClusterModel,
        trained: Trained,
        saved: Saved | None = None,
        guarded: Guarded = unguarded,
    ) -> None:
        self._env = env
        self._guarded = guarded
        self._cluster = cluster
        self._trained = trained
        # Created on first use: most studies have jobs of fixed duration only.
        self._made: Trainer | None = None
        # By gang, and by the key of the group, which the trainer uses.
        self._groups: dict[Key, _TrainingGroup] = {}
        self._named: dict[Key, _TrainingGroup] = {}
        self._by_resume: dict[Hashable, _TrainingGroup] = {}
        # Trainings on unknown hardware, which take their fixed duration instead.
        self._unknown: set[Hashable] = set()
        self.saved: Saved = {} if saved is None else saved
        # Seconds of work that were repeated, by the same key.
        self.lost_s: dict[Hashable, float] = {}

    @property
    def trainer(self) -> Trainer:
        if self._made is None:
            self._made = Trainer(self._cluster)
        return self._made

    def pace(self, key: Key) -> tuple[Pace, Recipe, float, int] | None:
        """Return pace, recipe, present step time and number of GPUs of a training gang; None for others."""
        group = self._groups.get(key)
        if group is None or not group.going:
            return None
        how, step_s = self.trainer.pace(group.key), self.trainer.step_s(group.key)
        return how, group.work.recipe, step_s, group.gpus.total()

    def links(self) -> dict[str, tuple[float, float]]:
        """Return the share in use and the capacity in bytes a second, by link."""
        fluid = self.trainer.fluid
        return {link: (fluid.used(link), fluid.capacity(link)) for link in fluid.links()}

    def begin(self, gang: Gang, part: Part, alive: Container[int]) -> bool:
        """Let the gang of a part train; return False if its hardware is unknown.

        All living ranks with work train together, whichever of them is up first. A driven training
        begins when a rank that drives it is up.
        """
        work = part.work
        assert work is not None
        if gang.key in self._groups:
            return True
        member = _Member(gang, alive)
        if member.gpus.total() > 0:
            known = self.trainer.place(member.gpus, cpus=work.recipe.cpus) is not None
            (self._unknown.discard if known else self._unknown.add)(work.resume)
        if work.resume in self._unknown:
            return False
        group = None if work.resume is None else self._by_resume.get(work.resume)
        if group is None:
            if not work.driven and not member.gpus.total():
                return False
            group = _TrainingGroup(gang.key, work)
            self._named[gang.key] = group
            if work.resume is not None:
                self._by_resume[work.resume] = group
        self._groups[gang.key] = group
        group.members[gang.key] = member
        self._adjust(group, worked_s=_worked_s(gang))
        return True

    def _adjust(
        self, group: _TrainingGroup, *, worked_s: float = 0.0, noticed_s: float = 0.0
    ) -> None:
        """Start, resize or halt the training of a group, according to its present members."""
        if group.going and group.can_go:
            self._resize(group)
        elif group.going:
            self._halt(group, noticed_s)
        elif group.can_go:
            self._go(group, worked_s)

    def _go(self, group: _TrainingGroup, worked_s: float) -> None:
        key, work, gpus, now = group.key, group.work, group.gpus, self._env.now
        group.going = True
        steps = work.steps * _growth(work, gpus.total())
        done = steps * self.saved.get(work.resume, 0.0)
        moved = self.trainer.begin(
            key, work.recipe, gpus, steps=steps, done=done, now=now, servers=group.servers
        )
        if worked_s:
            self.trainer.credit(key, worked_s, now)
        self._time(moved)
        if group.speeds:
            self._slow(group)

    def leave(self, key: Key, ranks: Iterable[int]) -> None:
        """Remove ranks of a gang; the others continue."""
        group = self._groups.get(key)
        if group is None:
            return
        member, gone = group.members[key], frozenset(ranks)
        changed = False
        for part in _training_parts(member.gang):
            left = [rank for rank in part.ranks if rank in gone]
            member.count(part, left, -1)
            changed = changed or bool(left)
        if changed:
            self._adjust(group)

    def slow(self, key: Key, speeds: Mapping[str, float]) -> None:
        """Set the fraction of their speed at which shared devices compute for a gang, by node."""
        group = self._groups.get(key)
        if group is None or group.speeds.get(key, {}) == speeds:
            return
        group.speeds[key] = speeds
        self._slow(group)

    def _slow(self, group: _TrainingGroup) -> None:
        """Apply the slowest speed among the devices of the group on each node."""
        if not group.going:
            return
        slowest: dict[str, float] = {}
        for speeds in group.speeds.values():
            for node, speed in speeds.items():
                slowest[node] = min(speed, slowest.get(node, 1.0))
        self._time(self.trainer.slow(group.key, slowest, self._env.now))

    def end(self, key: Key, *, noticed_s: float = 0.0, whole: bool = False) -> float:
        """End the training of a gang and, if `whole`, that of its group.

        With enough notice it writes one more checkpoint. Return the seconds that this takes, or 0.
        """
        group = self._groups.get(key)
        if group is None:
            return 0.0
        if len(group.members) > 1 and not whole:
            del self._groups[key]
            del group.members[key]
            self._adjust(group, noticed_s=noticed_s)
            if group.speeds.pop(key, None):
                self._slow(group)
        else:
            self._halt(group, noticed_s)
            self._disband(group)
        how = group.work.recipe.checkpoint
        wrote = noticed_s > 0.0 and how is not None and noticed_s >= how.write_s
        return how.write_s if wrote and how is not None else 0.0

    def _halt(self, group: _TrainingGroup, noticed_s: float) -> None:
        """Halt the training; it will continue from its last checkpoint."""
        if not group.going:
            return
        progress, resume = self._close(group, noticed_s), group.work.resume
        if progress.done < progress.steps:
            self.saved[resume] = progress.kept / progress.steps
            self.lost_s[resume] = self.lost_s.get(resume, 0.0) + progress.lost_s

    def degrade(self, node: str, kind: FaultKind, factor: float, for_s: float | None) -> None:
        """Slow a node down that stays up, for `for_s` or, if that is None, for good."""
        self._time(self.trainer.degrade(node, kind, factor, self._env.now))
        if for_s is not None:
            self._env.call_after(for_s, lambda: self._recover(node, kind))

    def _recover(self, node: str, kind: FaultKind) -> None:
        self._time(self.trainer.degrade(node, kind, 1.0, self._env.now))

    def _resize(self, group: _TrainingGroup) -> None:
        now = self._env.now
        self._time(self.trainer.resize(group.key, group.gpus, now, group.servers))

    def _close(self, group: _TrainingGroup, noticed_s: float) -> Progress:
        group.going = False
        # Pending timers become void.
        group.timer += 1
        progress, moved = self.trainer.end(group.key, self._env.now, noticed_s=noticed_s)
        self._time(moved)
        return progress

    def _disband(self, group: _TrainingGroup) -> None:
        for key in group.members:
            del self._groups[key]
        del self._named[group.key]
        self._by_resume.pop(group.work.resume, None)

    def discard(self, key: Key) -> None:
        """End the training of a gang, whatever its state; an error on the way is ignored."""
        try:
            self.end(key, whole=True)
        except Exception:  # noqa: BLE001 - the gang is discarded because of it
            group = self._groups.get(key)
            if group is not None:
                group.going = False
                group.timer += 1
                self._disband(group)

    def _time(self, moved: Iterable[Key]) -> None:
        now = self._env.now
        for key in moved:
            group = self._named[key]
            group.timer += 1
            left_s = max(0.0, self.trainer.ends_at(key) - now)
            ring = partial(self._ring, group, group.timer)
            self._env.call_after(left_s, partial(self._guarded, group.key, ring))

    def _ring(self, group: _TrainingGroup, number: int) -> None:
        if group.timer != number:
            return
        self._close(group, 0.0)
        self._disband(group)
        self.saved.pop(group.work.resume, None)
        for member in group.members.values():
            ending = [part for part in _training_parts(member.gang) if part.run_s is not None]
            if ending:
                self._trained(member.gang, tuple(ending))


def _training_parts(gang: Gang) -> tuple[Part, ...]:
    return tuple(part for part in gang.parts if part.work is not None)


def _worked_s(gang: Gang) -> float:
    """Return the seconds that the computing or driving ranks have worked already."""
    busy = [part for part in _training_parts(gang) if part.duty & (Duty.COMPUTE | Duty.DRIVE)]
    return max((part.elapsed_s or 0.0 for part in busy), default=0.0)


def _growth(work: Work, gpus: int) -> float:
    """Return how many steps on `gpus` GPUs process the samples of one step of the full gang."""
    fixed = work.recipe.global_batch > 0 or not work.gpus or not gpus
    return 1.0 if fixed else work.gpus / gpus
