"""Redaction of a history: names of people, jobs and teams, and all texts of users, are replaced.

Names become numbered aliases, the same one everywhere. What only the user's program reads (images,
commands, environment values, labels, most of a pod's template) or writes is removed. Texts from
outside (reported by a kubelet, a program or an error) become numbered texts as a whole, so that
equal texts stay equal. What decisions depend on stays: ids, roles, sizes, nodes, times, exit codes,
reasons, and what pods request and require of their nodes; so the redacted history is decided as the
original was.

Names and texts are replaced in typed fields only. Events hold no sentences, so names and texts
occur nowhere else.
"""

from typing import Any, TypeVar

import msgspec
from msgspec import UnsetType
from msgspec.structs import replace

from controlplane.audit.pseudonyms import Aliases
from controlplane.kinds import hints
from controlplane.kinds.hints import HIDDEN
from controlplane.lifecycle.attempt import Rank
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.owner import Owner
from controlplane.model import events as e
from controlplane.model.dependencies import After, Dependency
from controlplane.model.failures import Restart
from controlplane.model.obstacle import Obstacle
from controlplane.model.owners import ArraySpec, OwnedBy
from controlplane.model.policy import Queue
from controlplane.model.reasons import (
    CeilingReached,
    DependencyUnmet,
    HeadWaits,
    JobName,
    Preempted,
    WaitFacts,
)
from controlplane.model.resources import supplies_of
from controlplane.model.spec import JobSpec, Role
from controlplane.model.supplies import NO_SUPPLIES, Supplies
from controlplane.state.image import StateImage
from controlplane.state.state import DEFAULT_QUEUE

T = TypeVar("T")

# The fields that hold a text from outside, wherever they occur.
_TEXTS = frozenset({"detail", "text"})
# The fields of a pod, and of its containers, that placement reads.
_OF_PODS = ("nodeSelector", "tolerations", "resources", "overhead")
_OF_CONTAINERS = ("resources", "restartPolicy")


class Redactor:
    """Redacts one history; the same name gets the same alias in all its parts."""

    def __init__(self) -> None:
        self._aliases = Aliases()
        # Member of an array -> its alias, which contains the array's: re-deciding derives the same
        # name.
        self._members: dict[tuple[str, str], str] = {}
        # Ids of jobs and arrays, which stay; a dependency may be written with an id.
        self._ids: set[str] = set()

    def _meet(self, id: str, namespace: str, name: str, owner: OwnedBy | None = None) -> None:
        """Note a job or an array before its events or its state are redacted."""
        self._ids.add(id)
        if owner is not None:
            array = self._job(namespace, owner.name.partition("/")[2])[1]
            self._members[namespace, name] = f"{array}-{owner.index}"

    # -- names -------------------------------------------------------------------------------

    def _name(self, kind: str, name: str) -> str:
        return self._aliases.of(kind, name)

    def _job(self, namespace: str, name: str) -> tuple[str, str]:
        alias = self._members.get((namespace, name)) or self._name("job", name)
        return self._name("team", namespace), alias

    def _full_name(self, name: str) -> str:
        """Redact NAMESPACE/NAME of a job, an array, or a member that is not submitted yet."""
        namespace, _, own = name.partition("/")
        return "/".join(self._addressed(namespace, own))

    def _addressed(self, namespace: str, name: str) -> tuple[str, str]:
        array, hyphen, index = name.rpartition("-")
        known = self._aliases.knows("job", name) or (namespace, name) in self._members
        if not known and hyphen and index.isdigit() and self._aliases.knows("job", array):
            team, alias = self._job(namespace, array)
            return team, f"{alias}-{index}"
        return self._job(namespace, name)

    def _after(self, namespace: str, after: After) -> After:
        """Redact a dependency as it was written, so that it still names the same target."""
        if after.job in self._ids:
            return after
        first, slash, rest = after.job.partition("/")
        team, name = (first, rest) if slash else (namespace, after.job)
        name, bracket, index = name.partition("[")
        team, alias = self._addressed(team, name)
        return replace(after, job=f"{team + '/' if slash else ''}{alias}{bracket}{index}")

    def _dependencies(self, after: tuple[Dependency, ...]) -> tuple[Dependency, ...]:
        return tuple(replace(each, name=self._full_name(each.name)) for each in after)

    def _owned_by(self, owner: OwnedBy | None) -> OwnedBy | None:
        return None if owner is None else replace(owner, name=self._full_name(owner.name))

    def _array(self, namespace: str, array: ArraySpec) -> ArraySpec:
        return replace(
            array,
            job=self._spec(array.job, namespace),
            after=tuple(self._after(namespace, each) for each in array.after),
            each_after=self._dependencies(array.each_after),
        )

    def _kept_owner(self, owner: Owner) -> Owner:
        namespace, name = self._job(owner.namespace, owner.name)
        return replace(
            owner,
            namespace=namespace,
            name=name,
            spec=self._array(owner.namespace, owner.spec),
            awaits=self._dependencies(owner.awaits),
            failed_job=self._full_name(owner.failed_job) if owner.failed_job else "",
            error=self._text(owner.error) if owner.failed_job == "" else owner.error,
        )

    def _text(self, text: str) -> str:
        return self._name("text", text) if text else ""

    def _queue(self, name: str) -> str:
        return name if name == DEFAULT_QUEUE.name else self._name("queue", name)

    # -- values ------------------------------------------------------------------------------

    def image(self, image: StateImage) -> StateImage:
        """The redacted state."""
        for owner in image.owners:
            self._meet(owner.id, owner.namespace, owner.name)
        for job in image.jobs:
            self._meet(job.id, job.namespace, job.name, job.owner)
        return replace(
            image,
            jobs=[self._kept(job) for job in image.jobs],
            owners=tuple(self._kept_owner(owner) for owner in image.owners),
            nodes=[self._texts(node) for node in image.nodes],
            queues=[self._kept_queue(queue) for queue in image.queues],
            receipts=[
                (self._cause(cause), at, self._stream(stream))
                for cause, at, stream in image.receipts
            ],
            usage=tuple((self._queue(queue), *known) for queue, *known in image.usage),
            lengths=tuple(sorted((self._group(key), samples) for key, samples in image.lengths)),
            leader="",
        )

    def _group(self, key: tuple[str, ...]) -> tuple[str, ...]:
        """Redact a key of learned run lengths; see `run_lengths`."""
        if len(key) < 2:
            return key
        level, team, *rest = key
        if level == "alike":
            queue, kind, image, size = rest
            rest = [self._queue(queue), kind, self._name("image", image) if image else "", size]
        return level, self._name("team", team), *rest

    def recorded(self, recorded: e.Recorded) -> e.Recorded:
        """The redacted event with its envelope."""
        return replace(
            recorded,
            event=self._event(recorded.event),
            cause=self._cause(recorded.cause),
            actor=self._name("user", recorded.actor) if recorded.actor else "",
        )

    def _stream(self, stream: str) -> str:
        kind, slash, name = stream.partition("/")
        return f"{kind}/{self._queue(name)}" if slash and kind == "queue" else stream

    def _cause(self, cause: str) -> str:
        """Redact the id of a command, which a person may have chosen."""
        return self._name("command", cause) if cause else ""

    def _event(self, event: e.Event) -> e.Event:
        if isinstance(event, e.JobSubmitted):
            self._meet(event.job, event.namespace, event.name, event.owner)
            namespace, name = self._job(event.namespace, event.name)
            event = replace(
                event,
                namespace=namespace,
                name=name,
                spec=self._spec(event.spec, event.namespace),
                after=self._dependencies(event.after),
                owner=self._owned_by(event.owner),
            )
        elif isinstance(event, e.OwnerEvent):
            event = self._owner_event(event)
        elif isinstance(event, e.GangWaiting):
            event = replace(event, facts=self._wait_facts(event.facts))
        elif isinstance(event, e.JobUnschedulable):
            event = replace(event, obstacle=self._obstacle(event.obstacle))
        elif isinstance(event, e.JobRestarting | e.RankRestarting):
            event = replace(event, restart=self._restart(event.restart))
        elif isinstance(event, e.JobFailed | e.JobSuspended) and event.last is not None:
            event = replace(event, last=self._restart(event.last))
        elif isinstance(event, e.QueueDefined):
            event = replace(event, queue=self._kept_queue(event.queue))
        elif isinstance(event, e.QueueRemoved):
            event = replace(event, name=self._queue(event.name))
        elif isinstance(event, e.JobAmended) and not isinstance(event.queue, UnsetType):
            event = replace(event, queue=self._queue(event.queue))
        elif isinstance(event, e.CodeResolved):
            event = replace(event, commit=self._name("commit", event.commit))
        elif isinstance(event, e.EngineStarted):
            event = replace(event, address="")
        if isinstance(event, e.JobFailed) and isinstance(event.facts, DependencyUnmet):
            event = replace(event, facts=self._unmet(event.facts))
        return self._texts(event)

    def _unmet(self, facts: DependencyUnmet) -> DependencyUnmet:
        return replace(facts, job=self._full_name(facts.job))

    def _owner_event(self, event: e.OwnerEvent) -> e.OwnerEvent:
        match event:
            case e.OwnerSubmitted():
                self._meet(event.owner, event.namespace, event.name)
                namespace, name = self._job(event.namespace, event.name)
                return replace(
                    event,
                    namespace=namespace,
                    name=name,
                    spec=self._array(event.namespace, event.spec),
                    after=self._dependencies(event.after),
                )
            case e.OwnerFailed(job=job) if job:
                return replace(event, job=self._full_name(job))
            case _:
                return event

    def _kept(self, job: Job) -> Job:
        namespace, name = self._job(job.namespace, job.name)
        commits = tuple(self._name("commit", commit) for commit in job.commits)
        spec, attempt = self._spec(job.spec, job.namespace), job.attempt
        if attempt is not None:
            attempt = replace(attempt, ranks=tuple(map(self._rank, attempt.ranks)))
        failure = job.failure
        if failure is not None and isinstance(failure.facts, DependencyUnmet):
            failure = replace(failure, facts=self._unmet(failure.facts))
        if failure is not None and failure.last is not None:
            failure = replace(failure, last=self._restart(failure.last))
        kept = replace(
            job,
            namespace=namespace,
            name=name,
            spec=spec,
            commits=commits,
            restarts=tuple(map(self._restart, job.restarts)),
            failure=failure,
            obstacle=None if job.obstacle is None else self._obstacle(job.obstacle),
            awaits=self._dependencies(job.awaits),
            owner=self._owned_by(job.owner),
        )
        # The attempt comes last: its ranks are redacted already, and stay unchanged.
        return replace(self._texts(kept), attempt=attempt)

    def _restart(self, restart: Restart) -> Restart:
        """The restart without the name of the job for which the gang was preempted."""
        match restart.facts:
            case Preempted(job=JobName(namespace=namespace, name=name)) as facts:
                known = replace(facts, job=JobName(*self._job(namespace, name)))
                return replace(restart, facts=known)
            case _:
                return restart

    def _obstacle(self, obstacle: Obstacle) -> Obstacle:
        queue = self._queue(obstacle.queue) if obstacle.queue else ""
        group = self._name("group", obstacle.group) if obstacle.group else ""
        return replace(obstacle, queue=queue, group=group)

    def _wait_facts(self, facts: WaitFacts | None) -> WaitFacts | None:
        match facts:
            case CeilingReached():
                return replace(facts, queue=self._queue(facts.queue))
            case HeadWaits(job=JobName(namespace=namespace, name=name)):
                return replace(facts, job=JobName(*self._job(namespace, name)))
            case _:
                return facts

    def _rank(self, rank: Rank) -> Rank:
        # A rank is encoded as a list without field names, so `_texts` cannot find its texts.
        loss = rank.loss
        if loss is not None:
            loss = replace(loss, detail=self._text(loss.detail))
        return replace(rank, detail=self._text(rank.detail), loss=loss, lines=())

    def _kept_queue(self, queue: Queue) -> Queue:
        parent = self._queue(queue.parent) if queue.parent else ""
        return replace(queue, name=self._queue(queue.name), parent=parent)

    def _spec(self, spec: JobSpec, namespace: str) -> JobSpec:
        resources, asks = supplies_of(spec).resources, spec.scheduling
        if asks.group:
            asks = replace(asks, group=self._name("group", asks.group))
        return replace(
            spec,
            roles=tuple(self._role(role) for role in spec.roles),
            queue=self._queue(spec.queue),
            scheduling=asks,
            options=_without_words(spec.options),
            labels=dict.fromkeys(spec.labels, HIDDEN),
            annotations={},
            hints=hints.redacted(spec.hints),
            supplies=Supplies(resources=resources) if resources else NO_SUPPLIES,
            after=tuple(self._after(namespace, each) for each in spec.after),
        )

    def _role(self, role: Role) -> Role:
        template, container = _bare(role)
        return replace(
            role,
            image=self._name("image", role.image) if role.image else "",
            command=(HIDDEN,) if role.command else (),
            args=(HIDDEN,) if role.args else (),
            env=dict.fromkeys(role.env, HIDDEN),
            template=template,
            container=container,
        )

    def _texts(self, value: T) -> T:
        """The same value with every text from outside replaced, and without lines of output."""
        return msgspec.convert(self._walk(msgspec.to_builtins(value)), type(value))

    def _walk(self, plain: Any, key: str = "") -> Any:
        if isinstance(plain, dict):
            return {k: self._walk(v, k) for k, v in plain.items() if k != "lines"}
        if isinstance(plain, list | tuple):
            return [self._walk(item, key) for item in plain]
        return self._text(plain) if isinstance(plain, str) and key in _TEXTS else plain


def _bare(role: Role) -> tuple[dict[str, Any], str]:
    """The part of a role's template that placement reads, and the alias of its main container."""
    pod = role.template.get("spec") or {}
    kept = {key: pod[key] for key in _OF_PODS if pod.get(key)}
    main = ""
    for group in ("initContainers", "containers"):
        for number, container in enumerate(pod.get(group) or ()):
            alias = f"container-{number}"
            kept_fields = {key: container[key] for key in _OF_CONTAINERS if container.get(key)}
            kept.setdefault(group, []).append({"name": alias, **kept_fields})
            if group == "containers" and container.get("name") == role.container:
                main = alias
    return ({"spec": kept} if kept else {}), main


def _without_words(plain: Any) -> Any:
    """The same with every text hidden: options of a kind may contain environment values."""
    if isinstance(plain, dict):
        return {key: _without_words(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_without_words(item) for item in plain]
    return HIDDEN if isinstance(plain, str) else plain
