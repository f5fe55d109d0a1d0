"""The machine's gangs that train: the trainer's answers turned into timers.

Rates move ends; a timer that was set for an end that has moved since counts no more. What
checkpoints hold is kept from attempt to attempt, and what was lost is counted.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from functools import partial

import simpy
from simpy.events import Event, Timeout

from simulator.faults import FaultKind
from simulator.gangs import Gang, Key, Part, Work
from simulator.topology import ClusterModel
from simulator.trainer import Progress, Trainer
from simulator.training.pace import Pace, Recipe

Trained = Callable[[Gang, tuple[Part, ...]], None]


class Training:
    def __init__(self, env: simpy.Environment, cluster: ClusterModel, trained: Trained) -> None:
        self._env = env
        self._cluster = cluster
        self._trained = trained
        # Made when it is first needed: most studies have only given durations.
        self._made: Trainer | None = None
        self._going: dict[Key, tuple[Gang, Work]] = {}
        self._timers = Counter[Key]()
        # Steps that a checkpoint holds, by what the next attempt will ask for.
        self.saved: dict[Hashable, float] = {}
        # Seconds of work that had to be done again, by the same.
        self.lost_s: dict[Hashable, float] = {}

    @property
    def trainer(self) -> Trainer:
        if self._made is None:
            self._made = Trainer(self._cluster)
        return self._made

    def pace(self, key: Key) -> tuple[Pace, Recipe, float] | None:
        """The pace and recipe of a gang that trains, and how long its steps take now."""
        if self._made is None or key not in self._going:
            return None
        recipe = self._going[key][1].recipe
        return self._made.pace(key), recipe, self._made.step_s(key)

    def links(self) -> dict[str, tuple[float, float]]:
        """By link: the share in use, and the capacity in bytes a second."""
        fluid = self.trainer.fluid
        return {link: (fluid.used(link), fluid.capacity(link)) for link in fluid.links()}

    def begin(self, gang: Gang, part: Part) -> bool:
        """Lets the gang of a part train; False if nothing is known of the hardware under it.

        All ranks with work train together, whichever of them comes up first.
        """
        work = part.work
        assert work is not None
        if gang.key in self._going:
            return True
        gpus = Counter[str]()
        for one in _training_parts(gang):
            for rank in one.ranks:
                gpus[gang.places[rank].node] += len(gang.places[rank].devices)
        if self.trainer.place(gpus) is None:
            return False
        done = min(work.steps, self.saved.get(work.resume, 0.0))
        self._going[gang.key] = (gang, work)
        moved = self.trainer.begin(
            gang.key, work.recipe, gpus, steps=work.steps, done=done, now=self._env.now
        )
        if part.elapsed_s:
            self.trainer.credit(gang.key, part.elapsed_s, self._env.now)
        self._time(moved)
        return True

    def end(self, key: Key, *, noticed_s: float = 0.0) -> float:
        """A gang no longer trains, whatever became of it.

        With enough notice it writes one more checkpoint; how long that takes is returned.
        """
        if key not in self._going:
            return 0.0
        _, work = self._going[key]
        progress = self._close(key, noticed_s)
        if progress.done < work.steps:
            self.saved[work.resume] = progress.kept
            lost = self.lost_s.get(work.resume, 0.0)
            self.lost_s[work.resume] = lost + progress.lost_s
        how = work.recipe.checkpoint
        wrote = noticed_s > 0.0 and how is not None and noticed_s >= how.write_s
        return how.write_s if wrote and how is not None else 0.0

    def degrade(self, node: str, kind: FaultKind, factor: float, for_s: float | None) -> None:
        """A node that stays up goes slower, for a while or for good."""
        self._time(self.trainer.degrade(node, kind, factor, self._env.now))
        if for_s is not None:
            self._after(for_s, lambda _: self._recover(node, kind))

    def _recover(self, node: str, kind: FaultKind) -> None:
        self._time(self.trainer.degrade(node, kind, 1.0, self._env.now))

    def _close(self, key: Key, noticed_s: float) -> Progress:
        del self._going[key]
        del self._timers[key]
        progress, moved = self.trainer.end(key, self._env.now, noticed_s=noticed_s)
        self._time(moved)
        return progress

    def _time(self, moved: Iterable[Key]) -> None:
        now = self._env.now
        for key in moved:
            self._timers[key] += 1
            left_s = max(0.0, self.trainer.ends_at(key) - now)
            self._after(left_s, partial(self._ring, key, self._going[key][0], self._timers[key]))

    def _ring(self, key: Key, gang: Gang, number: int, _: Event) -> None:
        going = self._going.get(key)
        if going is None or going[0] is not gang or self._timers[key] != number:
            return
        self._close(key, 0.0)
        self.saved.pop(going[1].resume, None)
        self._trained(gang, _training_parts(gang))

    def _after(self, delay_s: float, call: Callable[[Event], None]) -> None:
        Timeout(self._env, delay_s).callbacks.append(call)


def _training_parts(gang: Gang) -> tuple[Part, ...]:
    return tuple(part for part in gang.parts if part.work is not None)
