"""The engine's three ports, with everything that can go wrong at them drawn from a seed."""

import math
from collections.abc import Callable, Generator, Sequence
from random import Random
from typing import Any

from msgspec import Struct
from simpy.events import Event

from adapters.clocks.simpy_clock import SimpyClock
from adapters.logs.memory_log import MemoryLog
from controlplane.lifecycle.effects import Effect, LaunchGang
from controlplane.lifecycle.job import Job
from controlplane.model.commands import Report
from controlplane.model.errors import LogUnavailable
from controlplane.model.events import Recorded
from controlplane.ports import Cluster, Head, StateSnapshot
from simulator.kernel.virtual_time import VirtualTime


class Faults(Struct):
    """How often things go wrong, as shares of one, and how long they take, in seconds."""

    report_lost: float = 0.0
    report_repeated: float = 0.0
    report_delay_s: float = 0.0
    effect_lost: float = 0.0
    effect_repeated: float = 0.0
    port_delay_s: float = 0.0
    append_refused: float = 0.0
    append_unknown: float = 0.0
    clock_jump: float = 0.0
    engine_life_s: float = float("inf")
    stale_leader: float = 0.0

    @classmethod
    def drawn(cls, dice: Random) -> "Faults":
        """Some faults often, some seldom, some not at all, so that each is also seen alone."""

        def rate(most: float) -> float:
            return dice.choice([0.0, 0.2, 1.0]) * most * dice.random()

        return cls(
            report_lost=rate(0.4),
            report_repeated=rate(0.5),
            report_delay_s=rate(90.0),
            effect_lost=rate(0.4),
            effect_repeated=rate(0.5),
            port_delay_s=rate(3.0),
            append_refused=rate(0.05),
            append_unknown=rate(0.05),
            clock_jump=rate(0.01),
            engine_life_s=dice.choice([float("inf"), 1_000.0, 200.0, 40.0]),
            stale_leader=rate(0.6),
        )

    def stop(self) -> None:
        """From here on nothing goes wrong."""
        for field in self.__struct_fields__:
            setattr(self, field, 0.0)
        self.engine_life_s = float("inf")


class Sleep:
    """An awaitable that lets virtual time pass, in which an engine may be killed."""

    def __init__(self, env: VirtualTime, seconds: float) -> None:
        self._env = env
        self._seconds = seconds

    def __await__(self) -> Generator[Event, Any, None]:
        if self._seconds > 0:
            yield self._env.timeout(self._seconds)


class Port:
    def __init__(self, env: VirtualTime, faults: Faults, dice: Random) -> None:
        self.env = env
        self.faults = faults
        self.dice = dice

    def hits(self, rate: float) -> bool:
        return rate > 0 and self.dice.random() < rate

    def delay(self) -> Sleep:
        return Sleep(self.env, self.dice.random() * self.faults.port_delay_s)


class FaultyLog(Port):
    """Slow, and at times it refuses: before the append, or after it without a word."""

    def __init__(self, port: Port, log: MemoryLog, witness: Callable[[Sequence[Recorded]], None]):
        super().__init__(port.env, port.faults, port.dice)
        self._log = log
        self._witness = witness

    async def lead(self) -> Head:
        await self.delay()
        return await self._log.lead()

    async def head(self) -> Head:
        await self.delay()
        return await self._log.head()

    async def append(self, batch: Sequence[Recorded], *, epoch: int) -> None:
        await self.delay()
        if self.hits(self.faults.append_refused):
            raise LogUnavailable("the disk is full")
        await self._log.append(batch, epoch=epoch)
        self._witness(batch)
        await self.delay()
        if self.hits(self.faults.append_unknown):
            raise LogUnavailable("the connection was lost")

    async def read(self, after: int, limit: int):  # type: ignore[no-untyped-def]
        await self.delay()
        return await self._log.read(after, limit)

    async def save_snapshot(self, snapshot: StateSnapshot) -> None:
        await self.delay()
        await self._log.save_snapshot(snapshot)

    async def latest_snapshot(self, at_most: int | None = None) -> StateSnapshot | None:
        await self.delay()
        return await self._log.latest_snapshot(at_most)

    async def close(self) -> None: ...


class FaultyCluster(Port):
    """Effects and reports get lost, come twice, late, and in another order."""

    def __init__(
        self,
        port: Port,
        cluster: Cluster,
        witness: Callable[[LaunchGang], None],
        arrives: Callable[[Report], Report] = lambda report: report,
    ):
        """`arrives` sees every report that reaches the engine, and returns what arrives of it."""
        super().__init__(port.env, port.faults, port.dice)
        self._cluster = cluster
        self._witness = witness
        self._arrives = arrives

    async def connect(self, report: Callable[[Report], None]) -> None:
        await self.delay()
        await self._cluster.connect(
            lambda sent: self._on_the_way(sent, lambda it: report(self._arrives(it)))
        )

    def _on_the_way(self, sent: Report, report: Callable[[Report], None]) -> None:
        if self.hits(self.faults.report_lost):
            return
        copies = 2 if self.hits(self.faults.report_repeated) else 1
        for _ in range(copies):
            late_s = self.dice.random() * self.faults.report_delay_s
            if late_s and self.dice.random() < 0.5:
                self.env.timeout(late_s).callbacks.append(lambda _: report(sent))
            else:
                report(sent)

    async def carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            await self.delay()
            if isinstance(effect, LaunchGang):
                self._witness(effect)
            if self.hits(self.faults.effect_lost):
                continue
            copies = 2 if self.hits(self.faults.effect_repeated) else 1
            await self._cluster.carry_out([effect] * copies)

    async def logs(self, job: Job, rank: int, lines_max: int) -> list[str]:
        return await self._cluster.logs(job, rank, lines_max)


class JumpyClock(Port):
    """Virtual time that at times jumps by up to an hour, forwards or back."""

    def __init__(self, port: Port):
        super().__init__(port.env, port.faults, port.dice)
        self._clock = SimpyClock(port.env)
        self._ahead_s = 0.0

    def now(self) -> float:
        if self.hits(self.faults.clock_jump):
            self._ahead_s = self.dice.uniform(-3_600.0, 3_600.0)
        return self._clock.now() + self._ahead_s

    async def wait(self, until: float | None) -> None:
        target = None if until is None else until - self._ahead_s
        while target is not None and target + self._ahead_s < until:
            target = math.nextafter(target, math.inf)
        await self._clock.wait(target)

    def wake(self) -> None:
        self._clock.wake()
