"""All documents of a job in one cluster: pods, services, files, accounts and pod group. Pure."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec.structs import replace

from adapters.kubernetes.observe.labels import INSTANCE, JOB_ID, Document, run_labels
from adapters.kubernetes.render import pod_group, supplies
from adapters.kubernetes.render.pods import Notice, RolePods, notices
from adapters.kubernetes.render.site import Owner, Site, sharing, unbound
from controlplane.kinds.kind import (
    Files,
    GangContext,
    Kind,
    RankEnvironment,
    Service,
    with_owner_env,
)
from controlplane.kinds.manifest.pod_group import pod_group as gang_of
from controlplane.lifecycle.attempt import Attempt
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.runs import current_run
from controlplane.model.addresses import ServiceNames
from controlplane.model.resources import supplies_of

# Returns a fresh SSH key pair: (private, public), each as the text of its file.
KeyPair = Callable[[], tuple[str, str]]


class Rendering:
    """The documents of a job; what all of its ranks share is computed once.

    `owner` is the owner reference of all documents: when that object is deleted, Kubernetes deletes
    them too. `priorities` are the values of the cluster's priority classes that the job names; a
    class that is not in it counts as 0.
    """

    def __init__(
        self,
        job: Job,
        kind: Kind,
        site: Site | None = None,
        owner: Owner | None = None,
        priorities: Mapping[str, int] | None = None,
    ) -> None:
        self.job = job
        self._priorities = priorities or {}
        self._kind = kind
        self.site = site or Site()
        self._owner = owner
        self._gang = GangContext(job.namespace, job.name, job.spec, ServiceNames(self.site.domain))
        self._environments = kind.environments(self._gang)
        self._roles: dict[str, RolePods] = {}
        self._names: list[str] | None = None

    @property
    def names(self) -> list[str]:
        """The names of the ranks' pods in the order of the ranks."""
        if self._names is None:
            self._names = [self.environment(rank).name for rank in range(self.job.spec.size)]
        return self._names

    @property
    def is_owned(self) -> bool:
        """Whether the job is an object of this cluster, which owns all documents."""
        return self._owner is not None

    def environment(self, rank: int) -> RankEnvironment:
        """Return the rank environment of the kind."""
        return with_owner_env(self.job, self._environments(rank))

    def pod(self, rank: int) -> dict[str, Any]:
        """Return the pod of a rank in the current attempt; the job must have been placed."""
        attempt = self._attempt
        slot, share = attempt.placement[rank], attempt.share(rank)
        binding = self.site.bind(slot)
        # Where another scheduler chooses the node, Muster does not know which device to show.
        if share and self.site.bind is not unbound:
            role, _ = self.job.spec.role_of(rank)
            binding = sharing(binding, slot, share, role.gpu_memory_mib)
        labels = run_labels(current_run(self.job, rank))
        document = self._role_pods(rank).pod(self.environment(rank), labels, binding)
        return self._ours(document)

    def services(self) -> list[dict[str, Any]]:
        """Return the services of the kind, and the one of the TensorBoard."""
        made = [_service(each) for each in self._kind.services(self._gang)]
        if self._board() is not None:
            made.append(supplies.board_service(self.job.name))
        return [self._ours(each) for each in made]

    def boards(self) -> list[dict[str, Any]]:
        """Return the deployment of the TensorBoard; empty if the job has none."""
        board = self._board()
        return [] if board is None else [self._ours(board)]

    def _board(self) -> dict[str, Any] | None:
        wanted = supplies_of(self.job.spec)
        return supplies.board(self.job.name, wanted, self.site.board_image)

    def config_maps(self, running: Collection[int]) -> list[dict[str, Any]]:
        """Return the files other than keys; a host file depends on the ranks in `running`."""
        files = self._kind.files(self._placed_gang(), running)
        plain = [each for each in files if not each.ssh_keys]
        return [self._ours(_config_map(each)) for each in plain]

    def _placed_gang(self) -> GangContext:
        """Return the gang without ranks that have no slot yet, which no other rank can reach."""
        spec, attempt = self.job.spec, self.job.attempt
        missing = 0 if attempt is None else spec.size - len(attempt.ranks)
        if missing <= 0:
            return self._gang
        roles = list(spec.roles)
        for number in reversed(range(len(roles))):
            fewer = min(missing, roles[number].replicas)
            roles[number] = replace(roles[number], replicas=roles[number].replicas - fewer)
            missing -= fewer
        return self._gang._replace(spec=replace(spec, roles=tuple(roles)))

    def accounts(self) -> list[dict[str, Any]]:
        """Return account, role and role binding for ranks that run commands in other pods."""
        accounts: list[dict[str, Any]] = []
        for role in self.job.spec.roles:
            if role.replicas:
                environment = self.environment(self.job.spec.ranks_of(role.name)[0])
                if environment.may_exec_in:
                    own = role.template.get("spec", {}).get("serviceAccountName")
                    accounts += _accounts(
                        environment, self.job.namespace, is_made=own != environment.account
                    )
        return [self._ours(each) for each in accounts]

    def secrets(self) -> list[str]:
        """Return the names of the secrets that hold a key pair."""
        return [each.name for each in self._kind.files(self._gang, ()) if each.ssh_keys]

    def secret(self, name: str, key_pair: KeyPair) -> dict[str, Any]:
        """Return the secret `name` with a fresh key pair."""
        private, public = key_pair()
        return self._ours(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name},
                "type": "kubernetes.io/ssh-auth",
                "stringData": {"ssh-privatekey": private, "ssh-publickey": public},
            }
        )

    def pod_group(self, existing: Document | None) -> dict[str, Any]:
        """Return the pod group for the site's gang scheduler; `existing` is the present one or None.

        The queue of an existing group is kept, because a scheduler may have moved the group there.
        """
        queue_now = ((existing or {}).get("spec") or {}).get("queue", "")
        group = gang_of(self._gang, self._priorities, queue_now=queue_now)
        return self._ours(pod_group.document(self.site.gang, group))

    def autoscalers(self) -> list[dict[str, Any]]:
        """Return the autoscaler of an elastic job that names metrics; empty for other jobs."""
        policy = self.job.spec.options.get("elasticPolicy") or {}
        if not policy.get("metrics"):
            return []
        return [self._ours(_autoscaler(self.job, policy))]

    def notices(self) -> list[Notice]:
        """Return warnings about fields of the templates that are not used."""
        spec = self.job.spec
        return [notice for role in spec.roles for notice in notices(spec, role, self.site)]

    def _role_pods(self, rank: int) -> RolePods:
        role, _ = self.job.spec.role_of(rank)
        role_pods = self._roles.get(role.name)
        if role_pods is None:
            files = self._kind.files(self._gang, ())
            commit = self.job.commits[0] if self.job.commits else ""
            role_pods = self._roles[role.name] = RolePods(
                self.job.spec, role, files, self.site, self.job.name, commit
            )
        return role_pods

    @property
    def _attempt(self) -> Attempt:
        assert self.job.attempt is not None, f"{self.job.id} was never placed"
        return self.job.attempt

    def _ours(self, document: dict[str, Any]) -> dict[str, Any]:
        """Add the job's namespace, labels and owner to `document`, in place, and return it."""
        metadata: dict[str, Any] = document["metadata"]
        metadata["namespace"] = self.job.namespace
        metadata["labels"] = {**metadata.get("labels", {}), JOB_ID: self.job.id}
        if self.site.instance:
            metadata["labels"][INSTANCE] = self.site.instance
        if self._owner is not None:
            metadata["ownerReferences"] = [self._owner]
        return document


def _service(service: Service) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "clusterIP": "None",
        "selector": dict(service.selector),
        "ports": [{"name": name, "port": port, "targetPort": port} for name, port in service.ports],
    }
    if service.before_ready:
        spec["publishNotReadyAddresses"] = True
    metadata: dict[str, Any] = {"name": service.name, "labels": dict(service.selector)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _accounts(
    environment: RankEnvironment, namespace: str, *, is_made: bool
) -> list[dict[str, Any]]:
    """Allow a rank to read pods, and to run commands in `environment.may_exec_in` only.

    The account itself is included only with `is_made`.
    """
    rbac, name = "rbac.authorization.k8s.io", environment.name
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        {
            "apiGroups": [""],
            "resources": ["pods/exec"],
            "resourceNames": list(environment.may_exec_in),
            "verbs": ["create"],
        },
    ]
    subject = {"kind": "ServiceAccount", "name": environment.account, "namespace": namespace}
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": environment.account},
    }
    return [
        *([account] if is_made else []),
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "subjects": [subject],
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
        },
    ]


def _autoscaler(job: Job, policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return an autoscaler of the job's custom resource; needed only with the operator."""
    target = {"apiVersion": job.spec.version, "kind": job.spec.kind, "name": job.name}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": job.name},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": policy.get("minReplicas"),
            "maxReplicas": policy.get("maxReplicas"),
            "metrics": policy["metrics"],
        },
    }


def _config_map(files: Files) -> dict[str, Any]:
    contents: Mapping[str, str] = files.contents
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": files.name},
        "data": dict(contents),
    }
