"""What the Kubeflow kinds have in common: replica specs by role, and a run policy."""

from collections.abc import Mapping

from msgspec import Struct

from controlplane.kinds.manifest import (
    Metadata,
    RunPolicy,
    Submission,
    priority_of,
    queue_of,
    refuse,
    restart_policy_of,
    workload_of,
)
from controlplane.kinds.pods import ReplicaSpec, role_of
from controlplane.model import DoneWhen, JobSpec, RestartRule, Role

CLEAN_POD_POLICIES = ("None", "Running", "All")


class Roles(Struct, frozen=True):
    """The roles of a kind, in the order in which its ranks are counted."""

    field: str
    names: tuple[str, ...]
    serving: tuple[str, ...]
    container: str
    restart: RestartRule

    def read(self, replicas: Mapping[str, ReplicaSpec]) -> tuple[Role, ...]:
        """Roles from replica specs; keys may be spelt in any case, as the operators take them."""
        if not replicas:
            raise refuse(self.field, "at least one role is needed")
        proper = {name.lower(): name for name in self.names}
        given: dict[str, ReplicaSpec] = {}
        for key, replica in replicas.items():
            name = proper.get(key.lower())
            if name is None:
                known = ", ".join(self.names)
                raise refuse(f"{self.field}.{key}", f"no such role; the roles are: {known}")
            if name in given:
                raise refuse(f"{self.field}.{key}", f"{name} is given twice")
            given[name] = replica
        return tuple(self._role(name, given[name]) for name in self.names if name in given)

    def _role(self, name: str, replica: ReplicaSpec) -> Role:
        return role_of(
            f"{self.field}.{name}",
            name,
            replica,
            container=self.container,
            restart=self.restart,
            serves=name in self.serving,
        )


def submission(
    kind: str,
    metadata: Metadata,
    policy: RunPolicy,
    roles: tuple[Role, ...],
    done_when: DoneWhen,
) -> Submission:
    """A job of a Kubeflow kind as the control plane knows it."""
    if policy.cleanPodPolicy not in (None, *CLEAN_POD_POLICIES):
        allowed = ", ".join(CLEAN_POD_POLICIES)
        raise refuse("spec.runPolicy.cleanPodPolicy", f"must be one of {allowed}")
    spec = JobSpec(
        kind=kind,
        roles=roles,
        done_when=done_when,
        queue=queue_of(metadata, policy),
        priority=priority_of(metadata, policy),
        restart=restart_policy_of(policy),
        active_deadline_s=policy.activeDeadlineSeconds,
        ttl_s=policy.ttlSecondsAfterFinished,
        workload=workload_of(metadata.annotations),
        labels=metadata.labels,
        annotations=metadata.annotations,
    )
    return Submission(metadata.namespace, metadata.name, spec, policy.suspend)
