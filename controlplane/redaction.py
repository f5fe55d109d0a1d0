"""A history without the names of people, jobs and teams, and without what they wrote.

Names become numbered ones, the same one everywhere. What only the person's program reads (images,
commands, environment values, labels, lines of output, most of a pod's template) is taken out. What
decisions hang on stays: ids, roles, sizes, nodes, times, exit codes, and what pods request and ask of
their nodes; so what was decided is still decided.
"""

import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from controlplane import events as e
from controlplane.job import Job
from controlplane.model import JobSpec, Role
from controlplane.requests import supplies_of
from controlplane.sharing import Queue
from controlplane.state import DEFAULT_QUEUE, Image
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
        self._names: dict[tuple[str, str], str] = {}
        for job in base.jobs:
            self._job(job.namespace, job.name)
        for queue in base.queues:
            self._queue(queue.name)
        for recorded in events:
            event = recorded.event
            if isinstance(event, e.JobSubmitted):
                self._job(event.namespace, event.name)
                self._queue(event.spec.queue)
            elif isinstance(event, e.QueueDefined):
                self._queue(event.queue.name)
            if recorded.actor:
                self._name("user", recorded.actor)
        self._pattern = self._mention()

    # -- names -------------------------------------------------------------------------------

    def _name(self, kind: str, name: str) -> str:
        known = self._names.get((kind, name))
        if known is None:
            count = sum(1 for key, _ in self._names if key == kind) + 1
            known = self._names[kind, name] = f"{kind}-{count}"
        return known

    def _job(self, namespace: str, name: str) -> tuple[str, str]:
        return self._name("team", namespace), self._name("job", name)

    def _queue(self, name: str) -> str:
        return name if name == DEFAULT_QUEUE.name else self._name("queue", name)

    def _mention(self) -> re.Pattern[str] | None:
        """A known name as a word of its own: `worker` is not meant by `worker-0`."""
        known = sorted({name for _, name in self._names if name}, key=lambda name: -len(name))
        if not known:
            return None
        return re.compile(r"(?<![\w-])(" + "|".join(map(re.escape, known)) + r")(?![\w-])")

    def _text(self, text: str) -> str:
        if self._pattern is None or not text:
            return text
        by_name = {name: alias for (_, name), alias in self._names.items()}
        return self._pattern.sub(lambda found: by_name[found.group()], text)

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
            leader="",
        )

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
        elif isinstance(event, e.QueueDefined):
            event = replace(event, queue=self._kept_queue(event.queue))
        elif isinstance(event, e.QueueRemoved):
            event = replace(event, name=self._queue(event.name))
        elif isinstance(event, e.CodeResolved):
            event = replace(event, commit=self._name("commit", event.commit))
        elif isinstance(event, e.EngineStarted):
            event = replace(event, address="")
        return self._worded(event)

    def _kept(self, job: Job) -> Job:
        namespace, name = self._job(job.namespace, job.name)
        commits = tuple(self._name("commit", commit) for commit in job.commits)
        spec = self._spec(job.spec)
        job = replace(job, namespace=namespace, name=name, spec=spec, commits=commits)
        return self._worded(job)

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

    def _worded(self, value: T) -> T:
        """The same value with names replaced in every message, and without lines of output."""
        plain = msgspec.to_builtins(value)
        return msgspec.convert(self._walk(plain), type(value))

    def _walk(self, plain: Any, key: str = "") -> Any:
        if isinstance(plain, dict):
            return {k: self._walk(v, k) for k, v in plain.items() if k != "lines"}
        if isinstance(plain, list | tuple):
            return [self._walk(item, key) for item in plain]
        return self._text(plain) if isinstance(plain, str) and key in _WORDED else plain


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
