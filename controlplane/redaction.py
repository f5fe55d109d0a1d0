"""A history without the names of people, jobs and teams, and without what they wrote.

Names become numbered ones, the same one everywhere. What only the person's program reads (images,
commands, environment values, labels, pod templates, lines of output) is taken out. What decisions
hang on stays: ids, roles, sizes, nodes, times and exit codes; so what was decided is still decided.
"""

import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from controlplane import events as e
from controlplane.job import Job
from controlplane.model import JobSpec, Role
from controlplane.sharing import Queue
from controlplane.state import DEFAULT_QUEUE, Image
from controlplane.supplies import NO_SUPPLIES

T = TypeVar("T")

HIDDEN = "redacted"
# Told by the cluster or by a decision in words, in which a name may occur.
_WORDED = frozenset({"message", "reason"})


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
        elif isinstance(event, e.EngineStarted):
            event = replace(event, address="")
        return self._worded(event)

    def _kept(self, job: Job) -> Job:
        namespace, name = self._job(job.namespace, job.name)
        job = replace(job, namespace=namespace, name=name, spec=self._spec(job.spec))
        return self._worded(job)

    def _kept_queue(self, queue: Queue) -> Queue:
        return replace(queue, name=self._queue(queue.name))

    def _spec(self, spec: JobSpec) -> JobSpec:
        return replace(
            spec,
            roles=tuple(self._role(role) for role in spec.roles),
            queue=self._queue(spec.queue),
            labels=dict.fromkeys(spec.labels, HIDDEN),
            annotations={},
            supplies=NO_SUPPLIES,
        )

    def _role(self, role: Role) -> Role:
        return replace(
            role,
            image=self._name("image", role.image) if role.image else "",
            command=(HIDDEN,) if role.command else (),
            args=(HIDDEN,) if role.args else (),
            env=dict.fromkeys(role.env, HIDDEN),
            template={},
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
