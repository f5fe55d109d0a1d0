"""What to create, delete and change so that the cluster holds what a job's state asks for.

Laws that hold here:

1. A plan is read off the job and what was observed; nothing is remembered. Carried out, the next
   one is empty, and where nothing differs nothing is written.
2. Names are stable over a job's attempts, so a pod of an older run is deleted first, and the new
   one is made only when the old one is gone: no rank runs twice.
3. An object of the same name that is not ours is never touched; it is a conflict with a reason,
   and nothing is made beside it (`sightings.blocked` tells the core).
4. A rank whose pod has vanished is not given another one here. The core hears of it and decides.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from adapters.kubernetes import changes, gang_schedulers
from adapters.kubernetes.marks import (
    JOB_ID,
    Document,
    is_terminating,
    labels_of,
    mark_of,
    name_of,
)
from adapters.kubernetes.objects import KeyPair, Rendering
from adapters.kubernetes.wishes import LAST_SECONDS, Wish, is_ending, pod_wish
from controlplane.attempt import LIVE, RankState
from controlplane.effects import ranks_to_run
from controlplane.job import Phase

CONFLICT_REASON = "ErrResourceExists"


class Ref(NamedTuple):
    kind: str
    name: str


class Patch(NamedTuple):
    """A merge patch."""

    kind: str
    name: str
    body: dict[str, Any]


class Conflict(NamedTuple):
    kind: str
    name: str
    message: str
    reason: str = CONFLICT_REASON


class Plan(NamedTuple):
    create: list[dict[str, Any]]
    delete: list[Ref]
    patch: list[Patch]
    conflicts: list[Conflict]

    @property
    def is_empty(self) -> bool:
        return not (self.create or self.delete or self.patch)


# Objects of the job's namespace by kind and name: all that carry the job's label, and whatever
# else has a name that the job needs.
Observed = Mapping[Ref, Document]


def plan(rendering: Rendering, observed: Observed, key_pair: KeyPair) -> Plan:
    """All that is to do for one job now."""
    return _Planner(rendering, observed, key_pair).plan()


def sweep(observed: Observed, is_known: Callable[[str], bool]) -> list[Ref]:
    """What is left of jobs that nobody knows any more."""
    return [
        ref
        for ref, document in observed.items()
        if not is_known(labels_of(document).get(JOB_ID, ""))
        and JOB_ID in labels_of(document)
        and not is_terminating(document)
    ]


class _Planner:
    def __init__(self, rendering: Rendering, observed: Observed, key_pair: KeyPair) -> None:
        self._rendering = rendering
        self._job = rendering.job
        self._observed = observed
        self._key_pair = key_pair
        self._plan = Plan([], [], [], [])
        self._to_run = frozenset(ranks_to_run(self._job))
        # Pods that are there and stay, by name: the services that lead to them stay too.
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
        # Names must resolve and files be there before the first process looks for them.
        if self._may_have_pods:
            self._plan.create.extend(pods)
        if self._plan.conflicts:
            # All of a gang or none of it: what could not be completed is not begun.
            self._plan.create.clear()
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
                self._carry_out(pod_wish(self._job, None, pod, ()), None, name_of(pod), pod)

    def _pod(self, rank: int, name: str) -> None:
        pod = self._observed.get(Ref("Pod", name))
        if pod is not None and not self._is_ours(pod):
            if pod_wish(self._job, rank, None, self._to_run) is Wish.EXIST:
                self._conflict("Pod", name, pod)
            return
        wish = pod_wish(self._job, rank, pod, self._to_run)
        if pod is not None and not self._job.finished and not self._is_current(rank, pod):
            wish = Wish.ABSENT
        self._carry_out(wish, rank, name, pod)

    def _is_current(self, rank: int, pod: Document) -> bool:
        mark, attempt = mark_of(pod), self._job.attempt
        if mark is None or attempt is None or rank >= len(attempt.ranks):
            return False
        run = (attempt.number, attempt.ranks[rank].incarnation)
        return (mark.attempt, mark.incarnation) == run

    def _carry_out(self, wish: Wish, rank: int | None, name: str, pod: Document | None) -> None:
        if pod is None:
            if wish is Wish.EXIST and rank is not None and self._is_new(rank):
                self._plan.create.append(self._rendering.pod(rank))
            return
        if wish is Wish.ABSENT:
            self._delete("Pod", pod)
            return
        self._staying.add(name)
        if wish is Wish.END and not is_terminating(pod) and not is_ending(pod):
            body = {"spec": {"activeDeadlineSeconds": LAST_SECONDS}}
            self._plan.patch.append(Patch("Pod", name, body))

    def _is_new(self, rank: int) -> bool:
        attempt = self._job.attempt
        if attempt is None or rank >= len(attempt.ranks):
            return False
        return attempt.ranks[rank].state is RankState.PENDING

    # ------------------------------------------------------------------ services and files

    def _services(self) -> None:
        """A service that leads to one rank goes when its pod does; shared ones stay to the end."""
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
                self._make("Service", document, changes.service)
            wanted.add(name)
        for service in self._ours("Service"):
            if name_of(service) not in wanted:
                self._delete("Service", service)

    def _pod_group(self) -> None:
        """There as long as the gang is; what a scheduler was told of a running gang stays so."""
        rendering = self._rendering
        if rendering.site.gang and self._is_active:
            found = self._observed.get(Ref("PodGroup", self._job.name))
            self._make("PodGroup", rendering.pod_group(found), gang_schedulers.changes)
        elif self._job.finished or self._job.phase is Phase.SUSPENDED:
            for group in self._ours("PodGroup"):
                self._delete("PodGroup", group)

    @property
    def _may_have_pods(self) -> bool:
        group = self._observed.get(Ref("PodGroup", self._job.name))
        return gang_schedulers.lets_pods_in(self._rendering.site.gang, group)

    def _autoscalers(self) -> None:
        if self._is_active and self._rendering.is_owned:
            for document in self._rendering.autoscalers():
                self._make(document["kind"], document, gang_schedulers.changes)
        elif self._job.finished or self._job.phase is Phase.SUSPENDED:
            for each in self._ours("HorizontalPodAutoscaler"):
                self._delete("HorizontalPodAutoscaler", each)

    def _boards(self) -> None:
        """What shows a job's results is there from its start until the job is forgotten."""
        if self._is_active:
            for document in self._rendering.boards():
                self._make("Deployment", document, lambda found, wanted: {})
        elif self._job.deleting:
            for each in self._ours("Deployment"):
                self._delete("Deployment", each)

    def _files(self) -> None:
        attempt = self._job.attempt
        assert attempt is not None
        running = [i for i, rank in enumerate(attempt.ranks) if rank.state is RankState.RUNNING]
        for document in self._rendering.config_maps(running):
            self._make("ConfigMap", document, changes.data)
        for document in self._rendering.accounts():
            self._make(document["kind"], document, changes.rules)
        for name in self._rendering.secrets():
            found = self._observed.get(Ref("Secret", name))
            if found is None:
                self._plan.create.append(self._rendering.secret(name, self._key_pair))
            elif not self._is_ours(found):
                self._conflict("Secret", name, found)

    def _make(
        self,
        kind: str,
        document: dict[str, Any],
        compare: Callable[[Document, Document], dict[str, Any]],
    ) -> None:
        name = name_of(document)
        found = self._observed.get(Ref(kind, name))
        if found is None:
            self._plan.create.append(document)
        elif not self._is_ours(found):
            self._conflict(kind, name, found)
        elif body := compare(found, document):
            self._plan.patch.append(Patch(kind, name, body))

    # ------------------------------------------------------------------ whose is it

    def _ours(self, kind: str) -> Iterator[Document]:
        for ref, document in self._observed.items():
            if ref.kind == kind and self._is_ours(document):
                yield document

    def _is_ours(self, document: Document) -> bool:
        return labels_of(document).get(JOB_ID) == self._job.id

    def _delete(self, kind: str, document: Document) -> None:
        if not is_terminating(document):
            self._plan.delete.append(Ref(kind, name_of(document)))

    def _conflict(self, kind: str, name: str, found: Document) -> None:
        other = labels_of(found).get(JOB_ID)
        whose = f"job {other}" if other else "somebody else"
        told = f"{kind} {name} exists already and belongs to {whose}; remove or rename one of them"
        self._plan.conflicts.append(Conflict(kind, name, told))
