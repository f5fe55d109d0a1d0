"""Pod templates inside replica specs, read as far as the control plane needs to.

The field names are those of the Kubernetes core API, v1; what is only kept, for clusters that can
use it, is `Any`. Values that are not a field of it are refused by name.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType, to_builtins

from controlplane.kinds.findings import Findings
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


class ContainerPort(Kept, frozen=True):
    containerPort: int
    name: str = ""
    hostIP: Any = UNSET
    hostPort: Any = UNSET
    protocol: Any = UNSET


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
    ports: list[ContainerPort] | UnsetType = UNSET
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
    findings: Findings,
    *,
    container: str,
    restart: RestartRule,
    port: tuple[str, int] | None = None,
    replicas: int = 1,
    serves: bool = False,
) -> Role:
    """A role from its replica spec, with the framework's port in its template.

    `container` is the name of the one whose exit code speaks for the rank; "" means the first.
    """
    where = f"{field}.template.spec.containers"
    containers = replica.template.spec.containers
    if not containers:
        findings.required(where, "at least one container is needed")
    for index, each in enumerate(containers):
        if not each.image:
            findings.required(f"{where}[{index}].image", "an image is needed")
    if container and not any(each.name == container for each in containers):
        findings.required(where, f"a container named {container!r} is needed")
    if replica.replicas is not None and replica.replicas < 0:
        findings.invalid(f"{field}.replicas", f"{replica.replicas} is negative")
    template = to_builtins(replica.template)
    main = _main(containers, container)
    if port is not None and containers:
        _add_port(template["spec"]["containers"][main], *port)
    speaker = containers[main] if containers else Container(name=container)
    return Role(
        name=name,
        replicas=replicas if replica.replicas is None else replica.replicas,
        gpus=sum(_gpus(f"{where}[{i}]", each, findings) for i, each in enumerate(containers)),
        restart=replica.restartPolicy or restart,
        image=speaker.image,
        command=tuple(speaker.command),
        args=tuple(speaker.args),
        env={each.name: each.value for each in speaker.env if each.valueFrom is UNSET},
        template=template,
        container=container,
        serves=serves,
    )


def _main(containers: Sequence[Container], name: str) -> int:
    return next((i for i, each in enumerate(containers) if each.name == name), 0)


def _add_port(container: dict[str, Any], name: str, number: int) -> None:
    ports = container.setdefault("ports", [])
    if not any(port.get("name") == name for port in ports):
        ports.append({"name": name, "containerPort": number})


def container_of(role: Role) -> Mapping[str, Any]:
    """The container of a role's template whose exit code speaks for the rank."""
    containers = role.template.get("spec", {}).get("containers") or [{}]
    return next((each for each in containers if each.get("name") == role.container), containers[0])


def ports_of(container: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    return tuple(
        (port.get("name", ""), port["containerPort"]) for port in container.get("ports", ())
    )


def _gpus(where: str, container: Container, findings: Findings) -> int:
    found, resources = 0, container.resources
    for name in GPU_RESOURCES:
        asked = resources.limits.get(name, resources.requests.get(name, 0))
        try:
            found += int(asked)
        except (TypeError, ValueError):
            told = f"{asked!r} is not a whole number of GPUs"
            findings.invalid(f"{where}.resources.limits[{name}]", told)
    return found
