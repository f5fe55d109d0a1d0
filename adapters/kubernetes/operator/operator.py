"""The operator: submits custom resources of Kubeflow as jobs, and writes their statuses and events.

It is a client of the control plane, as the HTTP API is: it sends commands, asks queries, and
receives recorded events. A change of a resource or an event of its job only queues the resource's
uid; `_look_at` then reconciles the resource. Rules:

1. What to do about a resource is decided from it and its job as they are now (`reconcile.py`). The
   commands that submit and change a job have ids, and events have names, that depend only on the
   resource, so that repeating them changes nothing.
2. A job is deleted because its resource was deleted: the watch delivered the deletion of a known
   resource, or the API server has no resource with that uid when asked. A resource that is merely
   unknown to the operator is not enough.
3. A resource is deleted because its job was deleted, which the log records.
4. Events are written before the status that states up to where they are written.
5. Only the operator of the leading process writes; the others watch, and reconcile everything when
   they begin to lead.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from adapters.kubernetes.api.connection import Connection
from adapters.kubernetes.api.errors import NotFound
from adapters.kubernetes.api.reflector import Change, Key, uid_of
from adapters.kubernetes.observe.labels import Document
from adapters.kubernetes.operator import k8s_events as h
from adapters.kubernetes.operator import reconcile as j
from adapters.kubernetes.operator import status
from adapters.kubernetes.operator.client import ControlPlaneClient, OperatorOptions
from adapters.kubernetes.operator.event_backlog import EventBacklog
from adapters.kubernetes.operator.resource import JobResource, resources
from adapters.kubernetes.operator.watch import Watch
from adapters.kubernetes.operator.work_queue import PASSING, WorkQueue
from adapters.kubernetes.operator.writer import Writer
from adapters.kubernetes.reconcile.plan import Plan
from adapters.kubernetes.render.ownership import is_resource
from adapters.kubernetes.render.pods import Notice
from controlplane.lifecycle.job import Job
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.commands import Request
from controlplane.model.errors import Rejected
from controlplane.model.reasons import FailureReason
from controlplane.ports import EventLog
from controlplane.state.world import World

# Events after which a refused resource may be admitted.
_MAY_HELP = (e.JobRemoved, e.QueueDefined, e.PolicySet, e.NodeReported, e.ClusterSurveyed)
# A status that another client overwrites is corrected only this often, or the two would compete.
HEAL_S = 30.0
_ORPHANS = "orphans of "

_log = logging.getLogger("muster.kubernetes")


class _Place(NamedTuple):
    resource: JobResource
    key: Key


class Operator:
    """Runs the resources in `known` (None means those of all registered kinds) as jobs.

    `run` does the work; the caller passes recorded events to `recorded`, and plans of the cluster
    adapter to `planned`. `log` is read for missed events. `timing` is passed to the watches.
    """

    def __init__(
        self,
        connection: Connection,
        client: ControlPlaneClient,
        log: EventLog,
        now: Callable[[], float],
        options: OperatorOptions | None = None,
        *,
        known: Collection[JobResource] | None = None,
        **timing: float,
    ) -> None:
        self._connection = connection
        self._writer = Writer(connection)
        self._client = client
        self._log = log
        self._now = now
        self._options = options or OperatorOptions()
        self._watches = {
            each.name: Watch(
                connection,
                each,
                namespaces=self._options.namespaces,
                on_change=self._changed,
                on_synced=self._synced,
                **timing,
            )
            for each in (resources() if known is None else known)
        }
        self.work = WorkQueue(self._look_at, workers=self._options.workers)
        self._places: dict[str, _Place] = {}
        # Resources that were deleted; their jobs must be deleted.
        self._gone: set[str] = set()
        # Jobs that were removed; their resources must be deleted.
        self._removed: set[str] = set()
        self._refused: set[str] = set()
        self._jobs: dict[str, Job] = {}
        self._in_vain: dict[str, tuple[int, tuple[str, ...]]] = {}
        # The nodes as last reported, without the fields that change all the time.
        self._nodes: dict[str, NodeInfo] = {}
        self._backlog = EventBacklog(
            client, log, self._writer, now, self._document_of, self.work.add
        )

    async def run(self) -> None:
        """Watch and reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.work.run())
            group.create_task(self._backlog.catch_up_for_ever())
            for watch in self._watches.values():
                group.create_task(watch.run())

    # ------------------------------------------------------------------ input

    def recorded(self, batch: Sequence[e.Recorded], world: World) -> None:
        """Handle events that were appended to the log; `world` is the state after them."""
        if not self._client.leads:
            # Only the leader acts. When this process leads again, everything is reconciled.
            self._backlog.heard_from = 0
            return
        for each in batch:
            event = each.event
            if isinstance(event, e.JobEvent):
                self._hear(event.job, each, world.jobs.get(event.job))
            elif isinstance(event, e.EngineStarted):
                self._begin(each.position)
            if isinstance(event, _MAY_HELP) and self._is_news(event):
                for uid in self._refused:
                    self.work.add(uid)

    def _is_news(self, event: e.Event) -> bool:
        """Return whether an event may help a refused resource.

        A change in what other pods use on a node does not: a job is refused if it can never fit.
        """
        if not isinstance(event, e.NodeReported):
            return True
        before = self._nodes.get(event.node)
        self._nodes[event.node] = now = replace(event.info, used_by_others={}, unusable=())
        return before != now

    def _hear(self, uid: str, recorded: e.Recorded, job: Job | None) -> None:
        if job is None:
            job = self._jobs.pop(uid, None)
            if job is None and uid not in self._places:
                return
            self._removed.add(uid)
        elif is_resource(job):
            self._jobs[uid] = job
        else:
            return
        if job is not None:
            self._backlog.add(uid, h.emitted_events(job, [recorded]))
        self.work.add(uid)

    def planned(self, job: Job, plan: Plan) -> None:
        """Handle a plan that was carried out for a job: its objects become events."""
        if is_resource(job) and (events := h.of_plan(job, plan, self._now())):
            self._backlog.add(job.id, events)
            self.work.add(job.id)

    def _begin(self, position: int) -> None:
        """Reconcile everything, because an engine of this process began to lead at `position`."""
        self._backlog.begin(position, self._places)
        for watch in self._watches.values():
            if watch.synced:
                self._synced(watch.resource)
        for uid in (*self._places, *self._gone):
            self.work.add(uid)

    def _changed(self, resource: JobResource, change: Change) -> None:
        uid = uid_of(change.document)
        if change.now is None:
            self._places.pop(uid, None)
            self._gone.add(uid)
        else:
            if uid not in self._places:
                self._backlog.appears(uid)
            self._places[uid] = _Place(resource, change.key)
        if self._backlog.heard_from:
            self.work.add(uid)

    def _synced(self, resource: JobResource) -> None:
        # Before an engine leads, queries are not answered.
        if self._backlog.heard_from:
            self.work.add(f"{_ORPHANS}{resource.name}")

    # ------------------------------------------------------------------ reconciliation

    async def _look_at(self, key: str) -> None:
        if not self._client.leads:
            return
        if key.startswith(_ORPHANS):
            await self._find_orphans(self._watches[key.removeprefix(_ORPHANS)])
            return
        place = self._places.get(key)
        document = None if place is None else self._document(place)
        if place is None or document is None or uid_of(document) != key:
            await self._without_resource(key)
        else:
            await self._settle(key, self._watches[place.resource.name], document)

    def _document(self, place: _Place) -> Document | None:
        return self._watches[place.resource.name].item(place.key)

    def _document_of(self, uid: str) -> Document | None:
        place = self._places.get(uid)
        return None if place is None else self._document(place)

    async def _find_orphans(self, watch: Watch) -> None:
        """Queue the jobs whose resources were deleted while no operator watched."""
        resource = watch.resource

        def orphans(world: World) -> list[str]:
            return [
                job.id
                for job in world.jobs.values()
                if is_resource(job)
                and not job.deleting
                and job.spec.kind == resource.kind
                and job.spec.version.rpartition("/")[0] == resource.group
                and job.id not in self._places
            ]

        if watch.synced:
            for uid in await self._client.ask(orphans):
                self.work.add(uid)

    async def _without_resource(self, uid: str) -> None:
        seen = await self._client.ask(lambda world: j.look(world, uid))
        job = seen.job
        if job is not None and is_resource(job) and not job.deleting:
            if uid in self._gone or await self._is_gone(job):
                _log.info("%s/%s: its resource is gone, and so it goes", job.namespace, job.name)
                await self._ask_for(j.delete(job))
            return
        if job is None:
            self._forget(uid)

    async def _is_gone(self, job: Job) -> bool:
        """Return whether the API server has no resource with this uid.

        False if the cluster does not serve the kind. Raises ApiError.
        """
        watch = self._watch_of(job)
        if watch is None or not watch.version:
            return False
        try:
            resource = await self._connection.get(watch.path(Key(job.namespace, job.name)))
        except NotFound as error:
            # A server that does not serve the kind yet, as after its start, names no object.
            return error.object_name == job.name
        return uid_of(resource) != job.id

    def _watch_of(self, job: Job) -> Watch | None:
        group = job.spec.version.rpartition("/")[0]
        return self._watches.get(JobResource(group, job.spec.kind, ()).name)

    def _forget(self, uid: str) -> None:
        self._jobs.pop(uid, None)
        self._in_vain.pop(uid, None)
        self._backlog.forget(uid)
        self._writer.forget(uid)
        for flags in (self._gone, self._removed, self._refused):
            flags.discard(uid)

    async def _settle(self, uid: str, watch: Watch, document: Document) -> None:
        """Carry out the verdict of `reconcile.decide` on a resource and its job."""
        seen = await self._client.ask(lambda world: j.look(world, uid))
        if uid in self._removed:
            seen = seen._replace(was_submitted=True)
        verdict = j.decide(
            document, seen, self._options.leave, binds_itself=self._options.binds_itself
        )
        if not isinstance(verdict, j.Refuse):
            self._refused.discard(uid)
        match verdict:
            case j.LeaveAlone():
                self._backlog.drop(uid)
            case j.Delete(command):
                await self._ask_for(command)
            case j.Remove():
                await self._backlog.write(uid, document)
                await self._writer.remove(watch, document)
            case j.Refuse(refusal):
                await self._refuse(uid, watch, document, refusal)
            case j.Submit(command, warnings):
                await self._submit(uid, watch, document, command, warnings)
            case j.Sync():
                await self._follow(uid, watch, document, verdict)

    async def _submit(
        self,
        uid: str,
        watch: Watch,
        document: Document,
        command: Request,
        warnings: Sequence[str],
    ) -> None:
        try:
            await self._client.submit(command)
        except Rejected as refusal:
            if refusal.code in PASSING:
                raise
            await self._refuse(uid, watch, document, refusal)
            return
        for warning in warnings:
            notice = Notice("Warning", warning, "Warning")
            self._backlog.add(uid, [h.about_generation(document, notice, self._now())])
        # The status is written when the queue processes the resource again.
        self.work.add(uid)

    async def _refuse(self, uid: str, watch: Watch, document: Document, refusal: Rejected) -> None:
        if refusal.code == FailureReason.PLATFORM_ERROR and uid not in self._refused:
            _log.error("%s: %s", document["metadata"]["name"], refusal.message)
        self._refused.add(uid)
        wanted = status.refused_status(document, refusal, self._now())
        if self._writer.pending(document, wanted):
            self._backlog.add(uid, [h.refused(document, refusal, self._now())])
            await self._backlog.write(uid, document)
            await self._write(watch, document, wanted)

    async def _follow(self, uid: str, watch: Watch, document: Document, verdict: j.Sync) -> None:
        in_vain = list(verdict.edits.in_vain)
        for command in verdict.edits.commands:
            try:
                await self._client.submit(command)
            except Rejected as refusal:
                if refusal.code in PASSING:
                    raise
                self._warn_in_vain(uid, document, refusal.message)
                in_vain.append(refusal.field or "spec")
        if verdict.refusal is not None:
            self._warn_in_vain(uid, document, verdict.refusal.message)
            in_vain.append(verdict.refusal.field or "spec")
        elif verdict.edits.in_vain:
            self._warn_in_vain(uid, document, status.not_applied(verdict.edits.in_vain))
        self._note_in_vain(uid, document, in_vain)
        await self._backlog.write(uid, document)
        # The commands may have changed the job, so read it again.
        job = await self._client.ask(lambda world: world.jobs.get(uid))
        if job is not None:
            await self._write(watch, document, self._status(job, document))

    def _warn_in_vain(self, uid: str, document: Document, message: str) -> None:
        self._backlog.add(uid, [h.in_vain(document, message, self._now())])

    def _note_in_vain(self, uid: str, document: Document, paths: Sequence[str]) -> None:
        """Record the changes of the present generation that were not applied."""
        generation = j.generation_of(document)
        if generation != j.observed_generation(document):
            self._in_vain[uid] = (generation, tuple(paths))

    def _status(self, job: Job, document: Document) -> dict[str, Any]:
        generation, paths = self._in_vain.get(job.id, (0, ()))
        in_vain = paths if generation == j.generation_of(document) else ()
        position = self._backlog.written_up_to(job.id, document)
        try:
            shown = status.kind_status(job)
        except Exception as error:  # noqa: BLE001 - a kind may raise anything
            _log.exception("the status of job %s cannot be rendered", job.id)
            shown = status.unrendered(document)
            problem = status.in_one_line(error)
        else:
            problem = ""
        wanted = status.status_of(
            job,
            shown,
            generation=j.generation_of(document),
            position=position,
            in_vain=in_vain,
            problem=problem,
        )
        if generation != j.generation_of(document):
            # An earlier process determined it, and it is still valid.
            kept = ((document.get("status") or {}).get("muster") or {}).get("notApplied")
            if kept:
                wanted["muster"]["notApplied"] = kept
        return wanted

    async def _ask_for(self, command: Request) -> None:
        try:
            await self._client.submit(command)
        except Rejected as refusal:
            if refusal.code in PASSING:
                raise
            _log.info("%s: %s", type(command).__name__, refusal.message)

    async def _write(self, watch: Watch, document: Document, wanted: Mapping[str, Any]) -> None:
        if not await self._writer.status(watch, document, wanted):
            self.work.add_later(uid_of(document), HEAL_S)
