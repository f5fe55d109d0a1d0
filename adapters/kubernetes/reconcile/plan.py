"""What to create, delete and patch so that the cluster matches a job's state. Pure.

Rules:

1. A plan depends only on the job and the observed objects; nothing is remembered. After a plan has
   been carried out the next one is empty, and where nothing differs nothing is written.
2. Names are stable over a job's attempts, so the pod of an older run is deleted first, and the new
   one is created only when the old one is gone: no rank runs twice.
3. An object with the same name that does not belong to the job is never touched. It is a conflict
   with a reason, and nothing is created (`pod_status.blocked` reports it to the core).
4. A rank whose pod has vanished does not get another pod here. The core receives a report and
   decides.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from adapters.kubernetes.observe.labels import (
    JOB_ID,
    Document,
    is_current,
    is_terminating,
    labels_of,
    name_of,
)
from adapters.kubernetes.reconcile import diff
from adapters.kubernetes.reconcile.desired_pods import (
    LAST_SECONDS,
    DesiredState,
    desired_state,
    is_ending,
)
from adapters.kubernetes.render import pod_group
from adapters.kubernetes.render.objects import KeyPair, Rendering
from adapters.kubernetes.render.pods import Notice
from controlplane.lifecycle.effects import ranks_to_run
from controlplane.model.phases import LIVE, Phase, RankState

CONFLICT_REASON = "ErrResourceExists"


class Ref(NamedTuple):
    """The kind and name of an object within the job's namespace."""

    kind: str
    name: str


class Patch(NamedTuple):
    """A merge patch of one object."""

    kind: str
    name: str
    body: dict[str, Any]


class ObjectConflict(NamedTuple):
    """An object that cannot be created, and why."""

    kind: str
    name: str
    message: str
    reason: str = CONFLICT_REASON


class Plan(NamedTuple):
    """The requests for one job; with conflicts, `create` is empty."""

    create: list[dict[str, Any]]
    delete: list[Ref]
    patch: list[Patch]
    conflicts: list[ObjectConflict]
    # Fields of the templates that the pods in `create` do not use.
    notices: tuple[Notice, ...] = ()


# Objects of the job's namespace by kind and name: all that carry the job's label, and all others
# that have a name which the job needs.
Observed = Mapping[Ref, Document]


def plan(rendering: Rendering, observed: Observed, key_pair: KeyPair) -> Plan:
    """Return all changes that one job needs now.

    `observed` must be complete: an object that is missing from it is created. `key_pair` is called
    only if a secret has to be created.
    """
    return _Planner(rendering, observed, key_pair).plan()


class _Planner:
    def __init__(self, rendering: Rendering, observed: Observed, key_pair: KeyPair) -> None:
        self._rendering = rendering
        self._job = rendering.job
        self._observed = observed
        self._key_pair = key_pair
        self._plan = Plan([], [], [], [])
        self._to_run = frozenset(ranks_to_run(self._job))
        # The names of the pods that exist and stay; the services that select them stay too.
        self._staying: set[str] = set()

    def plan(self) -> Plan:
        self._pods()
        pods, self._plan.create[:] = list(self._plan.create), []
        if self._is_active:
            self._files()
        self._services()
        self._pod_group()
        self._autoscalers()
        self._boards()
        # Pods come last: names must resolve and files exist before the first process needs them.
        if self._may_have_pods:
            self._plan.create.extend(pods)
        if self._plan.conflicts:
            # A gang is created as a whole or not at all.
            self._plan.create.clear()
        if any(each["kind"] == "Pod" for each in self._plan.create):
            return self._plan._replace(notices=tuple(self._rendering.notices()))
        return self._plan

    @property
    def _is_active(self) -> bool:
        attempt = self._job.attempt
        return not self._job.finished and attempt is not None and attempt.state in LIVE

    # ------------------------------------------------------------------ pods

    def _pods(self) -> None:
        names = self._rendering.names
        for rank, name in enumerate(names):
            self._pod(rank, name)
        wanted = set(names)
        for pod in self._ours("Pod"):
            if name_of(pod) not in wanted:
                self._carry_out(desired_state(self._job, None, pod, ()), None, name_of(pod), pod)

    def _pod(self, rank: int, name: str) -> None:
        pod = self._observed.get(Ref("Pod", name))
        if pod is not None and not self._is_ours(pod):
            if desired_state(self._job, rank, None, self._to_run) is DesiredState.EXIST:
                self._conflict("Pod", name, pod)
            return
        desired = desired_state(self._job, rank, pod, self._to_run)
        if pod is not None and not self._job.finished and not is_current(self._job, rank, pod):
            desired = DesiredState.ABSENT
        self._carry_out(desired, rank, name, pod)

    def _carry_out(
        self, desired: DesiredState, rank: int | None, name: str, pod: Document | None
    ) -> None:
        if pod is None:
            if desired is DesiredState.EXIST and rank is not None and self._is_new(rank):
                self._plan.create.append(self._rendering.pod(rank))
            return
        if desired is DesiredState.ABSENT:
            self._delete("Pod", pod)
            return
        self._staying.add(name)
        if desired is DesiredState.END and not is_terminating(pod) and not is_ending(pod):
            body = {"spec": {"activeDeadlineSeconds": LAST_SECONDS}}
            self._plan.patch.append(Patch("Pod", name, body))

    def _is_new(self, rank: int) -> bool:
        attempt = self._job.attempt
        if attempt is None or rank >= len(attempt.ranks):
            return False
        return attempt.ranks[rank].state is RankState.PENDING

    # ------------------------------------------------------------------ services and files

    def _services(self) -> None:
        """Plan the services: one for a single rank goes with its pod, shared ones stay longer."""
        job, wanted = self._job, set[str]()
        ranks = set(self._rendering.names)
        for document in self._rendering.services():
            name = name_of(document)
            if job.finished or job.phase is Phase.SUSPENDED:
                if name in ranks and name not in self._staying:
                    continue
                if job.deleting:
                    continue
            elif self._is_active:
                self._make("Service", document, diff.service)
            wanted.add(name)
        for service in self._ours("Service"):
            if name_of(service) not in wanted:
                self._delete("Service", service)

    def _pod_group(self) -> None:
        """Plan the pod group, which exists as long as the gang does."""
        rendering = self._rendering
        if rendering.site.gang and self._is_active:
            existing = self._observed.get(Ref("PodGroup", self._job.name))
            self._make("PodGroup", rendering.pod_group(existing), pod_group.changes)
        elif self._job.finished or self._job.phase is Phase.SUSPENDED:
            for group in self._ours("PodGroup"):
                self._delete("PodGroup", group)

    @property
    def _may_have_pods(self) -> bool:
        group = self._observed.get(Ref("PodGroup", self._job.name))
        return pod_group.lets_pods_in(self._rendering.site.gang, group)

    def _autoscalers(self) -> None:
        if self._is_active and self._rendering.is_owned:
            for document in self._rendering.autoscalers():
                self._make(document["kind"], document, pod_group.changes)
        elif self._job.finished or self._job.phase is Phase.SUSPENDED:
            for each in self._ours("HorizontalPodAutoscaler"):
                self._delete("HorizontalPodAutoscaler", each)

    def _boards(self) -> None:
        """Plan the TensorBoard, which exists from the job's start until the job is deleted."""
        if self._is_active:
            for document in self._rendering.boards():
                self._make("Deployment", document, lambda observed, wanted: {})
        elif self._job.deleting:
            for each in self._ours("Deployment"):
                self._delete("Deployment", each)

    def _files(self) -> None:
        attempt = self._job.attempt
        assert attempt is not None
        running = [i for i, rank in enumerate(attempt.ranks) if rank.state is RankState.RUNNING]
        for document in self._rendering.config_maps(running):
            self._make("ConfigMap", document, diff.data)
        for document in self._rendering.accounts():
            self._make(document["kind"], document, diff.rules)
        for name in self._rendering.secrets():
            existing = self._observed.get(Ref("Secret", name))
            if existing is None:
                self._plan.create.append(self._rendering.secret(name, self._key_pair))
            elif not self._is_ours(existing):
                self._conflict("Secret", name, existing)

    def _make(
        self,
        kind: str,
        document: dict[str, Any],
        compare: Callable[[Document, Document], dict[str, Any]],
    ) -> None:
        name = name_of(document)
        existing = self._observed.get(Ref(kind, name))
        if existing is None:
            self._plan.create.append(document)
        elif not self._is_ours(existing):
            self._conflict(kind, name, existing)
        elif body := compare(existing, document):
            self._plan.patch.append(Patch(kind, name, body))

    # ------------------------------------------------------------------ ownership

    def _ours(self, kind: str) -> Iterator[Document]:
        for ref, document in self._observed.items():
            if ref.kind == kind and self._is_ours(document):
                yield document

    def _is_ours(self, document: Document) -> bool:
        return labels_of(document).get(JOB_ID) == self._job.id

    def _delete(self, kind: str, document: Document) -> None:
        if not is_terminating(document):
            self._plan.delete.append(Ref(kind, name_of(document)))

    def _conflict(self, kind: str, name: str, existing: Document) -> None:
        other = labels_of(existing).get(JOB_ID)
        whose = f"job {other}" if other else "another controller"
        message = (
            f"{kind} {name} exists already and belongs to {whose}; remove or rename one of them"
        )
        self._plan.conflicts.append(ObjectConflict(kind, name, message))
