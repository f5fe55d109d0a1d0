"""The machine's gangs that train: the trainer's answers turned into timers.

Rates move ends; a timer that was set for an end that has moved since counts no more. What
checkpoints hold is kept from attempt to attempt, and what was lost is counted.

Gangs of one job train as one crew: ranks that come later join it, ranks that leave go, and the pace
is that of whoever is there.
"""

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, MutableMapping
from functools import partial

from simulator.faults import FaultKind
from simulator.gangs import Duty, Gang, Guarded, Key, Part, Work, unguarded
from simulator.topology import ClusterModel
from simulator.trainer import Progress, Trainer
from simulator.training.pace import Pace
from simulator.training.recipes import Recipe
from simulator.virtual_time import VirtualTime

Trained = Callable[[Gang, tuple[Part, ...]], None]
# The share of the work that a checkpoint holds, by what the next attempt will ask for.
Saved = MutableMapping[Hashable, float]


class _Member:
    """A gang of a crew, with what its living ranks bring to the training."""

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
        """Takes ranks of a part in (sign 1) or out (-1)."""
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


class _Crew:
    """Gangs that train together, under the name of the first of them."""

    __slots__ = ("going", "key", "members", "speeds", "timer", "work")

    def __init__(self, key: Key, work: Work) -> None:
        self.key = key
        self.work = work
        self.members: dict[Key, _Member] = {}
        # Whether it trains now; before its first driver is there, it waits.
        self.going = False
        # The speed of the devices that a gang shares, by node, if it shares any.
        self.speeds: dict[Key, Mapping[str, float]] = {}
        # How often the end was set; only the last timer counts.
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
        self._agenda = env.agenda
        self._guarded = guarded
        self._cluster = cluster
        self._trained = trained
        # Made when it is first needed: most studies have only given durations.
        self._made: Trainer | None = None
        # By gang, and by the name under which the trainer knows them.
        self._crews: dict[Key, _Crew] = {}
        self._named: dict[Key, _Crew] = {}
        self._by_resume: dict[Hashable, _Crew] = {}
        # Trainings on hardware of which nothing is known; they take a given time instead.
        self._unknown: set[Hashable] = set()
        self.saved: Saved = {} if saved is None else saved
        # Seconds of work that had to be done again, by the same.
        self.lost_s: dict[Hashable, float] = {}

    @property
    def trainer(self) -> Trainer:
        if self._made is None:
            self._made = Trainer(self._cluster)
        return self._made

    def pace(self, key: Key) -> tuple[Pace, Recipe, float, int] | None:
        """The pace and recipe of a gang that trains, how long its steps take now, and on how many GPUs."""
        crew = self._crews.get(key)
        if crew is None or not crew.going:
            return None
        how, step_s = self.trainer.pace(crew.key), self.trainer.step_s(crew.key)
        return how, crew.work.recipe, step_s, crew.gpus.total()

    def links(self) -> dict[str, tuple[float, float]]:
        """By link: the share in use, and the capacity in bytes a second."""
        fluid = self.trainer.fluid
        return {link: (fluid.used(link), fluid.capacity(link)) for link in fluid.links()}

    def begin(self, gang: Gang, part: Part, alive: Container[int]) -> bool:
        """Lets the gang of a part train; False if nothing is known of the hardware under it.

        All living ranks with work train together, whichever of them comes up first. A training that
        is driven begins when one is there that drives it.
        """
        work = part.work
        assert work is not None
        if gang.key in self._crews:
            return True
        member = _Member(gang, alive)
        if member.gpus.total() > 0:
            known = self.trainer.place(member.gpus, cpus=work.recipe.cpus) is not None
            (self._unknown.discard if known else self._unknown.add)(work.resume)
        if work.resume in self._unknown:
            return False
        crew = None if work.resume is None else self._by_resume.get(work.resume)
        if crew is None:
            if not work.driven and not member.gpus.total():
                return False
            crew = _Crew(gang.key, work)
            self._named[gang.key] = crew
            if work.resume is not None:
                self._by_resume[work.resume] = crew
        self._crews[gang.key] = crew
        crew.members[gang.key] = member
        self._adjust(crew, worked_s=_worked_s(gang))
        return True

    def _adjust(self, crew: _Crew, *, worked_s: float = 0.0, noticed_s: float = 0.0) -> None:
        """Starts, resizes or halts a crew's training, as its members allow it now."""
        if crew.going and crew.can_go:
            self._resize(crew)
        elif crew.going:
            self._halt(crew, noticed_s)
        elif crew.can_go:
            self._go(crew, worked_s)

    def _go(self, crew: _Crew, worked_s: float) -> None:
        key, work, gpus, now = crew.key, crew.work, crew.gpus, self._agenda.now
        crew.going = True
        steps = work.steps * _growth(work, gpus.total())
        done = steps * self.saved.get(work.resume, 0.0)
        moved = self.trainer.begin(
            key, work.recipe, gpus, steps=steps, done=done, now=now, servers=crew.servers
        )
        if worked_s:
            self.trainer.credit(key, worked_s, now)
        self._time(moved)
        if crew.speeds:
            self._slow(crew)

    def leave(self, key: Key, ranks: Iterable[int]) -> None:
        """These ranks are no more, and the others of their gang go on."""
        crew = self._crews.get(key)
        if crew is None:
            return
        member, gone = crew.members[key], frozenset(ranks)
        changed = False
        for part in _training_parts(member.gang):
            left = [rank for rank in part.ranks if rank in gone]
            member.count(part, left, -1)
            changed = changed or bool(left)
        if changed:
            self._adjust(crew)

    def slow(self, key: Key, speeds: Mapping[str, float]) -> None:
        """A gang shares devices, which compute for it at this part of their speed, by node."""
        crew = self._crews.get(key)
        if crew is None or crew.speeds.get(key, {}) == speeds:
            return
        crew.speeds[key] = speeds
        self._slow(crew)

    def _slow(self, crew: _Crew) -> None:
        """Each node counts with the slowest of the devices that the crew has there."""
        if not crew.going:
            return
        slowest: dict[str, float] = {}
        for speeds in crew.speeds.values():
            for node, speed in speeds.items():
                slowest[node] = min(speed, slowest.get(node, 1.0))
        self._time(self.trainer.slow(crew.key, slowest, self._agenda.now))

    def end(self, key: Key, *, noticed_s: float = 0.0, whole: bool = False) -> float:
        """A gang no longer trains, whatever became of it; nor do the `whole` crew's others.

        With enough notice it writes one more checkpoint; how long that takes is returned.
        """
        crew = self._crews.get(key)
        if crew is None:
            return 0.0
        if len(crew.members) > 1 and not whole:
            del self._crews[key]
            del crew.members[key]
            self._adjust(crew, noticed_s=noticed_s)
            if crew.speeds.pop(key, None):
                self._slow(crew)
        else:
            self._halt(crew, noticed_s)
            self._disband(crew)
        how = crew.work.recipe.checkpoint
        wrote = noticed_s > 0.0 and how is not None and noticed_s >= how.write_s
        return how.write_s if wrote and how is not None else 0.0

    def _halt(self, crew: _Crew, noticed_s: float) -> None:
        """It trains no longer; the next time it goes on at its last checkpoint."""
        if not crew.going:
            return
        progress, resume = self._close(crew, noticed_s), crew.work.resume
        if progress.done < progress.steps:
            self.saved[resume] = progress.kept / progress.steps
            self.lost_s[resume] = self.lost_s.get(resume, 0.0) + progress.lost_s

    def degrade(self, node: str, kind: FaultKind, factor: float, for_s: float | None) -> None:
        """A node that stays up goes slower, for a while or for good."""
        self._time(self.trainer.degrade(node, kind, factor, self._agenda.now))
        if for_s is not None:
            self._agenda.call_after(for_s, lambda: self._recover(node, kind))

    def _recover(self, node: str, kind: FaultKind) -> None:
        self._time(self.trainer.degrade(node, kind, 1.0, self._agenda.now))

    def _resize(self, crew: _Crew) -> None:
        now = self._agenda.now
        self._time(self.trainer.resize(crew.key, crew.gpus, now, crew.servers))

    def _close(self, crew: _Crew, noticed_s: float) -> Progress:
        crew.going = False
        # Every timer that still runs is overtaken.
        crew.timer += 1
        progress, moved = self.trainer.end(crew.key, self._agenda.now, noticed_s=noticed_s)
        self._time(moved)
        return progress

    def _disband(self, crew: _Crew) -> None:
        for key in crew.members:
            del self._crews[key]
        del self._named[crew.key]
        self._by_resume.pop(crew.work.resume, None)

    def discard(self, key: Key) -> None:
        """A gang trains no longer, and whatever raises on the way out does not matter."""
        try:
            self.end(key, whole=True)
        except Exception:  # noqa: BLE001 - it is what the gang is discarded for
            crew = self._crews.get(key)
            if crew is not None:
                crew.going = False
                crew.timer += 1
                self._disband(crew)

    def _time(self, moved: Iterable[Key]) -> None:
        now = self._agenda.now
        for key in moved:
            crew = self._named[key]
            crew.timer += 1
            left_s = max(0.0, self.trainer.ends_at(key) - now)
            ring = partial(self._ring, crew, crew.timer)
            self._agenda.call_after(left_s, partial(self._guarded, crew.key, ring))

    def _ring(self, crew: _Crew, number: int) -> None:
        if crew.timer != number:
            return
        self._close(crew, 0.0)
        self._disband(crew)
        self.saved.pop(crew.work.resume, None)
        for member in crew.members.values():
            ending = [part for part in _training_parts(member.gang) if part.run_s is not None]
            if ending:
                self._trained(member.gang, tuple(ending))


def _training_parts(gang: Gang) -> tuple[Part, ...]:
    return tuple(part for part in gang.parts if part.work is not None)


def _worked_s(gang: Gang) -> float:
    """How long the ranks that compute or drive have worked already."""
    busy = [part for part in _training_parts(gang) if part.duty & (Duty.COMPUTE | Duty.DRIVE)]
    return max((part.elapsed_s or 0.0 for part in busy), default=0.0)


def _growth(work: Work, gpus: int) -> float:
    """How many steps of so many GPUs make one of all: each GPU has its own part of the samples."""
    fixed = work.recipe.global_batch > 0 or not work.gpus or not gpus
    return 1.0 if fixed else work.gpus / gpus
