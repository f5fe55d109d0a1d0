"""Prometheus metrics. Counters count recorded events, so each event counts once.

After a restart they begin at 0, as Prometheus expects; past events are not counted again.
"""

from collections import Counter as Tally
from collections.abc import Sequence

from aiohttp import web
from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from controlplane.model import events as e
from controlplane.model.events import EVENT_TYPES
from controlplane.model.failures import Cause
from controlplane.model.phases import Phase
from controlplane.model.values import in_gpus
from controlplane.queries.queries import nodes
from controlplane.scheduling.explain.fragmentation import by_size
from controlplane.state.devices import WHOLE
from controlplane.state.world import World

_HTTP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_WAIT_SECONDS = (1, 5, 15, 60, 300, 900, 3_600, 4 * 3_600, 12 * 3_600, 86_400, 7 * 86_400)
_STEP_EVENTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_FINISHED: dict[type[e.Event], Phase] = {
    e.JobSucceeded: Phase.SUCCEEDED,
    e.JobFailed: Phase.FAILED,
    e.JobCancelled: Phase.CANCELLED,
}


class Numbers(Struct, frozen=True, kw_only=True):
    """The values of the gauges, read from a world."""

    position: int
    jobs: dict[str, int]
    gpus: dict[str, float]
    nodes: dict[str, int]
    # Queue -> number of waiting jobs, and GPUs held.
    queues: dict[str, tuple[int, float]]
    # Rank size -> the fraction of the free GPUs that ranks of this size cannot use.
    fragmentation: dict[str, float]
    # (Reason code, remedy) -> number of unschedulable jobs, and the GPUs that they ask for.
    unschedulable: dict[tuple[str, str], tuple[int, float]]
    # Gangs that hold GPUs while they wait for lost ranks to be replaced.
    stranded: int
    # Quarantined jobs: they stopped the engine twice, and nothing is decided for them any more.
    quarantined: int


def numbers_of(world: World) -> Numbers:
    present = list(nodes(world))
    total = sum(node.info.gpus for node in present)
    used = in_gpus(sum(world.devices.used_milli(queue) for queue in world.devices.used))
    # The unused part of shared devices is free for other ranks that share.
    free = world.devices.free.total + in_gpus(
        sum(
            WHOLE - taken
            for ordinal, devices in world.devices.free.shared.items()
            if world.devices.free.open[ordinal]
            for taken in devices.values()
        )
    )
    states = Tally(
        "cordoned" if node.ready and node.cordoned else "ready" if node.ready else "lost"
        for node in present
    )
    return Numbers(
        position=world.position,
        jobs={phase.value: len(ids) for phase, ids in world.phases.by_phase.items()},
        gpus={"free": free, "used": used, "unavailable": max(0, total - free - used)},
        nodes={state: states[state] for state in ("ready", "cordoned", "lost")},
        queues={
            name: (len(world.waiting.keys(name)), in_gpus(world.devices.used_milli(name)))
            for name in world.queues
        },
        fragmentation={str(size): part for size, part in by_size(world.devices.free).items()},
        unschedulable=_unschedulable(world),
        stranded=len(world.devices.degraded),
        quarantined=len(world.phases.quarantined),
    )


def _unschedulable(world: World) -> dict[tuple[str, str], tuple[int, float]]:
    counts: dict[tuple[str, str], tuple[int, float]] = {}
    for job in map(world.jobs.__getitem__, world.phases.by_phase[Phase.UNSCHEDULABLE]):
        obstacle = job.obstacle
        key = ("", "") if obstacle is None else (obstacle.code, obstacle.remedy.value)
        jobs, gpus = counts.get(key, (0, 0))
        counts[key] = jobs + 1, gpus + in_gpus(job.spec.gpu_milli)
    return counts


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        gauge, counter, histogram = self._gauge, self._counter, self._histogram
        self._jobs = gauge("muster_jobs", "Jobs by phase.", "phase")
        self._gpus = gauge("muster_gpus", "GPUs by state.", "state")
        self._nodes = gauge("muster_nodes", "Nodes by state.", "state")
        self._waiting = gauge("muster_queue_jobs_waiting", "Jobs that wait.", "queue")
        self._held = gauge("muster_queue_gpus_used", "GPUs that a queue's jobs hold.", "queue")
        self._fragments = gauge(
            "muster_gpu_fragmentation", "Free GPUs that ranks of a size cannot use, 0 to 1.", "size"
        )
        self._aside = gauge(
            "muster_jobs_unschedulable", "Jobs that are set aside.", "reason", "remedy"
        )
        self._aside_gpus = gauge(
            "muster_gpus_unschedulable",
            "GPUs that jobs ask for that are set aside.",
            "reason",
            "remedy",
        )
        self._stranded = gauge(
            "muster_gangs_stranded", "Gangs that wait for lost ranks to be replaced."
        )
        self._quarantined = gauge(
            "muster_jobs_quarantined", "Jobs that stopped the engine and can only be deleted."
        )
        self._position = gauge("muster_log_position", "The position of the last event.")
        self._leads = gauge("muster_engine_leads", "1 while an engine leads here.")
        self._watchers = gauge("muster_stream_watchers", "Open event streams.")
        self._commands = gauge("muster_commands_in_flight", "Commands that wait for the log.")
        self._dropped = counter(
            "muster_stream_dropped_total", "Event streams closed because their client did not read."
        )
        self._events = counter("muster_events_total", "Events recorded, by type.", "type")
        self._restarts = counter("muster_job_restarts_total", "Restarts by cause.", "cause")
        self._finished = counter("muster_jobs_finished_total", "Jobs that ended.", "phase")
        self._queue_wait = histogram(
            "muster_job_queue_wait_seconds", "From queued to placed.", _WAIT_SECONDS
        )
        self._step = histogram(
            "muster_engine_step_events", "Events that shared one append.", _STEP_EVENTS
        )
        self._http = histogram(
            "muster_http_request_duration_seconds",
            "How long requests took, or streams lasted.",
            _HTTP_SECONDS,
            "method",
            "route",
            "status",
        )
        self._dropped_before = 0
        # Children are created once because lookups are frequent; known types show up as 0
        # immediately.
        self._event_children = {name: self._events.labels(name) for name in EVENT_TYPES}
        self._http_children: dict[tuple[str, str, int], Histogram] = {}
        for cause in Cause:
            self._restarts.labels(cause.value)
        for phase in _FINISHED.values():
            self._finished.labels(phase.value)

    def _gauge(self, name: str, documentation: str, *labels: str) -> Gauge:
        return Gauge(name, documentation, labels, registry=self.registry)

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(name, documentation, labels, registry=self.registry)

    def _histogram(
        self, name: str, documentation: str, buckets: Sequence[float], *labels: str
    ) -> Histogram:
        return Histogram(name, documentation, labels, buckets=buckets, registry=self.registry)

    def record(self, batch: Sequence[e.Recorded], world: World) -> None:
        """Count the events of `batch`; a listener of the engine."""
        self._step.observe(len(batch))
        for kind, count in Tally([type(recorded.event) for recorded in batch]).items():
            self._event_children[kind.__name__].inc(count)
            if kind in _FINISHED:
                self._finished.labels(_FINISHED[kind].value).inc(count)
        for recorded in batch:
            event = recorded.event
            if isinstance(event, e.GangPlaced):
                job = world.jobs.get(event.job)
                if job is not None:
                    self._queue_wait.observe(max(0.0, recorded.at - job.queued_at))
            elif isinstance(event, e.JobRestarting | e.RankRestarting):
                self._restarts.labels(event.restart.cause.value).inc()

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method if method in _METHODS else "other", route, status)
        child = self._http_children.get(key)
        if child is None:
            child = self._http_children[key] = self._http.labels(*key)
        child.observe(seconds)

    def show(self, numbers: Numbers | None, *, leads: bool) -> None:
        """Set the gauges; `numbers` is None while this process neither leads nor follows."""
        self._leads.set(leads)
        for gauge in (
            self._jobs, self._gpus, self._nodes, self._waiting, self._held, self._aside,
            self._aside_gpus,
        ):  # fmt: skip
            gauge.clear()
        if numbers is None:
            return
        self._position.set(numbers.position)
        for gauge, values in (
            (self._jobs, numbers.jobs),
            (self._gpus, numbers.gpus),
            (self._nodes, numbers.nodes),
        ):
            for label, value in values.items():
                gauge.labels(label).set(value)
        for queue, (waiting, held) in numbers.queues.items():
            self._waiting.labels(queue).set(waiting)
            self._held.labels(queue).set(held)
        for size, part in numbers.fragmentation.items():
            self._fragments.labels(size).set(part)
        for (code, remedy), (jobs, gpus) in numbers.unschedulable.items():
            self._aside.labels(code, remedy).set(jobs)
            self._aside_gpus.labels(code, remedy).set(gpus)
        self._stranded.set(numbers.stranded)
        self._quarantined.set(numbers.quarantined)

    def show_server(self, *, watchers: int, dropped: int, commands: int) -> None:
        self._watchers.set(watchers)
        self._dropped.inc(dropped - self._dropped_before)
        self._dropped_before = dropped
        self._commands.set(commands)

    def text(self) -> bytes:
        return generate_latest(self.registry)


METRICS = web.AppKey("metrics", Metrics)
