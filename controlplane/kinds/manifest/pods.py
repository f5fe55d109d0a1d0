"""Pod templates of replica specs, parsed as far as the control plane needs them.

Field names are those of the Kubernetes core API, v1. A field that is only kept, for clusters that
create pods, has the type `Any`. An unknown field is refused by name.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import UNSET, Struct, UnsetType, to_builtins

from controlplane.kinds.manifest import checking
from controlplane.kinds.manifest.resource_rules import check_amounts, check_init_containers
from controlplane.kinds.manifest.structure import shown
from controlplane.kinds.manifest.validation import Findings
from controlplane.model.resources import GPU_RESOURCES
from controlplane.model.spec import RestartRule, Role


class Kept(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Part of a pod template; a field that was not given is not written back.

    Sequences are lists, as in JSON, so that a template is equal before and after the log.
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
    name: str = ""
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
    spec: PodSpec = PodSpec()
    metadata: dict[str, Any] = {}


class ReplicaSpec(Kept, frozen=True):
    """One role of a Kubeflow job."""

    template: PodTemplate = PodTemplate()
    replicas: int | None = None
    restartPolicy: RestartRule | None = None


class Plain(NamedTuple):
    """What a rank runs, taken from the container whose exit code is the rank's."""

    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: dict[str, str]
    # The sum over all containers.
    gpus: int


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
    is_server: bool = False,
) -> Role:
    """Return the role of a replica spec, with the framework's port in its template.

    `container` names the container whose exit code is the rank's; "": the first one.
    """
    check_template(f"{field}.template", replica.template, container, findings)
    checking.check_range(f"{field}.replicas", replica.replicas, 0, checking.RANKS_MAX, findings)
    plain = plain_of(f"{field}.template", replica.template, container, findings)
    template = to_builtins(replica.template)
    containers = template.get("spec", {}).get("containers")
    if port is not None and containers:
        _add_port(containers[_main_container(replica.template.spec.containers, container)], *port)
    return Role(
        name=name,
        replicas=replicas if replica.replicas is None else replica.replicas,
        restart=replica.restartPolicy or restart,
        template=template,
        container=container,
        is_server=is_server,
        **plain._asdict(),
    )


def check_template(path: str, template: PodTemplate, container: str, findings: Findings) -> None:
    """Check that containers have images, and that one of them is named `container`."""
    where = f"{path}.spec.containers"
    containers = template.spec.containers
    if not containers:
        findings.required(where, "at least one container is needed")
    names: set[str] = set()
    for index, each in enumerate(containers):
        if not each.image:
            findings.required(f"{where}[{index}].image", "an image is needed")
        if each.name and each.name in names:
            message = f"another container is called {shown(each.name)} too"
            findings.duplicate(f"{where}[{index}].name", message)
        names.add(each.name)
        for sort in ("limits", "requests"):
            asked = getattr(each.resources, sort)
            if not asked:
                continue
            others = {name: asked[name] for name in asked if name not in GPU_RESOURCES}
            check_amounts(f"{where}[{index}].resources.{sort}", others, findings)
        for n, port in enumerate(each.ports or ()):
            field = f"{where}[{index}].ports[{n}].containerPort"
            checking.check_range(field, port.containerPort, 1, checking.PORT_MAX, findings)
    if template.spec.initContainers:
        inits = template.spec.initContainers
        check_init_containers(f"{path}.spec.initContainers", inits, findings)
    if template.spec.overhead:
        check_amounts(f"{path}.spec.overhead", template.spec.overhead, findings)
    if container and container not in names:
        findings.required(where, f"a container named {container!r} is needed")
    elif "" in names:
        nameless = next(i for i, each in enumerate(containers) if not each.name)
        findings.required(f"{where}[{nameless}].name", "a name is needed")


def plain_of(field: str, template: PodTemplate, container: str, findings: Findings) -> Plain:
    containers = template.spec.containers
    main = containers[_main_container(containers, container)] if containers else Container()
    where = f"{field}.spec.containers"
    return Plain(
        image=main.image,
        command=tuple(main.command),
        args=tuple(main.args),
        env={each.name: each.value for each in main.env if each.valueFrom is UNSET},
        gpus=sum(_gpus(f"{where}[{i}]", each, findings) for i, each in enumerate(containers)),
    )


def _main_container(containers: Sequence[Container], name: str) -> int:
    return next((i for i, each in enumerate(containers) if each.name == name), 0)


def _add_port(container: dict[str, Any], name: str, number: int) -> None:
    ports = container.setdefault("ports", [])
    if not any(port.get("name") == name for port in ports):
        ports.append({"name": name, "containerPort": number})


def container_of(role: Role) -> Mapping[str, Any]:
    """Return the container of a role's template whose exit code is the rank's; {} if none."""
    containers = role.template.get("spec", {}).get("containers") or [{}]
    return next((each for each in containers if each.get("name") == role.container), containers[0])


def ports_of(container: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    return tuple(
        (port.get("name", ""), port["containerPort"]) for port in container.get("ports", ())
    )


_WHOLE = re.compile(r"\d{1,9}", re.ASCII)


def _gpus(where: str, container: Container, findings: Findings) -> int:
    gpus, resources = 0, container.resources
    for name in GPU_RESOURCES:
        given = "limits" if name in resources.limits else "requests"
        if name not in getattr(resources, given):
            continue
        asked = getattr(resources, given)[name]
        field = f"{where}.resources.{given}[{name}]"
        if isinstance(asked, bool | float) or not _WHOLE.fullmatch(shown(asked)):
            findings.invalid(field, f"{shown(asked)!r} is not a whole number of GPUs")
        elif checking.check_range(field, int(asked), 0, checking.GPUS_PER_RANK_MAX, findings):
            gpus += int(asked)
    return gpus
