"""Every document of a job in one cluster: its pods, services and files. Pure."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec.structs import replace

from adapters.kubernetes import gang_schedulers, supplies
from adapters.kubernetes.marks import INSTANCE, JOB_ID, Document, Mark
from adapters.kubernetes.pods import Notice, RolePods, notices
from adapters.kubernetes.site import Owner, Site, sharing, unbound
from controlplane.attempt import Attempt
from controlplane.job import Job
from controlplane.kinds.kind import Files, Gang, Kind, Service, Told
from controlplane.kinds.pod_group import pod_group
from controlplane.requests import supplies_of

# A fresh SSH key pair: (private, public), each as the text of its file.
KeyPair = Callable[[], tuple[str, str]]


class Rendering:
    """A job's documents; what is the same for all of its ranks is worked out once.

    `owner` is the object that everything hangs on, so that deleting it takes everything along.
    `priorities` are the values of the cluster's priority classes that the job names; a class that
    is not among them counts as 0.
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
        self._gang = Gang(job.namespace, job.name, job.spec, self.site.domain)
        self._tell = kind.tell(self._gang)
        self._roles: dict[str, RolePods] = {}
        self._names: list[str] | None = None

    @property
    def names(self) -> list[str]:
        """The names of the ranks' pods, in the order of the ranks."""
        if self._names is None:
            self._names = [self.told(rank).name for rank in range(self.job.spec.size)]
        return self._names

    @property
    def is_owned(self) -> bool:
        """Whether the job is an object of this cluster, on which everything hangs."""
        return self._owner is not None

    def told(self, rank: int) -> Told:
        return self._tell(rank)

    def pod(self, rank: int) -> dict[str, Any]:
        """The pod of a rank of the current attempt."""
        attempt = self._attempt
        mark = Mark(self.job.id, attempt.number, rank, attempt.ranks[rank].incarnation)
        slot, share = attempt.placement[rank], attempt.share(rank)
        binding = self.site.bind(slot)
        # Where another scheduler chooses the node, its devices are not ours to show.
        if share and self.site.bind is not unbound:
            role, _ = self.job.spec.role_of(rank)
            binding = sharing(binding, slot, share, role.gpu_memory_mib)
        document = self._role_pods(rank).pod(self.told(rank), mark.labels(), binding)
        return self._ours(document)

    def services(self) -> list[dict[str, Any]]:
        made = [_service(each) for each in self._kind.services(self._gang)]
        if self._board() is not None:
            made.append(supplies.board_service(self.job.name))
        return [self._ours(each) for each in made]

    def boards(self) -> list[dict[str, Any]]:
        """The TensorBoard that the job asks for, if it does."""
        found = self._board()
        return [] if found is None else [self._ours(found)]

    def _board(self) -> dict[str, Any] | None:
        wanted = supplies_of(self.job.spec)
        return supplies.board(self.job.name, wanted, self.site.board_image)

    def config_maps(self, running: Collection[int]) -> list[dict[str, Any]]:
        """Files with contents; a list of hosts depends on which ranks run now."""
        files = self._kind.files(self._placed_gang(), running)
        found = [each for each in files if not each.ssh_keys]
        return [self._ours(_config_map(each)) for each in found]

    def _placed_gang(self) -> Gang:
        """The gang without the ranks that have no place yet, which no other rank can reach."""
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
        """For a rank that runs commands in other pods: its account, and the right to do so."""
        found: list[dict[str, Any]] = []
        for role in self.job.spec.roles:
            if role.replicas:
                told = self.told(self.job.spec.ranks_of(role.name)[0])
                if told.may_exec_in:
                    own = role.template.get("spec", {}).get("serviceAccountName")
                    found += _accounts(told, self.job.namespace, is_made=own != told.account)
        return [self._ours(each) for each in found]

    def secrets(self) -> list[str]:
        """The names of the secrets that hold a key pair."""
        return [each.name for each in self._kind.files(self._gang, ()) if each.ssh_keys]

    def secret(self, name: str, key_pair: KeyPair) -> dict[str, Any]:
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

    def pod_group(self, found: Document | None) -> dict[str, Any]:
        """The gang as the site's gang scheduler wants it told; `found` is what it says now."""
        queue_now = ((found or {}).get("spec") or {}).get("queue", "")
        group = pod_group(self._gang, self._priorities, queue_now=queue_now)
        return self._ours(gang_schedulers.document(self.site.gang, group))

    def autoscalers(self) -> list[dict[str, Any]]:
        """An elastic job that names metrics is scaled by them, within its own limits."""
        policy = self.job.spec.options.get("elasticPolicy") or {}
        if not policy.get("metrics"):
            return []
        return [self._ours(_autoscaler(self.job, policy))]

    def notices(self) -> list[Notice]:
        spec = self.job.spec
        return [told for role in spec.roles for told in notices(spec, role, self.site)]

    def _role_pods(self, rank: int) -> RolePods:
        role, _ = self.job.spec.role_of(rank)
        found = self._roles.get(role.name)
        if found is None:
            files = self._kind.files(self._gang, ())
            commit = self.job.commits[0] if self.job.commits else ""
            found = self._roles[role.name] = RolePods(
                self.job.spec, role, files, self.site, self.job.name, commit
            )
        return found

    @property
    def _attempt(self) -> Attempt:
        assert self.job.attempt is not None, f"{self.job.id} was never placed"
        return self.job.attempt

    def _ours(self, document: dict[str, Any]) -> dict[str, Any]:
        """The document with the job's namespace, label and owner."""
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


def _accounts(told: Told, namespace: str, *, is_made: bool) -> list[dict[str, Any]]:
    """A rank looks at pods, and runs commands in those it is told of and in no others."""
    rbac, name = "rbac.authorization.k8s.io", told.name
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        {
            "apiGroups": [""],
            "resources": ["pods/exec"],
            "resourceNames": list(told.may_exec_in),
            "verbs": ["create"],
        },
    ]
    subject = {"kind": "ServiceAccount", "name": told.account, "namespace": namespace}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": told.account}}
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
    """It scales the job's own object, so it is of use where Muster stands in for an operator."""
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
