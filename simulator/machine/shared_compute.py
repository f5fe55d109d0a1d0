"""Work on shared devices: each rank computes as fast as the other ranks on its device allow.

`time_slicing.py` computes the speeds; this module moves the ends of the work accordingly. Whenever
a rank begins or ends, the gangs on its device get new speeds: a training gang computes more slowly
or faster (its exchange and its input do not change), and work of a fixed duration ends later or
earlier. A gang whose ranks work together runs at the speed of its slowest rank.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from simulator.kernel.virtual_time import VirtualTime
from simulator.machine.device_ledger import GangRun, Timed
from simulator.machine.gang import Gang, Guarded, Key, Part, unguarded
from simulator.machine.gang_training import Training
from simulator.machine.time_slicing import WHOLE, Ask, Device, Owner, TimeSlicing


class SharedCompute:
    """Speeds and ends of all work on shared devices.

    `runs` are those of the machine; `finish` ends the parts of a run whose time has come.
    """

    def __init__(
        self,
        env: VirtualTime,
        runs: Mapping[Key, GangRun],
        training: Training,
        finish: Callable[[GangRun, Sequence[Part]], None],
        guarded: Guarded = unguarded,
    ) -> None:
        self._guarded = guarded
        self._env = env
        self._runs = runs
        self._training = training
        self._finish = finish
        self._slicing = TimeSlicing()

    def begin(
        self, run: GangRun, parts: Iterable[Part], ends: Mapping[float, Sequence[Part]]
    ) -> None:
        """Start the computation of parts of a run.

        `ends` has the parts of fixed duration by their remaining seconds.
        """
        gang, now = run.gang, self._env.now
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
                    self._slicing.enter(device, Owner(gang.key, rank), Ask(share, usable))
                    changed[device] = None
        self._adjust(run, changed)

    def forget(self, run: GangRun) -> None:
        """Cancel the pending ends of a run, which begins again or stops."""
        for timed in run.timed:
            timed.timer += 1
        run.timed = []

    def release(self, run: GangRun, ranks: Iterable[int]) -> None:
        """Remove ranks that have ended, and speed up the ranks on the same devices."""
        gang = run.gang
        changed: dict[Device, None] = {}
        for rank in ranks:
            if gang.share(rank):
                device = _device(gang, rank)
                if self._slicing.leave(device, Owner(gang.key, rank)):
                    changed[device] = None
        self._adjust(run, changed)

    def speed(self, owner: Owner, device: Device) -> float:
        """Return the speed of a rank now, as a share of its speed on a device of its own."""
        return self._slicing.speed(device, owner)

    def _adjust(self, run: GangRun, devices: Iterable[Device]) -> None:
        keys = dict.fromkeys([run.gang.key])
        for device in devices:
            keys.update(dict.fromkeys(owner.gang for owner in self._slicing.owners(device)))
        for key in keys:
            neighbour = self._runs.get(key)
            if neighbour is not None:
                self._set_speeds(neighbour)

    def _set_speeds(self, run: GangRun) -> None:
        gang = run.gang
        speeds = {
            rank: self._slicing.speed(_device(gang, rank), Owner(gang.key, rank))
            for rank in sorted(run.alive)
            if gang.share(rank)
        }
        self._slow_training(gang, speeds)
        slowest = min(speeds.values(), default=1.0)
        for timed in run.timed:
            speed = slowest if gang.together else speeds.get(timed.parts[0].ranks[0], 1.0)
            if speed != timed.speed or not timed.timer:
                timed.pass_time(self._env.now, speed)
                timed.timer += 1
                ring = partial(self._ring, run, timed, timed.timer)
                guarded = partial(self._guarded, gang.key, ring)
                self._env.call_after(timed.left_s / speed, guarded)

    def _slow_training(self, gang: Gang, speeds: Mapping[int, float]) -> None:
        by_node: dict[str, float] = {}
        for rank, speed in speeds.items():
            node = gang.places[rank].node
            by_node[node] = min(speed, by_node.get(node, 1.0))
        self._training.slow(gang.key, by_node)

    def _ring(self, run: GangRun, timed: Timed, number: int) -> None:
        if timed.timer == number and timed in run.timed:
            run.timed.remove(timed)
            self._finish(run, timed.parts)


def _device(gang: Gang, rank: int) -> Device:
    place = gang.places[rank]
    return Device(place.node, place.devices[0])


def _one_by_one(parts: Iterable[Part]) -> list[list[Part]]:
    return [[part._replace(ranks=(rank,))] for part in parts for rank in part.ranks]
