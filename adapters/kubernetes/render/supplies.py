"""A job's supplies in its pod template: volumes, code, shared memory, resources, TensorBoard. Pure.

The user's template takes precedence: nothing is mounted on a path where a container has a mount,
and no resource is added that a container names itself.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.kinds.manifest.supplies_rules import claim_of
from controlplane.model.supplies import TENSORBOARD_PORT, Code, Supplies

Document = Mapping[str, Any]

CODE_CONTAINER = "init-code"
CODE_VOLUME = "muster-code"
CODE_SECRET = "muster-code-secret"
MEMORY_VOLUME = "muster-shm"
SECRET_PATH = "/etc/muster-code-secret"

# Checks out one commit, and writes its hash to the container's termination log. If the server does
# not serve the commit by itself, the script fetches the whole history.
CHECK_OUT = """\
set -eu
if [ -f "$SECRET/ssh-privatekey" ]; then
  cp "$SECRET/ssh-privatekey" /tmp/key && chmod 600 /tmp/key
  known="-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile=/tmp/known_hosts"
  if [ -f "$SECRET/known_hosts" ]; then
    known="-o StrictHostKeyChecking=yes -o UserKnownHostsFile=$SECRET/known_hosts"
  fi
  export GIT_SSH_COMMAND="ssh -i /tmp/key $known"
elif [ -f "$SECRET/password" ]; then
  export GIT_ASKPASS=/tmp/askpass
  printf '#!/bin/sh\\ncase "$1" in Username*) cat %s/username;; *) cat %s/password;; esac\\n' "$SECRET" "$SECRET" > /tmp/askpass
  chmod 700 /tmp/askpass
fi
export GIT_TERMINAL_PROMPT=0 HOME=/tmp
git config --global --add safe.directory '*'
cd "$CODE"
git init -q .
git remote add origin "$REPO" 2>/dev/null || git remote set-url origin "$REPO"
if git fetch -q --depth 1 origin "$REF"; then
  git checkout -q --force --detach FETCH_HEAD
else
  git fetch -q --tags origin '+refs/heads/*:refs/remotes/origin/*'
  git checkout -q --force --detach "origin/$REF" 2>/dev/null || git checkout -q --force --detach "$REF"
fi
[ "$SUBMODULES" = 0 ] || git submodule -q update --init --recursive --depth 1
git rev-parse HEAD > /dev/termination-log
echo "code is $(git rev-parse HEAD)"
"""


def supplied(
    template: Document, supplies: Supplies, speaker: int, commit: str, image: str
) -> Document:
    """Return the template with the supplies added.

    `speaker` is the index of the main container. `commit` is the commit of the code in the job's
    first run, "" if unknown. `image` checks out the code if the job names no image.
    """
    if supplies == Supplies():
        return template
    spec: Document = template["spec"]
    containers = [
        _container(each, supplies, is_speaker=index == speaker)
        for index, each in enumerate(spec.get("containers") or [{}])
    ]
    made = {
        **spec,
        "containers": containers,
        "volumes": [*(spec.get("volumes") or ()), *_volumes(supplies)],
    }
    if supplies.code is not None:
        first = [*(spec.get("initContainers") or ()), code_container(supplies.code, commit, image)]
        made["initContainers"] = first
    return {**template, "spec": made}


def _container(container: Document, supplies: Supplies, *, is_speaker: bool) -> dict[str, Any]:
    own: list[Document] = list(container.get("volumeMounts") or ())
    taken = {str(each.get("mountPath", "")).rstrip("/") for each in own}
    more = [each for each in _mounts(supplies) if each["mountPath"].rstrip("/") not in taken]
    changed = {**container, "volumeMounts": [*own, *more]}
    sources = [{"secretRef": {"name": name}} for name in supplies.env_from_secrets]
    sources += [{"configMapRef": {"name": name}} for name in supplies.env_from_config_maps]
    if sources:
        changed["envFrom"] = [*(container.get("envFrom") or ()), *sources]
    if is_speaker and supplies.resources:
        changed["resources"] = _resources(container.get("resources") or {}, supplies.resources)
    if supplies.code is not None and is_speaker and "workingDir" not in container:
        changed["workingDir"] = supplies.code.path
    if not changed["volumeMounts"]:
        del changed["volumeMounts"]
    return changed


def _resources(own: Document, more: Mapping[str, str]) -> dict[str, Any]:
    """Add resources as limits; Kubernetes uses limits as requests where there are none."""
    limits, requests = own.get("limits") or {}, own.get("requests") or {}
    added = {name: more[name] for name in sorted(more) if name not in {**limits, **requests}}
    return {**own, "limits": {**limits, **added}}


def _mounts(supplies: Supplies) -> Iterable[dict[str, Any]]:
    if supplies.code is not None:
        yield {"name": CODE_VOLUME, "mountPath": supplies.code.path}
    if supplies.shared_memory:
        yield {"name": MEMORY_VOLUME, "mountPath": "/dev/shm"}
    for index, claim in enumerate(supplies.data):
        mount: dict[str, Any] = {"name": f"muster-data-{index}", "mountPath": claim.path}
        if claim.read_only:
            mount["readOnly"] = True
        if claim.sub_path:
            mount["subPath"] = claim.sub_path
        yield mount
    for index, each in enumerate(supplies.config_maps):
        yield {"name": f"muster-config-{index}", "mountPath": each.path, "readOnly": True}
    for index, each in enumerate(supplies.secrets):
        yield {"name": f"muster-secret-{index}", "mountPath": each.path, "readOnly": True}


def _volumes(supplies: Supplies) -> Iterable[dict[str, Any]]:
    if supplies.code is not None:
        yield {"name": CODE_VOLUME, "emptyDir": {}}
        if supplies.code.secret:
            secret = {"secretName": supplies.code.secret, "defaultMode": 0o400}
            yield {"name": CODE_SECRET, "secret": secret}
    if supplies.shared_memory:
        memory = {"medium": "Memory", "sizeLimit": supplies.shared_memory}
        yield {"name": MEMORY_VOLUME, "emptyDir": memory}
    for index, claim in enumerate(supplies.data):
        source = {"claimName": claim.claim}
        yield {"name": f"muster-data-{index}", "persistentVolumeClaim": source}
    for index, each in enumerate(supplies.config_maps):
        yield {"name": f"muster-config-{index}", "configMap": {"name": each.name}}
    for index, each in enumerate(supplies.secrets):
        yield {"name": f"muster-secret-{index}", "secret": {"secretName": each.name}}


def code_container(code: Code, commit: str, image: str) -> dict[str, Any]:
    """Return the init container that checks out `commit`, or else the ref of `code`."""
    mounts = [{"name": CODE_VOLUME, "mountPath": code.path}]
    if code.secret:
        mounts.append({"name": CODE_SECRET, "mountPath": SECRET_PATH})
    variables = {
        "REPO": code.repo,
        # A restart gets the code that the job began with, even if the branch has moved.
        "REF": commit or code.ref or "HEAD",
        "CODE": code.path,
        "SECRET": SECRET_PATH,
        "SUBMODULES": "1" if code.submodules else "0",
    }
    return {
        "name": CODE_CONTAINER,
        "image": code.image or image,
        "command": ["sh", "-c", CHECK_OUT],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": mounts,
    }


def commit_of(pod: Document) -> str:
    """Return the commit that a pod's code container checked out; "" if it has not or failed."""
    for each in (pod.get("status") or {}).get("initContainerStatuses") or ():
        if each.get("name") == CODE_CONTAINER:
            ended = (each.get("state") or {}).get("terminated") or {}
            message = str(ended.get("message") or "").strip()
            is_commit = len(message) in (40, 64) and set(message) <= set("0123456789abcdef")
            return message if ended.get("exitCode") == 0 and is_commit else ""
    return ""


# ---------------------------------------------------------------- TensorBoard


def board_name(job: str) -> str:
    return f"{job}-tensorboard"


def board(job: str, supplies: Supplies, image: str) -> dict[str, Any] | None:
    """Return the deployment of a job's TensorBoard, or None if it has none.

    It mounts the claim that contains the log directory, read-only.
    """
    wanted = supplies.tensorboard
    claim = None if wanted is None else claim_of(supplies, wanted.log_dir)
    if wanted is None or claim is None:
        return None
    labels = {"muster.dev/tensorboard": job}
    mount: dict[str, Any] = {"name": "logs", "mountPath": claim.path, "readOnly": True}
    if claim.sub_path:
        mount["subPath"] = claim.sub_path
    container = {
        "name": "tensorboard",
        "image": wanted.image or image,
        "command": ["tensorboard", "--logdir", wanted.log_dir, "--bind_all"],
        "args": ["--port", str(TENSORBOARD_PORT)],
        "ports": [{"name": "http", "containerPort": TENSORBOARD_PORT}],
        "volumeMounts": [mount],
    }
    volume = {
        "name": "logs",
        "persistentVolumeClaim": {"claimName": claim.claim, "readOnly": claim.read_only},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": board_name(job), "labels": dict(labels)},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": dict(labels)},
            "template": {
                "metadata": {"labels": dict(labels)},
                "spec": {
                    "automountServiceAccountToken": False,
                    "containers": [container],
                    "volumes": [volume],
                },
            },
        },
    }


def board_service(job: str) -> dict[str, Any]:
    """Return the service of a job's TensorBoard, on port 80."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": board_name(job)},
        "spec": {
            "selector": {"muster.dev/tensorboard": job},
            "ports": [{"name": "http", "port": 80, "targetPort": TENSORBOARD_PORT}],
        },
    }
