"""A guided tour: a real server on a simulated cluster, real manifests over HTTP, and the outcome
of each job from the event log.

The tour checks what it promises: a gang waits for room, a node fails and a gang starts again, and
a broken job uses up its retries. If one of them does not happen, the exit code is 1.
"""

import asyncio
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from cli.client.client import Client, Refused, connect
from cli.client.documents import read_documents
from cli.client.event_stream import follow, recorded_of
from cli.output.job_tables import list_table
from cli.output.tables import Column, Table, console, phase, write
from cli.output.times import span
from cli.settings import read_settings
from controlplane.event_messages import describe
from controlplane.messages import failure_text, restart_text, words
from controlplane.model import events as e
from controlplane.queries.views import JobDetail, JobView, Why

EXAMPLES = Path(__file__).parent
SPEED = 20
TOUR_S_MAX = 55.0
START_S_MAX = 15.0
# In the order in which they are submitted; the last one finds the cluster full.
MANIFESTS = (
    "pytorchjob.yaml",
    "mpijob.yaml",
    "tfjob-ps-workers.yaml",
    "native.yaml",
    "retries-exhausted.yaml",
    "big-gang.yaml",
)
NOT_SHOWN = (e.RanksStarted, e.RanksExited, e.RanksGone, e.AttemptEnded, e.NodeReported)
LINES_SHOWN = 10


@dataclass
class Story:
    """The history of one job, from its events."""

    name: str
    kind: str
    gpus: int
    end: str = ""
    why: str = ""
    waited_s: float = 0.0
    ran_s: float = 0.0
    restarts: list[str] = field(default_factory=list)
    waits_since: float | None = None
    runs_since: float | None = None

    def hear(self, recorded: e.Recorded) -> None:
        at = recorded.at
        match recorded.event:
            case e.JobSubmitted() | e.JobRequeued():
                self.waits_since = at
            case e.GangPlaced() if self.waits_since is not None:
                self.waited_s += at - self.waits_since
            case e.GangStarted():
                self.runs_since = at
            case e.JobRestarting(restart=restart):
                self._stop(at)
                self.restarts.append(words(restart.cause))
                self.why = restart_text(restart)
            case e.JobSucceeded():
                self._stop(at)
                self.end = "Succeeded"
            case e.JobFailed(reason=reason, failure=failure):
                self._stop(at)
                self.end, self.why = "Failed", f"{words(reason)}: {failure_text(failure)}"
            case _:
                pass

    def _stop(self, at: float) -> None:
        if self.runs_since is not None:
            self.ran_s += at - self.runs_since
            self.runs_since = None


@dataclass
class Tour:
    """All that was seen on the way."""

    stories: dict[str, Story] = field(default_factory=dict)
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES_SHOWN))
    why_it_waits: Why | None = None
    refused: str = ""
    node_lost: e.Recorded | None = None
    began: float | None = None

    def hear(self, recorded: e.Recorded) -> str | None:
        """Takes an event in; returns a line about it if it is worth one."""
        event = recorded.event
        self.began = recorded.at if self.began is None else self.began
        story = self._story(event)
        if story is not None:
            story.hear(recorded)
        if isinstance(event, e.NodeLost):
            self.node_lost = recorded
        if isinstance(event, NOT_SHOWN):
            return None
        subject = "" if story is None else f"{story.name}: "
        return f"{span(recorded.at - self.began):>6}  {subject}{describe(event)}"

    def _story(self, event: e.Event) -> Story | None:
        if isinstance(event, e.JobSubmitted):
            spec = event.spec
            self.stories[event.job] = Story(event.name, spec.kind, spec.gpus)
        return self.stories.get(event.job) if isinstance(event, e.JobEvent) else None

    def named(self, name: str) -> Story:
        return next(story for story in self.stories.values() if story.name == name)

    @property
    def over(self) -> bool:
        return len(self.stories) == len(MANIFESTS) and all(s.end for s in self.stories.values())


def main() -> int:
    log = read_settings().data / "demo.db"
    for suffix in ("", "-wal", "-shm"):
        log.with_name(log.name + suffix).unlink(missing_ok=True)
    click.echo("Muster demo: 64 simulated GPUs in 2 racks, time runs 20 times as fast.\n")
    try:
        with server(log) as url:
            tour = asyncio.run(asyncio.wait_for(take(url), TOUR_S_MAX))
    except KeyboardInterrupt:
        return 130
    except TimeoutError:
        click.echo(f"\nThe jobs did not end within {TOUR_S_MAX:.0f} s.", err=True)
        return 1
    except RuntimeError as error:
        click.echo(str(error), err=True)
        return 1
    return show_summary(tour, log)


@contextmanager
def server(log: Path) -> Iterator[str]:
    """`muster up` as a process of its own, stopped at the end."""
    words = [sys.executable, "-m", "cli.main", "up", "--db", str(log), "--port", "0"]
    words += ["--speed", str(SPEED), "--cluster", f"sim:{EXAMPLES / 'demo-cluster.yaml'}"]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=EXAMPLES.parent
    )
    try:
        yield _address(process)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _address(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.split()[:1] == ["API"]:
            return line.split()[1]
    _, errors = process.communicate(timeout=10)
    raise RuntimeError(f"The server did not start:\n{errors}")


# ---------------------------------------------------------------- on the way


async def take(url: str) -> Tour:
    """Submits everything and follows the events until the last job has ended."""
    tour = Tour()
    async with connect(url) as api:
        await _ready(api)
        click.echo(f"A server runs at {url}. Submitting {len(MANIFESTS)} manifests over HTTP.\n")
        for name in MANIFESTS:
            await _submit(api, name)
        tour.why_it_waits = await api.get("/v1/jobs/default/gpt-finetune/why", Why)
        tour.refused = await _refusal(api, "never-fits.yaml")
        shown = _painted if sys.stdout.isatty() else _printed
        await shown(api, tour)
    return tour


async def _ready(api: Client) -> None:
    async with asyncio.timeout(START_S_MAX):
        while True:
            try:
                await api.get("/readyz", dict)
                return
            except Refused:
                await asyncio.sleep(0.05)


async def _submit(api: Client, name: str) -> None:
    for document in read_documents(str(EXAMPLES / name)):
        await api.change("POST", "/v1/jobs", JobDetail, document.value)


async def _refusal(api: Client, name: str) -> str:
    try:
        await _submit(api, name)
    except Refused as refused:
        return refused.problem.code
    return ""


async def _printed(api: Client, tour: Tour) -> None:
    async for view in follow(api, 0):
        line = tour.hear(recorded_of(view))
        if line is not None:
            click.echo(line)
        if tour.over:
            return


async def _painted(api: Client, tour: Tour) -> None:
    with Live(console=console(), auto_refresh=False, transient=True) as live:

        async def paint() -> None:
            while True:
                live.update(await _picture(api, tour), refresh=True)
                await asyncio.sleep(0.2)

        painter = asyncio.create_task(paint())
        try:
            async for view in follow(api, 0):
                line = tour.hear(recorded_of(view))
                if line is not None:
                    tour.lines.append(line)
                if tour.over:
                    return
        finally:
            painter.cancel()


async def _picture(api: Client, tour: Tour) -> RenderableType:
    jobs = await api.all_pages("/v1/jobs", JobView)
    lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in tour.lines]
    return Group(list_table(jobs, api.now), Text(""), *lines)


# ---------------------------------------------------------------- at the end


def show_summary(tour: Tour, log: Path) -> int:
    click.echo("\nWhat became of them, in simulated time:\n")
    columns = (
        Column("JOB"),
        Column("GPUS", right=True),
        Column("WAITED", right=True),
        Column("RAN", right=True),
        Column("RESTARTS"),
        Column("END"),
        Column("WHY", flexible=True),
    )
    write(Table(columns, [_row(story) for story in tour.stories.values()]))
    click.echo("\nWhat this showed:")
    kept = True
    for promise, holds in promises(tour):
        mark = "  yes  " if holds else "  NO   "
        click.echo(click.wrap_text(promise, 78, mark, " " * len(mark)))
        kept = kept and holds
    _show_next_steps(log, tour.node_lost)
    return 0 if kept else 1


def _row(story: Story) -> list[str | Text]:
    return [
        story.name,
        str(story.gpus),
        span(story.waited_s),
        span(story.ran_s),
        f"{len(story.restarts)} ({story.restarts[0]})" if story.restarts else "0",
        phase(story.end),
        story.why or "-",
    ]


def promises(tour: Tour) -> Iterator[tuple[str, bool]]:
    big, bert = tour.named("gpt-finetune"), tour.named("bert-pretrain")
    why = tour.why_it_waits
    reason = why.reasons[0].message if why is not None and why.reasons else "?"
    waited = big.waited_s > 30 and big.end == "Succeeded" and not big.restarts
    yield f"a gang of {big.gpus} GPUs waited {span(big.waited_s)} for all of them: {reason}", waited
    lost = "no node" if tour.node_lost is None else tour.node_lost.event.stream.replace("/", " ")
    restarted = tour.node_lost is not None and "node lost" in bert.restarts
    yield f"{lost} failed, and {bert.name} started again as a whole", restarted
    yield f"{bert.name} still succeeded; that restart cost it no retry", bert.end == "Succeeded"
    broken = tour.named("broken-loader")
    given_up = broken.end == "Failed" and broken.why.startswith("retries exhausted")
    yield f"{broken.name} failed after {len(broken.restarts)} retries and was given up", given_up
    refused = tour.refused == "can_never_fit"
    yield "a job of 128 GPUs was refused at submission: it can never fit here", refused
    yield (
        "every job but the broken one succeeded",
        all(story.end == "Succeeded" for story in tour.stories.values() if story is not broken),
    )


def _show_next_steps(log: Path, node_lost: e.Recorded | None) -> None:
    position = 1 if node_lost is None else node_lost.position
    click.echo(f"\nThe event log of this tour is {log}. Try next:")
    for command, what in (
        (f"replay {log} --position {position}", "the cluster when the node had failed"),
        (f"replay {log} --step", "every decision, one by one"),
        (f"log verify {log}", "its chain, order and fold"),
        (f"view {log}", "this log in the browser, read-only"),
        ("up", "a control plane of your own"),
        ("demo", "a busy simulated day in the browser"),
    ):
        click.echo(f"  # {what}\n  {_program()} {command}")


def _program() -> str:
    """How to call `muster` from here: by its name, or by the path beside this Python."""
    beside = Path(sys.executable).with_name("muster")
    installed = shutil.which("muster")
    if installed is not None and Path(installed) == beside:
        return "muster"
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)


if __name__ == "__main__":
    sys.exit(main())
