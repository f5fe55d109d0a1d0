"""A history without the names of people, jobs and teams, and without what they wrote.

Names become numbered ones, the same one everywhere. What only the person's program reads (images,
commands, environment values, labels, most of a pod's template) or writes is taken out. What
decisions hang on stays: ids, roles, sizes, nodes, times, exit codes, and what pods request and ask of
their nodes; so what was decided is still decided.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from controlplane import events as e
from controlplane.aliases import OUR_WORDS, Aliases
from controlplane.attempt import Rank
from controlplane.image import Image
from controlplane.job import Job
from controlplane.model import PLATFORM_CAUSES, Cause, JobSpec, Obstacle, Role
from controlplane.requests import supplies_of
from controlplane.sharing import Queue
from controlplane.state import DEFAULT_QUEUE
from controlplane.supplies import NO_SUPPLIES, Supplies

T = TypeVar("T")

HIDDEN = "redacted"
# Told by the cluster or by a decision in words, in which a name may occur.
_WORDED = frozenset({"message"})
# What is read of a pod, and of its containers, when a gang is placed.
_OF_PODS = ("nodeSelector", "tolerations", "resources", "overhead")
_OF_CONTAINERS = ("resources", "restartPolicy")


class Redactor:
    def __init__(self, base: Image, events: Iterable[e.Recorded]) -> None:
        self._names = Aliases()
        # Names of things that stay, in which messages tell what was decided.
        stays = {DEFAULT_QUEUE.name, *base.policy.levels}
        stays.update(node.name for node in base.nodes)
        # Job -> what its programs said at their end, as it stands in what was decided about that.
        self._said: dict[str, dict[str, None]] = {}
        for queue in base.queues:
            self._queue(queue.name)
        for job in base.jobs:
            self._meet(job.namespace, job.name, job.spec, stays)
            self._hear(job.id, _said_before(job))
        for recorded in events:
            event = recorded.event
            if isinstance(event, e.JobSubmitted):
                self._meet(event.namespace, event.name, event.spec, stays)
            elif isinstance(event, e.RanksExited):
                self._hear(event.job, [x.message for x in event.exits if _is_its_own(x.cause)])
            elif isinstance(event, e.QueueDefined):
                self._queue(event.queue.name)
            elif isinstance(event, e.NodeEvent):
                stays.add(event.node)
            elif isinstance(event, e.PolicySet):
                stays.update(event.policy.levels)
            if recorded.actor:
                self._name("user", recorded.actor)
        self._mentions = self._names.mentions(stays | OUR_WORDS)

    def _hear(self, job: str, messages: Iterable[str]) -> None:
        said = {f": {message}": None for message in messages if message}
        if said:
            self._said.setdefault(job, {}).update(said)

    def _text(self, text: str, job: str = "") -> str:
        """A message about a job: without what its programs said, and without names."""
        for said in self._said.get(job, ()):
            ends = text.find(said) + len(said)
            # Whatever follows begins behind a semicolon; a short word might occur by chance.
            if said in text and text[ends : ends + 1] in ("", ";"):
                text = f"{text[: ends - len(said)]}: {HIDDEN}{text[ends:]}"
        return self._mentions(text)

    # -- names -------------------------------------------------------------------------------

    def _meet(self, namespace: str, name: str, spec: JobSpec, stays: set[str]) -> None:
        """A job with all names that belong to it, of which messages may speak."""
        team, alias = self._job(namespace, name)
        self._names.know(f"{namespace}/{name}", f"{team}/{alias}")
        self._queue(spec.queue)
        for role in spec.roles:
            stays.add(role.name)
            if role.image:
                self._name("image", role.image)

    def _name(self, kind: str, name: str) -> str:
        return self._names.of(kind, name)

    def _job(self, namespace: str, name: str) -> tuple[str, str]:
        return self._name("team", namespace), self._name("job", name)

    def _queue(self, name: str) -> str:
        return name if name == DEFAULT_QUEUE.name else self._name("queue", name)

    # -- values ------------------------------------------------------------------------------

    def image(self, image: Image) -> Image:
        return replace(
            image,
            jobs=[self._kept(job) for job in image.jobs],
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
        """What jobs of one length have in common; see `run_lengths`."""
        if len(key) < 2:
            return key
        level, team, *rest = key
        if level == "alike":
            queue, kind, image, size = rest
            rest = [self._queue(queue), kind, self._name("image", image) if image else "", size]
        return level, self._name("team", team), *rest

    def recorded(self, recorded: e.Recorded) -> e.Recorded:
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
        """An id that a person may have chosen."""
        return self._name("command", cause) if cause else ""

    def _event(self, event: e.Event) -> e.Event:
        if isinstance(event, e.JobSubmitted):
            namespace, name = self._job(event.namespace, event.name)
            event = replace(event, namespace=namespace, name=name, spec=self._spec(event.spec))
        elif isinstance(event, e.JobUnschedulable):
            event = replace(event, obstacle=self._obstacle(event.obstacle))
        elif isinstance(event, e.RanksExited):
            exits = [replace(x, message=_unless_its_own(x.message, x.cause)) for x in event.exits]
            event = replace(event, exits=tuple(exits))
        elif isinstance(event, e.QueueDefined):
            event = replace(event, queue=self._kept_queue(event.queue))
        elif isinstance(event, e.QueueRemoved):
            event = replace(event, name=self._queue(event.name))
        elif isinstance(event, e.CodeResolved):
            event = replace(event, commit=self._name("commit", event.commit))
        elif isinstance(event, e.EngineStarted):
            event = replace(event, address="")
        return self._worded(event, event.job if isinstance(event, e.JobEvent) else "")

    def _kept(self, job: Job) -> Job:
        namespace, name = self._job(job.namespace, job.name)
        commits = tuple(self._name("commit", commit) for commit in job.commits)
        spec, attempt = self._spec(job.spec), job.attempt
        if attempt is not None:
            attempt = replace(attempt, ranks=tuple(map(self._rank, attempt.ranks)))
        job = replace(
            job, namespace=namespace, name=name, spec=spec, commits=commits, attempt=attempt
        )
        if job.obstacle is not None:
            job = replace(job, obstacle=self._obstacle(job.obstacle))
        return self._worded(job, job.id)

    def _obstacle(self, obstacle: Obstacle) -> Obstacle:
        queue = self._queue(obstacle.queue) if obstacle.queue else ""
        group = self._name("group", obstacle.group) if obstacle.group else ""
        return replace(obstacle, queue=queue, group=group)

    def _rank(self, rank: Rank) -> Rank:
        # It is written as a list without the names of its fields, so that `_worded` misses it.
        message = self._text(_unless_its_own(rank.message, rank.cause))
        return replace(rank, message=message, lines=())

    def _kept_queue(self, queue: Queue) -> Queue:
        parent = self._queue(queue.parent) if queue.parent else ""
        return replace(queue, name=self._queue(queue.name), parent=parent)

    def _spec(self, spec: JobSpec) -> JobSpec:
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
            supplies=Supplies(resources=resources) if resources else NO_SUPPLIES,
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

    def _worded(self, value: T, job: str) -> T:
        """The same value with names replaced in every message, and without lines of output."""
        plain = msgspec.to_builtins(value)
        return msgspec.convert(self._walk(plain, job), type(value))

    def _walk(self, plain: Any, job: str, key: str = "") -> Any:
        if isinstance(plain, dict):
            return {k: self._walk(v, job, k) for k, v in plain.items() if k != "lines"}
        if isinstance(plain, list | tuple):
            return [self._walk(item, job, key) for item in plain]
        return self._text(plain, job) if isinstance(plain, str) and key in _WORDED else plain


def _is_its_own(cause: Cause | None) -> bool:
    """Whether a rank ended by its own doing, so that its message is its program's last words."""
    return cause is not None and cause not in PLATFORM_CAUSES


def _unless_its_own(message: str, cause: Cause | None) -> str:
    return HIDDEN if message and _is_its_own(cause) else message


def _said_before(job: Job) -> list[str]:
    """What its programs said at their end: as ranks have it, and at the end of ledger entries."""
    ranks = () if job.attempt is None else job.attempt.ranks
    said = [rank.message for rank in ranks if _is_its_own(rank.cause)]
    pasts = [past for past in job.restarts if _is_its_own(past.cause)]
    return said + [past.message.partition(f" on {past.node}: ")[2] for past in pasts]


def _bare(role: Role) -> tuple[dict[str, Any], str]:
    """What its template says to whoever places it, and what the container that speaks is called."""
    pod = role.template.get("spec") or {}
    kept = {key: pod[key] for key in _OF_PODS if pod.get(key)}
    speaker = ""
    for group in ("initContainers", "containers"):
        for number, container in enumerate(pod.get(group) or ()):
            alias = f"container-{number}"
            said = {key: container[key] for key in _OF_CONTAINERS if container.get(key)}
            kept.setdefault(group, []).append({"name": alias, **said})
            if group == "containers" and container.get("name") == role.container:
                speaker = alias
    return ({"spec": kept} if kept else {}), speaker


def _without_words(plain: Any) -> Any:
    """The same with every text hidden: what kinds remember of a manifest may be an environment."""
    if isinstance(plain, dict):
        return {key: _without_words(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_without_words(item) for item in plain]
    return HIDDEN if isinstance(plain, str) else plain
