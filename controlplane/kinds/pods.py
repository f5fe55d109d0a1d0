"""Pod templates inside replica specs, read as far as the control plane needs to.

The field names are those of the Kubernetes core API, v1; what is only kept, for clusters that can
use it, is `Any`. Values that are not a field of it are refused by name.
"""

from typing import Any

from msgspec import UNSET, Struct, to_builtins

from controlplane.kinds.manifest import refuse
from controlplane.model import RestartRule, Role

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")


class Kept(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Part of a pod template; what was not given is not written back either.

    Sequences are lists, as JSON gives them, so that a template is the same before and after the log.
    """


class EnvVar(Kept, frozen=True):
    name: str
    value: str = ""
    valueFrom: Any = UNSET


class Resources(Kept, frozen=True):
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    claims: Any = UNSET


class Container(Kept, frozen=True):
    name: str
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[EnvVar] = []
    resources: Resources = Resources()
    envFrom: Any = UNSET
    imagePullPolicy: Any = UNSET
    lifecycle: Any = UNSET
    livenessProbe: Any = UNSET
    ports: Any = UNSET
    readinessProbe: Any = UNSET
    resizePolicy: Any = UNSET
    restartPolicy: Any = UNSET
    restartPolicyRules: Any = UNSET
    securityContext: Any = UNSET
    startupProbe: Any = UNSET
    stdin: Any = UNSET
    stdinOnce: Any = UNSET
    terminationMessagePath: Any = UNSET
    terminationMessagePolicy: Any = UNSET
    tty: Any = UNSET
    volumeDevices: Any = UNSET
    volumeMounts: Any = UNSET
    workingDir: Any = UNSET


class PodSpec(Kept, frozen=True):
    containers: list[Container] = []
    activeDeadlineSeconds: Any = UNSET
    affinity: Any = UNSET
    automountServiceAccountToken: Any = UNSET
    dnsConfig: Any = UNSET
    dnsPolicy: Any = UNSET
    enableServiceLinks: Any = UNSET
    ephemeralContainers: Any = UNSET
    hostAliases: Any = UNSET
    hostIPC: Any = UNSET
    hostNetwork: Any = UNSET
    hostPID: Any = UNSET
    hostUsers: Any = UNSET
    hostname: Any = UNSET
    hostnameOverride: Any = UNSET
    imagePullSecrets: Any = UNSET
    initContainers: Any = UNSET
    nodeName: Any = UNSET
    nodeSelector: Any = UNSET
    os: Any = UNSET
    overhead: Any = UNSET
    preemptionPolicy: Any = UNSET
    priority: Any = UNSET
    priorityClassName: Any = UNSET
    readinessGates: Any = UNSET
    resourceClaims: Any = UNSET
    resources: Any = UNSET
    restartPolicy: Any = UNSET
    runtimeClassName: Any = UNSET
    schedulerName: Any = UNSET
    schedulingGates: Any = UNSET
    securityContext: Any = UNSET
    serviceAccount: Any = UNSET
    serviceAccountName: Any = UNSET
    setHostnameAsFQDN: Any = UNSET
    shareProcessNamespace: Any = UNSET
    subdomain: Any = UNSET
    terminationGracePeriodSeconds: Any = UNSET
    tolerations: Any = UNSET
    topologySpreadConstraints: Any = UNSET
    volumes: Any = UNSET


class PodTemplate(Kept, frozen=True):
    spec: PodSpec
    metadata: dict[str, Any] = {}


class ReplicaSpec(Kept, frozen=True):
    """What one role of a Kubeflow job looks like."""

    template: PodTemplate
    replicas: int | None = None
    restartPolicy: RestartRule | None = None


def role_of(
    field: str,
    name: str,
    replica: ReplicaSpec,
    *,
    container: str,
    restart: RestartRule,
    serves: bool = False,
) -> Role:
    """A role from its replica spec; `container` is the one whose exit code speaks for the rank."""
    where = f"{field}.template.spec.containers"
    containers = replica.template.spec.containers
    if not containers:
        raise refuse(where, "at least one container is needed")
    for index, each in enumerate(containers):
        if not each.image:
            raise refuse(f"{where}[{index}].image", "an image is needed")
    main = next((each for each in containers if each.name == container), containers[0])
    return Role(
        name=name,
        replicas=1 if replica.replicas is None else replica.replicas,
        gpus=sum(_gpus(f"{where}[{i}]", each.resources) for i, each in enumerate(containers)),
        restart=replica.restartPolicy or restart,
        image=main.image,
        command=tuple(main.command),
        args=tuple(main.args),
        env={each.name: each.value for each in main.env if each.valueFrom is UNSET},
        template=to_builtins(replica.template),
        serves=serves,
    )


def _gpus(where: str, resources: Resources) -> int:
    found = 0
    for name in GPU_RESOURCES:
        asked = resources.limits.get(name, resources.requests.get(name, 0))
        try:
            found += int(asked)
        except (TypeError, ValueError):
            field = f"{where}.resources.limits[{name}]"
            raise refuse(field, f"{asked!r} is not a whole number of GPUs") from None
    return found
