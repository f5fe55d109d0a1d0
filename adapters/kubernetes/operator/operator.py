"""Kubeflow's resources run by Muster: they are submitted, followed, and written to.

It is a client of the control plane as the HTTP API is: it sends commands, asks questions, and hears
what was recorded. Laws that hold here:

1. What is done about a resource is judged from it and its job as they are (`judging`), each time
   anew. What it became a job by, what it was told, and what changed it, have ids and names of their
   own, so that doing it again does nothing.
2. A job is deleted because its resource was: the API server told us so of one that we had seen, or
   does not know it by that uid when it is asked. That we have not seen it is not enough.
3. A resource is deleted because its job was: that is in the log.
4. Events are written before the status that says they were.
5. Only who leads acts; the others watch, and look at everything when their turn comes.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from adapters.kubernetes.connection import Connection
from adapters.kubernetes.errors import NotFound
from adapters.kubernetes.marks import Document
from adapters.kubernetes.operator import happenings as h
from adapters.kubernetes.operator import judging as j
from adapters.kubernetes.operator import statuses
from adapters.kubernetes.operator.desk import Desk, Options
from adapters.kubernetes.operator.news import News
from adapters.kubernetes.operator.resources import Resource, resources
from adapters.kubernetes.operator.watching import Watch
from adapters.kubernetes.operator.work import PASSING, Work
from adapters.kubernetes.operator.writing import Writer
from adapters.kubernetes.ownership import is_resource
from adapters.kubernetes.plan import Plan
from adapters.kubernetes.pods import Notice
from adapters.kubernetes.reflector import Change, Key, uid_of
from controlplane import events as e
from controlplane.commands import Request
from controlplane.errors import Rejected
from controlplane.job import Job
from controlplane.job_life import PLATFORM_ERROR
from controlplane.model import NodeInfo
from controlplane.ports import EventLog
from controlplane.world import World

# After these, what was refused may be let in.
_MAY_HELP = (e.JobRemoved, e.QueueDefined, e.PolicySet, e.NodeReported, e.ClusterSurveyed)
# What somebody else wrote into a status of ours is put right only so often, or two would fight.
HEAL_S = 30.0
_ORPHANS = "orphans of "

_log = logging.getLogger("muster.kubernetes")


class _Place(NamedTuple):
    resource: Resource
    key: Key


class Operator:
    """Runs with `run`, and hears with `recorded` what the engine has recorded."""

    def __init__(
        self,
        connection: Connection,
        desk: Desk,
        log: EventLog,
        now: Callable[[], float],
        options: Options | None = None,
        *,
        known: Collection[Resource] | None = None,
        **timing: float,
    ) -> None:
        self._connection = connection
        self._writer = Writer(connection)
        self._desk = desk
        self._log = log
        self._now = now
        self._options = options or Options()
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
        self.work = Work(self._look_at, workers=self._options.workers)
        self._places: dict[str, _Place] = {}
        # Resources that the API server said are gone, whose jobs are to go.
        self._gone: set[str] = set()
        # Jobs that were forgotten, whose resources are to go.
        self._removed: set[str] = set()
        self._refused: set[str] = set()
        self._jobs: dict[str, Job] = {}
        self._in_vain: dict[str, tuple[int, tuple[str, ...]]] = {}
        # What nodes were when they were last reported, without what comes and goes all the time.
        self._nodes: dict[str, NodeInfo] = {}
        self._news = News(desk, log, self._writer, now, self._document_of, self.work.add)

    async def run(self) -> None:
        """Only being cancelled ends it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.work.run())
            group.create_task(self._news.catch_up_for_ever())
            for watch in self._watches.values():
                group.create_task(watch.run())

    # ------------------------------------------------------------------ what we hear

    def recorded(self, batch: Sequence[e.Recorded], world: World) -> None:
        """Called with all that is in the log, right after it is."""
        if not self._desk.leads:
            # Whoever leads acts. When we do, we look at everything.
            self._news.heard_from = 0
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
        """Other people's pods come and go on nodes; what can never fit is not helped by that."""
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
            self._news.add(uid, h.happenings(job, [recorded]))
        self.work.add(uid)

    def planned(self, job: Job, plan: Plan) -> None:
        """Called with what was done in the cluster for a job."""
        if is_resource(job) and (found := h.of_plan(job, plan, self._now())):
            self._news.add(job.id, found)
            self.work.add(job.id)

    def _begin(self, position: int) -> None:
        """Another engine leads: all that we may have missed is looked at."""
        self._news.begin(position, self._places)
        for watch in self._watches.values():
            if watch.synced:
                self._synced(watch.resource)
        for uid in (*self._places, *self._gone):
            self.work.add(uid)

    def _changed(self, resource: Resource, change: Change) -> None:
        uid = uid_of(change.document)
        if change.now is None:
            self._places.pop(uid, None)
            self._gone.add(uid)
        else:
            if uid not in self._places:
                self._news.appears(uid)
            self._places[uid] = _Place(resource, change.key)
        if self._news.heard_from:
            self.work.add(uid)

    def _synced(self, resource: Resource) -> None:
        # Before an engine leads there is nobody to ask.
        if self._news.heard_from:
            self.work.add(f"{_ORPHANS}{resource.name}")

    # ------------------------------------------------------------------ what we do about it

    async def _look_at(self, key: str) -> None:
        if not self._desk.leads:
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
        """Jobs whose resources went while nobody looked."""
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
            for uid in await self._desk.ask(orphans):
                self.work.add(uid)

    async def _without_resource(self, uid: str) -> None:
        seen = await self._desk.ask(lambda world: j.look(world, uid))
        job = seen.job
        if job is not None and is_resource(job) and not job.deleting:
            if uid in self._gone or await self._is_gone(job):
                _log.info("%s/%s: its resource is gone, and so it goes", job.namespace, job.name)
                await self._ask_for(j.delete(job))
            return
        if job is None:
            self._forget(uid)

    async def _is_gone(self, job: Job) -> bool:
        """Whether the API server itself says that the resource is not there, or is another one."""
        watch = self._watch_of(job)
        if watch is None or not watch.version:
            return False
        try:
            found = await self._connection.get(watch.path(Key(job.namespace, job.name)))
        except NotFound as error:
            # Not that the server knows no such kind at the moment, as when it has just started.
            return f'"{job.name}" not found' in error.message
        return uid_of(found) != job.id

    def _watch_of(self, job: Job) -> Watch | None:
        group = job.spec.version.rpartition("/")[0]
        return self._watches.get(Resource(group, job.spec.kind, ()).name)

    def _forget(self, uid: str) -> None:
        self._jobs.pop(uid, None)
        self._in_vain.pop(uid, None)
        self._news.forget(uid)
        self._writer.forget(uid)
        for flags in (self._gone, self._removed, self._refused):
            flags.discard(uid)

    async def _settle(self, uid: str, watch: Watch, document: Document) -> None:
        """Brings a resource and its job together, as the verdict has it."""
        seen = await self._desk.ask(lambda world: j.look(world, uid))
        if uid in self._removed:
            seen = seen._replace(was_submitted=True)
        verdict = j.judge(
            document, seen, self._options.leave, binds_itself=self._options.binds_itself
        )
        if not isinstance(verdict, j.Refuse):
            self._refused.discard(uid)
        match verdict:
            case j.LeaveAlone():
                self._news.drop(uid)
            case j.Delete(command):
                await self._ask_for(command)
            case j.Remove():
                await self._news.tell(uid, document)
                await self._writer.remove(watch, document)
            case j.Refuse(refusal):
                await self._refuse(uid, watch, document, refusal)
            case j.Submit(command, warnings):
                await self._submit(uid, watch, document, command, warnings)
            case j.Follow():
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
            await self._desk.submit(command)
        except Rejected as refusal:
            if refusal.code in PASSING:
                raise
            await self._refuse(uid, watch, document, refusal)
            return
        for told in warnings:
            notice = Notice("Warning", told, "Warning")
            self._news.add(uid, [h.about_generation(document, notice, self._now())])
        # Its status follows with the next look, to which what was recorded has woken us.
        self.work.add(uid)

    async def _refuse(self, uid: str, watch: Watch, document: Document, refusal: Rejected) -> None:
        if refusal.code == PLATFORM_ERROR and uid not in self._refused:
            _log.error("%s: %s", document["metadata"]["name"], refusal.message)
        self._refused.add(uid)
        wanted = statuses.refused_status(document, refusal, self._now())
        if self._writer.pending(document, wanted):
            self._news.add(uid, [h.refused(document, refusal, self._now())])
            await self._news.tell(uid, document)
            await self._write(watch, document, wanted)

    async def _follow(self, uid: str, watch: Watch, document: Document, verdict: j.Follow) -> None:
        in_vain = list(verdict.edits.in_vain)
        for command in verdict.edits.commands:
            try:
                await self._desk.submit(command)
            except Rejected as refusal:
                if refusal.code in PASSING:
                    raise
                self._say_in_vain(uid, document, refusal.message)
                in_vain.append(refusal.field or "spec")
        if verdict.refusal is not None:
            self._say_in_vain(uid, document, verdict.refusal.message)
            in_vain.append(verdict.refusal.field or "spec")
        elif verdict.edits.in_vain:
            self._say_in_vain(uid, document, statuses.not_applied(verdict.edits.in_vain))
        self._note_in_vain(uid, document, in_vain)
        await self._news.tell(uid, document)
        # The commands may have changed it, and what we were told of it is older than they are.
        job = await self._desk.ask(lambda world: world.jobs.get(uid))
        if job is not None:
            await self._write(watch, document, self._status(job, document))

    def _say_in_vain(self, uid: str, document: Document, told: str) -> None:
        self._news.add(uid, [h.in_vain(document, told, self._now())])

    def _note_in_vain(self, uid: str, document: Document, paths: Sequence[str]) -> None:
        """What stays undone of the generation that the job was made to follow last."""
        generation = j.generation_of(document)
        if generation != j.observed_generation(document):
            self._in_vain[uid] = (generation, tuple(paths))

    def _status(self, job: Job, document: Document) -> dict[str, Any]:
        generation, paths = self._in_vain.get(job.id, (0, ()))
        in_vain = paths if generation == j.generation_of(document) else ()
        position = self._news.told_up_to(job.id, document)
        try:
            shown = statuses.kind_status(job)
        except Exception as error:  # noqa: BLE001 - a kind may raise anything
            _log.exception("the status of job %s cannot be rendered", job.id)
            shown = statuses.unrendered(document)
            problem = statuses.in_one_line(error)
        else:
            problem = ""
        wanted = statuses.status_of(
            job,
            shown,
            generation=j.generation_of(document),
            position=position,
            in_vain=in_vain,
            problem=problem,
        )
        if generation != j.generation_of(document):
            # It was worked out before we were started, and still holds.
            kept = ((document.get("status") or {}).get("muster") or {}).get("notApplied")
            if kept:
                wanted["muster"]["notApplied"] = kept
        return wanted

    async def _ask_for(self, command: Request) -> None:
        try:
            await self._desk.submit(command)
        except Rejected as refusal:
            if refusal.code in PASSING:
                raise
            _log.info("%s: %s", type(command).__name__, refusal.message)

    async def _write(self, watch: Watch, document: Document, wanted: Mapping[str, Any]) -> None:
        if not await self._writer.status(watch, document, wanted):
            self.work.add_later(uid_of(document), HEAL_S)
