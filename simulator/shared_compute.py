"""Work on shared devices: every rank goes as fast as its neighbours on the device allow.

`time_slicing.py` says how fast; here the ends of the work follow. Whenever a rank begins or ends, the
gangs on its device are given their new speed: one that trains computes more slowly or faster (its
exchange and its input do not), and work of a given duration ends later or earlier. A gang whose
ranks work together goes at the speed of the slowest of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from simulator.agenda import Agenda
from simulator.books import Run, Timed
from simulator.gangs import Gang, Guarded, Key, Part, unguarded
from simulator.machine_training import Training
from simulator.time_slicing import WHOLE, Ask, Device, Holder, TimeSlicing


class SharedCompute:
    """`runs` are the machine's; `finish` ends the parts of a run whose time has come."""

    def __init__(
        self,
        agenda: Agenda,
        runs: Mapping[Key, Run],
        training: Training,
        finish: Callable[[Run, Sequence[Part]], None],
        guarded: Guarded = unguarded,
    ) -> None:
        self._guarded = guarded
        self._agenda = agenda
        self._runs = runs
        self._training = training
        self._finish = finish
        self._slicing = TimeSlicing()

    def begin(self, run: Run, parts: Iterable[Part], ends: Mapping[float, Sequence[Part]]) -> None:
        """Let parts of a run compute; `ends` has those of given duration, by what is left of it."""
        gang, now = run.gang, self._agenda.now
        if gang.together:
            self.forget(run)
        for left_s, alike in ends.items():
            groups = [alike] if gang.together else _one_by_one(alike)
            run.timed += [Timed(group, left_s, now) for group in groups]
        trains = self._training.pace(gang.key) is not None
        changed: dict[Device, None] = {}
        for part in parts:
            for rank in part.ranks:
                share = gang.share(rank)
                if share and rank in run.alive:
                    usable = WHOLE if trains and part.work is not None else share
                    device = _device(gang, rank)
                    self._slicing.enter(device, Holder(gang.key, rank), Ask(share, usable))
                    changed[device] = None
        self._adjust(run, changed)

    def forget(self, run: Run) -> None:
        """Cancel the ends that were set for a run: it begins again, or stops."""
        for timed in run.timed:
            timed.timer += 1
        run.timed = []

    def release(self, run: Run, ranks: Iterable[int]) -> None:
        """Ranks are no more; those that computed on the same devices go on with what is left."""
        gang = run.gang
        changed: dict[Device, None] = {}
        for rank in ranks:
            if gang.share(rank):
                device = _device(gang, rank)
                if self._slicing.leave(device, Holder(gang.key, rank)):
                    changed[device] = None
        self._adjust(run, changed)

    def speed(self, holder: Holder, device: Device) -> float:
        """The part of its own speed at which a rank computes now."""
        return self._slicing.speed(device, holder)

    def _adjust(self, run: Run, devices: Iterable[Device]) -> None:
        keys = dict.fromkeys([run.gang.key])
        for device in devices:
            keys.update(dict.fromkeys(holder.gang for holder in self._slicing.holders(device)))
        for key in keys:
            neighbour = self._runs.get(key)
            if neighbour is not None:
                self._set_speeds(neighbour)

    def _set_speeds(self, run: Run) -> None:
        gang = run.gang
        speeds = {
            rank: self._slicing.speed(_device(gang, rank), Holder(gang.key, rank))
            for rank in sorted(run.alive)
            if gang.share(rank)
        }
        self._slow_training(gang, speeds)
        slowest = min(speeds.values(), default=1.0)
        for timed in run.timed:
            speed = slowest if gang.together else speeds.get(timed.parts[0].ranks[0], 1.0)
            if speed != timed.speed or not timed.timer:
                timed.pass_time(self._agenda.now, speed)
                timed.timer += 1
                ring = partial(self._ring, run, timed, timed.timer)
                guarded = partial(self._guarded, gang.key, ring)
                self._agenda.call_after(timed.left_s / speed, guarded)

    def _slow_training(self, gang: Gang, speeds: Mapping[int, float]) -> None:
        by_node: dict[str, float] = {}
        for rank, speed in speeds.items():
            node = gang.places[rank].node
            by_node[node] = min(speed, by_node.get(node, 1.0))
        self._training.slow(gang.key, by_node)

    def _ring(self, run: Run, timed: Timed, number: int) -> None:
        if timed.timer == number and timed in run.timed:
            run.timed.remove(timed)
            self._finish(run, timed.parts)


def _device(gang: Gang, rank: int) -> Device:
    place = gang.places[rank]
    return Device(place.node, place.devices[0])


def _one_by_one(parts: Iterable[Part]) -> list[list[Part]]:
    return [[part._replace(ranks=(rank,))] for part in parts for rank in part.ranks]
