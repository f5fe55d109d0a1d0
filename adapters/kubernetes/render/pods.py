"""The pod of a rank: the user's template plus the kind's rank environment and the site's settings.

Pure. Documents share common parts, such as the template's volumes, so that a gang of a thousand
pods needs little memory; they must not be modified in place.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from adapters.kubernetes.render.pod_group import membership
from adapters.kubernetes.render.site import Binding, Site, unbound
from adapters.kubernetes.render.supplies import supplied
from controlplane.kinds.kind import Files, RankEnvironment
from controlplane.kinds.manifest.pod_group import over_ssh
from controlplane.model.quantities import NOTHING, parse
from controlplane.model.resources import GPU_RESOURCES, Quantities, pod_requests, supplies_of
from controlplane.model.spec import JobSpec, RestartRule, RestartScope, Role

# The kubelet's restart policy for each rule. The kubelet cannot decide by exit code, and where the
# whole gang restarts together it must not restart a single container.
POD_RESTART = {
    RestartRule.ALWAYS: "Always",
    RestartRule.ON_FAILURE: "OnFailure",
    RestartRule.NEVER: "Never",
    RestartRule.EXIT_CODE: "Never",
}
# The shell command that waits until a name resolves: a hundred tries, two seconds apart. It checks
# the output, because the nslookup of some busybox versions fails when the name is unknown in any
# one of the search domains.
WAIT_FOR_HOST = "for i in $(seq 100); do nslookup {host} | grep -q ^Name: && exit 0; echo waiting for {host}; sleep 2; done; exit 1"
WAITING_RESOURCES = {
    "requests": {"cpu": "50m", "memory": "10Mi"},
    "limits": {"cpu": "100m", "memory": "20Mi"},
}
# The file names under which SSH looks for a key pair.
SSH_ITEMS = (
    {"key": "ssh-privatekey", "path": "id_rsa"},
    {"key": "ssh-publickey", "path": "id_rsa.pub"},
    {"key": "ssh-publickey", "path": "authorized_keys"},
)
EXECUTABLE = 0o555


class Notice(NamedTuple):
    """A message to the user: the content of a Kubernetes event."""

    reason: str
    message: str
    type: str = "Normal"


class RolePods:
    """The pods of one role; what its ranks share is computed once."""

    def __init__(
        self,
        spec: JobSpec,
        role: Role,
        files: Iterable[Files],
        site: Site,
        group: str = "",
        commit: str = "",
    ) -> None:
        """Prepare the template of `role`.

        `files` are the job's files, `group` is the name of its pod group, and `commit` is the
        commit of the code in the job's first run, "" if unknown.
        """
        template: Mapping[str, Any] = role.template or plain_template(role)
        containers = list(template["spec"].get("containers") or [{}])
        speaker = _speaker(containers, role.container)
        template = supplied(template, supplies_of(spec), speaker, commit, site.code_image)
        self._site = site
        self._files = {each.name: each for each in files}
        self._metadata: Mapping[str, Any] = template.get("metadata") or {}
        self._spec: Mapping[str, Any] = template["spec"]
        self._containers: list[Mapping[str, Any]] = list(self._spec.get("containers") or [{}])
        self._speaker = speaker
        self._asked = pod_requests(template)
        self._restart = pod_restart(spec, role)
        self._scheduler = scheduler_of(spec, template, site)
        self._membership = membership(site.gang, group, role.name)

    def pod(
        self, environment: RankEnvironment, labels: Mapping[str, str], binding: Binding
    ) -> dict[str, Any]:
        """Return the pod of the rank with this environment; `labels` override all others."""
        annotations = {
            **(self._metadata.get("annotations") or {}),
            **environment.annotations,
            **self._membership.annotations,
            **binding.annotations,
        }
        metadata: dict[str, Any] = {
            "name": environment.name,
            "labels": {
                **(self._metadata.get("labels") or {}),
                **environment.labels,
                **self._membership.labels,
                **labels,
            },
        }
        if annotations:
            metadata["annotations"] = annotations
        spec = {
            **self._spec,
            "restartPolicy": self._restart,
            "containers": self._container_specs(environment, binding),
        }
        self._place(spec, binding)
        self._name(spec, environment)
        self._mount(spec, environment)
        first = self._first_containers(environment)
        if first:
            spec["initContainers"] = [*(spec.get("initContainers") or ()), *first]
        if environment.account:
            spec["serviceAccountName"] = environment.account
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _container_specs(
        self, environment: RankEnvironment, binding: Binding
    ) -> list[dict[str, Any]]:
        containers = []
        for index, container in enumerate(self._containers):
            speaks = index == self._speaker
            changed = without_gpus(container) if binding.shares_device else dict(container)
            if speaks or environment.all_containers:
                changed["env"] = variables(container, environment, binding)
            if (
                speaks
                and environment.command
                and not (container.get("command") or container.get("args"))
            ):
                changed["command"] = list(environment.command)
            if speaks and (environment.mounts or environment.scratch):
                changed["volumeMounts"] = [
                    *(container.get("volumeMounts") or ()),
                    *(
                        {"name": volume_of(self._files[name]), "mountPath": path}
                        for path, name in environment.mounts.items()
                    ),
                    *(
                        {"name": name, "mountPath": path}
                        for path, name in environment.scratch.items()
                    ),
                ]
            containers.append(changed)
        return containers

    def _first_containers(self, environment: RankEnvironment) -> list[Mapping[str, Any]]:
        containers: list[Mapping[str, Any]] = list(environment.init_containers)
        if environment.waits_for_host:
            speaker = self._containers[self._speaker]
            containers.append(_waiting(self._site, speaker, environment.waits_for_host))
        return [_modest(each, self._asked) for each in containers]

    def _place(self, spec: dict[str, Any], binding: Binding) -> None:
        if self._scheduler:
            spec["schedulerName"] = self._scheduler
        if binding.node:
            spec["nodeName"] = binding.node
        if binding.shares_device:
            # Kubernetes adds these tolerations to pods that request GPUs; this pod requests none.
            ours = [{"key": name, "operator": "Exists"} for name in GPU_RESOURCES]
            spec["tolerations"] = [*(spec.get("tolerations") or ()), *ours]

    def _name(self, spec: dict[str, Any], environment: RankEnvironment) -> None:
        if environment.hostname:
            spec["hostname"] = environment.hostname
        if environment.subdomain:
            spec["subdomain"] = environment.subdomain
        if environment.dns_policy:
            spec["dnsPolicy"] = environment.dns_policy
        elif spec.get("hostNetwork") and "dnsPolicy" not in spec:
            # With the host's resolver, ranks could not resolve the names of services.
            spec["dnsPolicy"] = "ClusterFirstWithHostNet"
        if environment.dns_searches:
            dns = spec.get("dnsConfig") or {}
            searches = [*(dns.get("searches") or ()), *environment.dns_searches]
            spec["dnsConfig"] = {**dns, "searches": searches}

    def _mount(self, spec: dict[str, Any], environment: RankEnvironment) -> None:
        volumes = [
            _volume(self._files[name]) for name in dict.fromkeys(environment.mounts.values())
        ]
        volumes += [{"name": name, "emptyDir": {}} for name in environment.scratch.values()]
        if volumes:
            spec["volumes"] = [*(spec.get("volumes") or ()), *volumes]


def plain_template(role: Role) -> dict[str, Any]:
    """Return a pod template for a role without one, from its image, command and GPUs."""
    container: dict[str, Any] = {"name": role.container or "main", "image": role.image}
    if role.command:
        container["command"] = list(role.command)
    if role.args:
        container["args"] = list(role.args)
    if role.env:
        container["env"] = [{"name": name, "value": value} for name, value in role.env.items()]
    if role.gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": role.gpus}}
    return {"spec": {"containers": [container]}}


def pod_restart(spec: JobSpec, role: Role) -> str:
    """Return the pod's `restartPolicy`: Never, unless single ranks restart."""
    return POD_RESTART[role.restart] if spec.restart.scope is RestartScope.RANK else "Never"


def scheduler_of(spec: JobSpec, template: Mapping[str, Any], site: Site) -> str:
    """Return the `schedulerName` of a pod from this template; "" means the cluster's default.

    A gang scheduler gets only pods whose template names no scheduler, except for an MPIJob v2beta1,
    where it gets all pods, as with the Kubeflow operators.
    """
    own = str((template.get("spec") or {}).get("schedulerName") or "")
    if site.gang:
        return site.gang if over_ssh(spec) else own or site.gang
    return site.scheduler or own


def variables(
    container: Mapping[str, Any], environment: RankEnvironment, binding: Binding
) -> list[Mapping[str, Any]]:
    """Return a container's variables: the user's, then Muster's, each name once.

    Muster's override the user's, except those of `env_if_unset`. A variable can refer only to
    variables before it, so those with fields of the pod come first.
    """
    own: list[Mapping[str, Any]] = container.get("env") or []
    ours: dict[str, dict[str, Any]] = {
        name: {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in environment.env_from_pod.items()
    }
    for name, value in (*environment.env.items(), *binding.env.items()):
        ours[name] = {"name": name, "value": value}
    set_already = {each["name"] for each in own}
    for name, value in (*environment.env_if_unset.items(), *binding.env_if_unset.items()):
        if name not in set_already:
            ours.setdefault(name, {"name": name, "value": value})
    return [*(each for each in own if each["name"] not in ours), *ours.values()]


def without_gpus(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container without requests and limits for whole GPUs."""
    resources = container.get("resources") or {}
    kept = {
        part: {name: amount for name, amount in amounts.items() if name not in GPU_RESOURCES}
        if part in ("limits", "requests")
        else amounts
        for part, amounts in resources.items()
        if amounts is not None
    }
    return {**container, "resources": kept} if kept != resources else dict(container)


def notices(spec: JobSpec, role: Role, site: Site) -> list[Notice]:
    """Return warnings about fields of the role's template that are not used; empty if none."""
    template = role.template.get("spec", {})
    notices = []
    asked, used = template.get("restartPolicy"), pod_restart(spec, role)
    if asked:
        message = f"the pods of {role.name} have restartPolicy {used}, by their role's rule {role.restart}; {asked!r} in the template is not used"
        notices.append(Notice("SetPodTemplateRestartPolicy", message, "Warning"))
    if role.shares_device and site.bind is unbound:
        chooser = site.gang or site.scheduler or "the cluster's scheduler"
        message = f"the pods of {role.name} share GPUs, which {chooser} has to give them; Muster does so only where it binds pods itself (--scheduler muster)"
        notices.append(Notice("GPUSharingLeftToScheduler", message, "Warning"))
    asked, ours = template.get("schedulerName"), site.gang or site.scheduler
    if ours and asked and asked != ours:
        used = scheduler_of(spec, role.template, site)
        message = f"the pods of {role.name} are scheduled by {used}; "
        if used == asked:
            message += f"their template names it, so {ours} does not place them with their gang"
        else:
            message += f"{asked!r} in the template is not used"
        notices.append(Notice("SetPodTemplateSchedulerName", message, "Warning"))
    return notices


def _speaker(containers: list[Mapping[str, Any]], name: str) -> int:
    return next((i for i, each in enumerate(containers) if each.get("name") == name), 0)


def waiting_name(container: str) -> str:
    """Return the name of the init container that waits for another rank before `container`."""
    return f"init-{container}"


def _waiting(site: Site, speaker: Mapping[str, Any], host: str) -> dict[str, Any]:
    return {
        "name": waiting_name(speaker.get("name", "main")),
        "image": site.waiting_image,
        "command": ["sh", "-c", WAIT_FOR_HOST.format(host=host)],
        "resources": WAITING_RESOURCES,
    }


def _modest(container: Mapping[str, Any], asked: Quantities) -> Mapping[str, Any]:
    """Reduce the requests of an init container to at most those of the user's pod (`asked`).

    Nodes are chosen by what the job requests, so the pod must not request more. Limits stay.
    """
    resources = container.get("resources") or {}
    named = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    if not named:
        return container
    requests = {}
    for name, text in named.items():
        wanted, has = parse(text), asked.get(name, NOTHING)
        requests[name] = str(has) if wanted is None or has.amount < wanted.amount else text
    return {**container, "resources": {**resources, "requests": requests}}


def volume_of(files: Files) -> str:
    return files.volume or files.name


def _volume(files: Files) -> dict[str, Any]:
    if files.ssh_keys:
        secret: dict[str, Any] = {"secretName": files.name, "items": list(SSH_ITEMS)}
        return {"name": volume_of(files), "secret": _with_mode(secret, files)}
    config: dict[str, Any] = {"name": files.name}
    if files.modes:
        modes = files.modes
        config["items"] = [
            {"key": name, "path": name, **({"mode": modes[name]} if name in modes else {})}
            for name in files.contents
        ]
    return {"name": volume_of(files), "configMap": _with_mode(config, files)}


def _with_mode(source: dict[str, Any], files: Files) -> dict[str, Any]:
    mode = EXECUTABLE if files.executable and files.mode is None else files.mode
    return source if mode is None else {**source, "defaultMode": mode}
