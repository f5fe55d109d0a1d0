"""`muster replay --watch`: a log played as an animation of the cluster, at any speed."""

import asyncio
import sys
from collections import deque

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from cli.log.sources import parse_source, reading
from cli.log.transfer import ends_in, events_after
from cli.output.cluster_tables import gpus_bar, status
from cli.output.tables import Column, Table, console
from cli.output.times import stamp
from controlplane.event_messages import describe
from controlplane.log.replay import beginning, rebuild
from controlplane.model.events import JobEvent, Recorded
from controlplane.model.phases import Phase
from controlplane.queries.queries import node_view, nodes
from controlplane.state.world import World

FRAME_S = 0.1
NODES_MAX = 40
LINES_MAX = 8


async def play(source: str, first: str | None, last: str | None, speed: float) -> None:
    """Play from `first` to `last`; without a terminal, print one line per frame."""
    async with reading(parse_source(source)) as log:
        begin, end = await ends_in(log, first, last)
        head = (await log.head()).position
        before = (await beginning(log)).world.position
        rebuilt = await rebuild(log, position=max(before, begin - 1))
        screen = _ReplayScreen(rebuilt.world, speed)
        reel = events_after(log, rebuilt.world.position, min(end or head, head), rebuilt.hash)
        if not sys.stdout.isatty():
            async for recorded in reel:
                screen.take(recorded)
            click.echo(screen.summary())
            return
        with Live(console=console(), auto_refresh=False, vertical_overflow="crop") as live:
            async for recorded in reel:
                await screen.wait_for(recorded.at, live)
                screen.take(recorded)
            live.update(screen.picture(), refresh=True)


class _ReplayScreen:
    def __init__(self, world: World, speed: float) -> None:
        self._world = world
        self._speed = speed
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self._now: float | None = None
        self._frames = 0

    async def wait_for(self, at: float, live: Live) -> None:
        """Advance the animation's time to the next event at `at`, one frame at a time."""
        if self._now is None:
            self._now = at
        while self._now < at:
            live.update(self.picture(), refresh=True)
            await asyncio.sleep(FRAME_S)
            self._now += FRAME_S * self._speed

    def take(self, recorded: Recorded) -> None:
        event = recorded.event
        self._world.apply(recorded)
        self._frames += 1
        who = ""
        if isinstance(event, JobEvent):
            job = self._world.jobs.get(event.job)
            who = f"{event.job if job is None else job.name}: "
        self._lines.append(f"{stamp(recorded.at)[11:19]}  {who}{describe(event)}")

    def picture(self) -> RenderableType:
        views = [node_view(self._world, node) for node in nodes(self._world)]
        columns = (Column("NODE"), Column("STATUS"), Column("GPUS"), Column("JOBS", flexible=True))
        rows: list[list[str | Text]] = [
            [
                view.name,
                status(view),
                gpus_bar(view),
                ", ".join(view.jobs) or "-",
            ]
            for view in views[:NODES_MAX]
        ]
        parts: list[RenderableType] = [Text(self.summary(), style="bold"), Table(columns, rows)]
        parts += [Text(line, no_wrap=True, overflow="ellipsis") for line in self._lines]
        return Group(*parts)

    def summary(self) -> str:
        world = self._world
        counts = ", ".join(
            f"{len(world.phases.by_phase[phase])} {phase.value.lower()}"
            for phase in (Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.RESTARTING)
        )
        if aside := len(world.phases.by_phase[Phase.UNSCHEDULABLE]):
            counts += f", {aside} unschedulable"
        at = world.at if self._now is None else max(world.at, self._now)
        return (
            f"{stamp(at)}  event {world.position}  {counts}; {world.devices.free.total} GPUs free"
        )
