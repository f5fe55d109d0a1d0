"""The pod of a rank: the person's template, what the kind tells the rank, and what the site asks.

Documents share the parts that they have in common (the template's volumes, for one), so a gang of
a thousand costs little; nobody changes a document in place.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from adapters.kubernetes.gang_schedulers import membership
from adapters.kubernetes.site import Binding, Site, unbound
from adapters.kubernetes.supplies import supplied
from controlplane.kinds.kind import Files, Told
from controlplane.kinds.pod_group import over_ssh
from controlplane.model import JobSpec, RestartRule, RestartScope, Role
from controlplane.quantities import NOTHING, parse
from controlplane.requests import GPU_RESOURCES, Quantities, pod_requests, supplies_of

# How the kubelet restarts containers for each rule. The kubelet knows no exit codes, and where the
# whole gang starts again it must not start a part of it by itself.
POD_RESTART = {
    RestartRule.ALWAYS: "Always",
    RestartRule.ON_FAILURE: "OnFailure",
    RestartRule.NEVER: "Never",
    RestartRule.EXIT_CODE: "Never",
}
# The shell in which a rank waits until a name resolves: a hundred times, two seconds apart. What it
# prints is looked at, because some busyboxes' nslookup fails when the name is unknown in any one of
# the domains that it searches.
WAIT_FOR_HOST = "for i in $(seq 100); do nslookup {host} | grep -q ^Name: && exit 0; echo waiting for {host}; sleep 2; done; exit 1"
WAITING_RESOURCES = {
    "requests": {"cpu": "50m", "memory": "10Mi"},
    "limits": {"cpu": "100m", "memory": "20Mi"},
}
# How SSH wants to find a key pair.
SSH_ITEMS = (
    {"key": "ssh-privatekey", "path": "id_rsa"},
    {"key": "ssh-publickey", "path": "id_rsa.pub"},
    {"key": "ssh-publickey", "path": "authorized_keys"},
)
EXECUTABLE = 0o555


class Notice(NamedTuple):
    """Something that the person should hear of: a Kubernetes event in the making."""

    reason: str
    message: str
    type: str = "Normal"


class RolePods:
    """The pods of one role; what its ranks have in common is worked out once."""

    def __init__(
        self,
        spec: JobSpec,
        role: Role,
        files: Iterable[Files],
        site: Site,
        group: str = "",
        commit: str = "",
    ) -> None:
        """`commit` is what the job's code was when it began, if that is known."""
        template: Mapping[str, Any] = role.template or plain_template(role)
        found = list(template["spec"].get("containers") or [{}])
        speaker = _speaker(found, role.container)
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

    def pod(self, told: Told, labels: Mapping[str, str], binding: Binding) -> dict[str, Any]:
        annotations = {
            **(self._metadata.get("annotations") or {}),
            **told.annotations,
            **self._membership.annotations,
            **binding.annotations,
        }
        metadata: dict[str, Any] = {
            "name": told.name,
            "labels": {
                **(self._metadata.get("labels") or {}),
                **told.labels,
                **self._membership.labels,
                **labels,
            },
        }
        if annotations:
            metadata["annotations"] = annotations
        spec = {
            **self._spec,
            "restartPolicy": self._restart,
            "containers": self._told(told, binding),
        }
        self._place(spec, binding)
        self._name(spec, told)
        self._mount(spec, told)
        first = self._first_containers(told)
        if first:
            spec["initContainers"] = [*(spec.get("initContainers") or ()), *first]
        if told.account:
            spec["serviceAccountName"] = told.account
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _told(self, told: Told, binding: Binding) -> list[dict[str, Any]]:
        found = []
        for index, container in enumerate(self._containers):
            speaks = index == self._speaker
            changed = without_gpus(container) if binding.shares_device else dict(container)
            if speaks or told.all_containers:
                changed["env"] = environment(container, told, binding)
            if speaks and told.command and not (container.get("command") or container.get("args")):
                changed["command"] = list(told.command)
            if speaks and (told.mounts or told.scratch):
                changed["volumeMounts"] = [
                    *(container.get("volumeMounts") or ()),
                    *(
                        {"name": volume_of(self._files[name]), "mountPath": path}
                        for path, name in told.mounts.items()
                    ),
                    *({"name": name, "mountPath": path} for path, name in told.scratch.items()),
                ]
            found.append(changed)
        return found

    def _first_containers(self, told: Told) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = list(told.init_containers)
        if told.waits_for_host:
            speaker = self._containers[self._speaker]
            found.append(_waiting(self._site, speaker, told.waits_for_host))
        return [_modest(each, self._asked) for each in found]

    def _place(self, spec: dict[str, Any], binding: Binding) -> None:
        if self._scheduler:
            spec["schedulerName"] = self._scheduler
        if binding.node:
            spec["nodeName"] = binding.node
        if binding.shares_device:
            # Kubernetes adds these to pods that request GPUs, and this one requests none.
            ours = [{"key": name, "operator": "Exists"} for name in GPU_RESOURCES]
            spec["tolerations"] = [*(spec.get("tolerations") or ()), *ours]

    def _name(self, spec: dict[str, Any], told: Told) -> None:
        if told.hostname:
            spec["hostname"] = told.hostname
        if told.subdomain:
            spec["subdomain"] = told.subdomain
        if told.dns_policy:
            spec["dnsPolicy"] = told.dns_policy
        elif spec.get("hostNetwork") and "dnsPolicy" not in spec:
            # With the host's resolver, no rank would find another one by its service's name.
            spec["dnsPolicy"] = "ClusterFirstWithHostNet"
        if told.dns_searches:
            dns = spec.get("dnsConfig") or {}
            searches = [*(dns.get("searches") or ()), *told.dns_searches]
            spec["dnsConfig"] = {**dns, "searches": searches}

    def _mount(self, spec: dict[str, Any], told: Told) -> None:
        volumes = [_volume(self._files[name]) for name in dict.fromkeys(told.mounts.values())]
        volumes += [{"name": name, "emptyDir": {}} for name in told.scratch.values()]
        if volumes:
            spec["volumes"] = [*(spec.get("volumes") or ()), *volumes]


def plain_template(role: Role) -> dict[str, Any]:
    """A template for a role that came without one."""
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
    return POD_RESTART[role.restart] if spec.restart.scope is RestartScope.RANK else "Never"


def scheduler_of(spec: JobSpec, template: Mapping[str, Any], site: Site) -> str:
    """The scheduler of a pod made from this template; "" leaves it to the cluster's default.

    A gang scheduler gets only pods whose template names none; those of an MPIJob v2beta1 it gets
    in any case, as the operators have it.
    """
    own = str((template.get("spec") or {}).get("schedulerName") or "")
    if site.gang:
        return site.gang if over_ssh(spec) else own or site.gang
    return site.scheduler or own


def environment(
    container: Mapping[str, Any], told: Told, binding: Binding
) -> list[Mapping[str, Any]]:
    """A container's variables: the person's, then ours, each name once.

    Ours win, except those that stand only where nothing else does. A variable may refer only to
    ones before it, so those with the pod's own fields come first.
    """
    own: list[Mapping[str, Any]] = container.get("env") or []
    ours: dict[str, dict[str, Any]] = {
        name: {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in told.env_from_pod.items()
    }
    for name, value in (*told.env.items(), *binding.env.items()):
        ours[name] = {"name": name, "value": value}
    set_already = {each["name"] for each in own}
    for name, value in (*told.env_if_unset.items(), *binding.env_if_unset.items()):
        if name not in set_already:
            ours.setdefault(name, {"name": name, "value": value})
    return [*(each for each in own if each["name"] not in ours), *ours.values()]


def without_gpus(container: Mapping[str, Any]) -> dict[str, Any]:
    """The container without requests for whole GPUs."""
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
    """What a person who wrote this template should know was not taken from it."""
    template = role.template.get("spec", {})
    found = []
    asked, used = template.get("restartPolicy"), pod_restart(spec, role)
    if asked:
        told = f"the pods of {role.name} have restartPolicy {used}, by their role's rule {role.restart}; {asked!r} in the template is not used"
        found.append(Notice("SetPodTemplateRestartPolicy", told, "Warning"))
    if role.shares_device and site.bind is unbound:
        chooser = site.gang or site.scheduler or "the cluster's scheduler"
        told = f"the pods of {role.name} share GPUs, which {chooser} has to give them; Muster does so only where it binds pods itself (--scheduler muster)"
        found.append(Notice("GPUSharingLeftToScheduler", told, "Warning"))
    asked, ours = template.get("schedulerName"), site.gang or site.scheduler
    if ours and asked and asked != ours:
        used = scheduler_of(spec, role.template, site)
        told = f"the pods of {role.name} are scheduled by {used}; "
        if used == asked:
            told += f"their template names it, so {ours} does not place them with their gang"
        else:
            told += f"{asked!r} in the template is not used"
        found.append(Notice("SetPodTemplateSchedulerName", told, "Warning"))
    return found


def _speaker(containers: list[Mapping[str, Any]], name: str) -> int:
    return next((i for i, each in enumerate(containers) if each.get("name") == name), 0)


def waiting_name(container: str) -> str:
    """What the container is called that waits for others before this one starts."""
    return f"init-{container}"


def _waiting(site: Site, speaker: Mapping[str, Any], host: str) -> dict[str, Any]:
    return {
        "name": waiting_name(speaker.get("name", "main")),
        "image": site.waiting_image,
        "command": ["sh", "-c", WAIT_FOR_HOST.format(host=host)],
        "resources": WAITING_RESOURCES,
    }


def _modest(container: Mapping[str, Any], asked: Quantities) -> Mapping[str, Any]:
    """A container of ours that runs before the person's, requesting no more than theirs do together.

    So the pod requests what its job says, which is what nodes are chosen by; the limits stay.
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
