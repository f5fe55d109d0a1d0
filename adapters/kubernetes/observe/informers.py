"""Informers: Muster's own objects indexed by job, the nodes, and the pods of other workloads."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from adapters.kubernetes.api.connection import Connection
from adapters.kubernetes.api.errors import ApiError
from adapters.kubernetes.api.reflector import Change, Key, Reflector, key_of, uid_of
from adapters.kubernetes.api.resources import Resource, resource_of
from adapters.kubernetes.observe.labels import INSTANCE, JOB_ID, Document, labels_of
from adapters.kubernetes.observe.nodes import asks_something, gpus_asked, is_ready, requested
from adapters.kubernetes.reconcile.desired_pods import is_over
from adapters.kubernetes.reconcile.plan import Ref

# Watched are the kinds of which a job may have many objects, or which other clients change. Of the
# other kinds (keys, accounts) a job has few objects, which are read when it needs them.
WATCHED = ("Pod", "Service", "ConfigMap")

OnChange = Callable[[str, str, Change], None]


class JobInformers:
    """The reflectors of one cluster, and an index of Muster's own objects by job.

    `instance` selects the objects of this control plane. `namespaces` limits what is watched,
    except nodes; empty means all. `pod_groups` is the apiVersion of the gang scheduler's PodGroup,
    "" for none. `on_change` is called with the job's id, the kind and the change; `on_node` with
    changes of nodes; `on_other` with changes of other workloads' pods.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        instance: str,
        namespaces: Sequence[str] = (),
        pod_groups: str = "",
        resync_s: float = 300.0,
        on_change: OnChange,
        on_node: Callable[[Change], None],
        on_other: Callable[[Change], None],
    ) -> None:
        self.instance = instance
        self._by_job: dict[str, dict[Ref, Document]] = {}
        self._on_change = on_change
        self._mine: dict[tuple[str, str], Reflector] = {}
        # "" lists all namespaces at once.
        places = tuple(namespaces) or ("",)
        ours = f"{INSTANCE}={instance},{JOB_ID}"
        kinds = [resource_of(kind) for kind in WATCHED]
        if pod_groups:
            kinds.append(resource_of("PodGroup", pod_groups))
        for place in places:
            for resource in kinds:
                self._mine[resource.kind, place] = Reflector(
                    connection,
                    resource.all(place),
                    labels=ours,
                    on_change=self._listener(resource),
                    resync_s=resync_s,
                )
        self.nodes = Reflector(
            connection, resource_of("Node").all(), on_change=on_node, trim=_node, resync_s=resync_s
        )
        self.others = [
            Reflector(
                connection,
                resource_of("Pod").all(place),
                labels=f"{INSTANCE}!={instance}",
                keeps=_uses_something,
                trim=_other,
                on_change=on_other,
                resync_s=resync_s,
            )
            for place in places
        ]

    @property
    def reflectors(self) -> list[Reflector]:
        return [*self._mine.values(), self.nodes, *self.others]

    @property
    def trouble(self) -> ApiError | None:
        """The error of the first reflector that cannot list or watch now; None if all can."""
        return next((each.trouble for each in self.reflectors if each.trouble), None)

    async def see_jobs(self) -> None:
        """Wait until all objects of this instance are listed: until then, absence means nothing."""
        await _all_synced(self._mine.values())

    async def see_nodes(self) -> None:
        """Wait until the nodes and the pods of other workloads have been listed."""
        await _all_synced([self.nodes, *self.others])

    def answers(self, node: str) -> bool:
        """Return whether `node` exists and is ready; True before the nodes have been listed."""
        item = self.nodes.items.get(Key("", node))
        return not self.nodes.synced.is_set() or (item is not None and is_ready(item))

    # ------------------------------------------------------------------ our own objects

    def of_job(self, job: str) -> Mapping[Ref, Document]:
        """Return the watched objects of a job by kind and name; empty if there are none."""
        return self._by_job.get(job, {})

    def pods_of(self, job: str) -> dict[str, Document]:
        """Return the pods of a job by name; empty if there are none."""
        return {ref.name: each for ref, each in self.of_job(job).items() if ref.kind == "Pod"}

    def all_pods(self) -> Iterable[Document]:
        for (kind, _), reflector in self._mine.items():
            if kind == "Pod":
                yield from reflector.items.values()

    @property
    def jobs(self) -> list[str]:
        """The ids of all jobs that have watched objects, sorted."""
        return sorted(self._by_job)

    def put(self, document: dict[str, Any]) -> None:
        """Store an object from the answer to a request; ignore kinds that are not watched."""
        if (reflector := self._reflector(document)) is not None:
            reflector.put(document)

    def forget(self, document: Document) -> None:
        """Drop an object that a request could not find any more."""
        if (reflector := self._reflector(document)) is not None:
            reflector.forget(key_of(document), uid_of(document))

    def _reflector(self, document: Document) -> Reflector | None:
        kind, namespace = document["kind"], document["metadata"].get("namespace", "")
        return self._mine.get((kind, namespace)) or self._mine.get((kind, ""))

    def _listener(self, resource: Resource) -> Callable[[Change], None]:
        def on_change(change: Change) -> None:
            job = labels_of(change.document).get(JOB_ID, "")
            objects = self._by_job.setdefault(job, {})
            ref = Ref(resource.kind, change.key.name)
            if change.now is None:
                objects.pop(ref, None)
                if not objects:
                    del self._by_job[job]
            else:
                objects[ref] = change.now
            self._on_change(job, resource.kind, change)

        return on_change


async def _all_synced(reflectors: Iterable[Reflector]) -> None:
    await asyncio.gather(*(each.synced.wait() for each in reflectors))


def _uses_something(pod: Document) -> bool:
    bound = bool((pod.get("spec") or {}).get("nodeName"))
    return bound and not is_over(pod) and asks_something(pod)


def _other(pod: dict[str, Any]) -> Document:
    """Return the parts of another workload's pod that matter: its node and what it requests."""
    metadata = pod["metadata"]
    kept = {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion")}
    return {
        "metadata": kept,
        "node": pod["spec"]["nodeName"],
        "gpus": gpus_asked(pod),
        "requests": requested(pod),
    }


def _node(node: dict[str, Any]) -> Document:
    """Return a node without its list of images and without its heartbeat times."""
    status: Mapping[str, Any] = node.get("status") or {}
    conditions = [
        {name: each[name] for name in ("type", "status", "reason", "message") if name in each}
        for each in status.get("conditions") or ()
    ]
    kept = {name: status[name] for name in ("capacity", "allocatable") if name in status}
    return {**node, "status": {**kept, "conditions": conditions}}
