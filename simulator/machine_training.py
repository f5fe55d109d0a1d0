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
from simulator.gangs import Gang, Key, Part, Place, Work
from simulator.topology import ClusterModel
from simulator.trainer import Progress, Trainer
from simulator.training.pace import Pace, Recipe
from simulator.virtual_time import VirtualTime

Trained = Callable[[Gang, tuple[Part, ...]], None]
# The share of the work that a checkpoint holds, by what the next attempt will ask for.
Saved = MutableMapping[Hashable, float]


class _Crew:
    """Gangs that train together, under the name of the first of them."""

    __slots__ = ("gangs", "key", "speeds", "timer", "work")

    def __init__(self, key: Key, work: Work) -> None:
        self.key = key
        self.work = work
        # Each with the GPUs of its ranks that train, by node.
        self.gangs: dict[Key, tuple[Gang, Counter[str]]] = {}
        # The speed of the devices that a gang shares, by node, if it shares any.
        self.speeds: dict[Key, Mapping[str, float]] = {}
        # How often the end was set; only the last timer counts.
        self.timer = 0

    @property
    def gpus(self) -> Counter[str]:
        total = Counter[str]()
        for _, gpus in self.gangs.values():
            total.update(gpus)
        return total


class Training:
    def __init__(
        self,
        env: VirtualTime,
        cluster: ClusterModel,
        trained: Trained,
        saved: Saved | None = None,
    ) -> None:
        self._agenda = env.agenda
        self._cluster = cluster
        self._trained = trained
        # Made when it is first needed: most studies have only given durations.
        self._made: Trainer | None = None
        # By gang, and by the name under which the trainer knows them.
        self._crews: dict[Key, _Crew] = {}
        self._named: dict[Key, _Crew] = {}
        self._by_resume: dict[Hashable, _Crew] = {}
        self.saved: Saved = {} if saved is None else saved
        # Seconds of work that had to be done again, by the same.
        self.lost_s: dict[Hashable, float] = {}

    @property
    def trainer(self) -> Trainer:
        if self._made is None:
            self._made = Trainer(self._cluster)
        return self._made

    def pace(self, key: Key) -> tuple[Pace, Recipe, float] | None:
        """The pace and recipe of a gang that trains, and how long its steps take now."""
        crew = self._crews.get(key)
        if crew is None:
            return None
        return self.trainer.pace(crew.key), crew.work.recipe, self.trainer.step_s(crew.key)

    def links(self) -> dict[str, tuple[float, float]]:
        """By link: the share in use, and the capacity in bytes a second."""
        fluid = self.trainer.fluid
        return {link: (fluid.used(link), fluid.capacity(link)) for link in fluid.links()}

    def begin(self, gang: Gang, part: Part, alive: Container[int]) -> bool:
        """Lets the gang of a part train; False if nothing is known of the hardware under it.

        All living ranks with work train together, whichever of them comes up first.
        """
        work = part.work
        assert work is not None
        if gang.key in self._crews:
            return True
        gpus = Counter[str]()
        for one in _training_parts(gang):
            for rank in one.ranks:
                if rank in alive:
                    gpus[gang.places[rank].node] += len(gang.places[rank].devices)
        if self.trainer.place(gpus) is None:
            return False
        crew = None if work.resume is None else self._by_resume.get(work.resume)
        if crew is None:
            self._form(gang, work, gpus, part.elapsed_s or 0.0)
        else:
            self._crews[gang.key] = crew
            crew.gangs[gang.key] = (gang, gpus)
            self._resize(crew)
        return True

    def _form(self, gang: Gang, work: Work, gpus: Counter[str], worked_s: float) -> None:
        key, now = gang.key, self._agenda.now
        crew = self._crews[key] = self._named[key] = _Crew(key, work)
        crew.gangs[key] = (gang, gpus)
        if work.resume is not None:
            self._by_resume[work.resume] = crew
        steps = work.steps * _growth(work, gpus.total())
        done = steps * self.saved.get(work.resume, 0.0)
        moved = self.trainer.begin(key, work.recipe, gpus, steps=steps, done=done, now=now)
        if worked_s:
            self.trainer.credit(key, worked_s, now)
        self._time(moved)

    def leave(self, key: Key, places: Iterable[Place]) -> None:
        """Ranks at these places are no more, and the others of their gang go on."""
        crew = self._crews.get(key)
        if crew is None:
            return
        _, gpus = crew.gangs[key]
        for place in places:
            gpus[place.node] -= len(place.devices)
        if gpus.total() > 0:
            self._resize(crew)
        else:
            self.end(key)

    def slow(self, key: Key, speeds: Mapping[str, float]) -> None:
        """A gang shares devices, which compute for it at this part of their speed, by node."""
        crew = self._crews.get(key)
        if crew is None or crew.speeds.get(key, {}) == speeds:
            return
        crew.speeds[key] = speeds
        self._slow(crew)

    def _slow(self, crew: _Crew) -> None:
        """Each node counts with the slowest of the devices that the crew has there."""
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
        if len(crew.gangs) > 1 and not whole:
            del self._crews[key]
            del crew.gangs[key]
            self._resize(crew)
            if crew.speeds.pop(key, None):
                self._slow(crew)
        else:
            self._give_up(crew, noticed_s)
        how = crew.work.recipe.checkpoint
        wrote = noticed_s > 0.0 and how is not None and noticed_s >= how.write_s
        return how.write_s if wrote and how is not None else 0.0

    def _give_up(self, crew: _Crew, noticed_s: float) -> None:
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
        self._time(self.trainer.resize(crew.key, crew.gpus, self._agenda.now))

    def _close(self, crew: _Crew, noticed_s: float) -> Progress:
        for key in crew.gangs:
            del self._crews[key]
        del self._named[crew.key]
        self._by_resume.pop(crew.work.resume, None)
        # Every timer that still runs is overtaken.
        crew.timer += 1
        progress, moved = self.trainer.end(crew.key, self._agenda.now, noticed_s=noticed_s)
        self._time(moved)
        return progress

    def _time(self, moved: Iterable[Key]) -> None:
        now = self._agenda.now
        for key in moved:
            crew = self._named[key]
            crew.timer += 1
            left_s = max(0.0, self.trainer.ends_at(key) - now)
            self._agenda.call_after(left_s, partial(self._ring, crew, crew.timer))

    def _ring(self, crew: _Crew, number: int) -> None:
        if crew.timer != number:
            return
        self._close(crew, 0.0)
        self.saved.pop(crew.work.resume, None)
        for gang, _gpus in crew.gangs.values():
            self._trained(gang, _training_parts(gang))


def _training_parts(gang: Gang) -> tuple[Part, ...]:
    return tuple(part for part in gang.parts if part.work is not None)


def _growth(work: Work, gpus: int) -> float:
    """How many steps of so many GPUs make one of all: each GPU has its own part of the samples."""
    fixed = work.recipe.global_batch > 0 or not work.gpus or not gpus
    return 1.0 if fixed else work.gpus / gpus
