"""`muster replay --watch`: a log played as a film of the cluster, at any speed."""

import asyncio
import sys
from collections import deque

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from cli.cluster_tables import gpus_bar, status
from cli.narration import tell
from cli.sources import parse_source, reading
from cli.tables import Column, Table, console
from cli.times import stamp
from cli.transfer import ends_in, events_after
from controlplane.events import JobEvent, Recorded
from controlplane.job import Phase
from controlplane.queries import node_view, nodes
from controlplane.replay import beginning, rebuild
from controlplane.world import World

FRAME_S = 0.1
NODES_MAX = 40
LINES_MAX = 8


async def play(source: str, first: str | None, last: str | None, speed: float) -> None:
    """Plays from `first` to `last`; where nobody looks at a terminal, one line a frame."""
    async with reading(parse_source(source)) as log:
        begin, end = await ends_in(log, first, last)
        head = (await log.head()).position
        before = (await beginning(log)).world.position
        rebuilt = await rebuild(log, position=max(before, begin - 1))
        screen = _Screen(rebuilt.world, speed)
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


class _Screen:
    def __init__(self, world: World, speed: float) -> None:
        self._world = world
        self._speed = speed
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self._now: float | None = None
        self._frames = 0

    async def wait_for(self, at: float, live: Live) -> None:
        """Lets the film's time go on to the next event, a frame at a time."""
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
        self._lines.append(f"{stamp(recorded.at)[11:19]}  {who}{tell(event)}")

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
            f"{len(world.by_phase[phase])} {phase.value.lower()}"
            for phase in (Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.RESTARTING)
        )
        if aside := len(world.by_phase[Phase.UNSCHEDULABLE]):
            counts += f", {aside} unschedulable"
        at = world.at if self._now is None else max(world.at, self._now)
        return f"{stamp(at)}  event {world.position}  {counts}; {world.free.total} GPUs free"
