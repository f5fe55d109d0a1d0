"""Jobs for real pods: small images, quick commands, no more than a test machine has."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from deploy.testcluster.images import BUSYBOX, PYTHON

EXAMPLES = Path(__file__).parents[2] / "examples"


def job(
    name: str,
    command: Sequence[str],
    *,
    replicas: int = 1,
    gpus: int = 0,
    image: str = BUSYBOX,
    restart: Mapping[str, Any] | None = None,
    template: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A job in the native form, of one role."""
    role: dict[str, Any] = {
        "name": "worker", "replicas": replicas, "gpus": gpus, "image": image, "command": list(command),
    }  # fmt: skip
    if template is not None:
        role["template"] = template
    return {
        "apiVersion": "muster.dev/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"roles": [role], "restart": restart or {"limit": 0}, **spec},
    }


def shell(text: str) -> list[str]:
    return ["/bin/sh", "-c", text]


def python(text: str) -> dict[str, Any]:
    return {"image": PYTHON, "command": ["python3", "-c", text]}


# Pods of these roles run until they are stopped, by a part of their name.
SERVING = ("-ps-", "-server-")
# In these kinds the workers wait for what a launcher asks of them.
LAUNCHED = ("MPIJob", "HostfileJob")


# Where the kinds keep the specification of each role.
REPLICAS = frozenset(
    f"{name}ReplicaSpecs" for name in ("tf", "pytorch", "mpi", "mx", "xgb", "paddle", "jax")
)


def script(kind: str, code: int) -> list[str]:
    """What every rank runs: servers serve, the others end after a second with this exit code."""
    serving = [*SERVING, *(["-worker-"] if kind in LAUNCHED else [])]
    patterns = "|".join(f"*{part}*" for part in serving)
    # A shell that is first in its namespace heeds no signal that it does not trap.
    serve = "trap 'exit 0' TERM; while :; do sleep 0.2; done"
    # Some workers wait for their master's name before they start.
    linger = "case $HOSTNAME in *-master-*) sleep 6;; esac"
    return shell(f"case $HOSTNAME in {patterns}) {serve};; esac; {linger}; sleep 1; exit {code}")


def example(file: str, code: int = 0) -> dict[str, Any]:
    """A manifest of the examples, with every container made small enough for a test machine.

    With an exit code other than 0 it is also left without a second try.
    """
    manifest: dict[str, Any] = yaml.safe_load((EXAMPLES / file).read_text())
    if manifest["kind"] == "TrainJob":
        # Where it names no image, its runtime does: one of those that no test machine has.
        manifest["spec"].setdefault("trainer", {}).setdefault("image", BUSYBOX)
    _shrink(manifest, script(manifest["kind"], code))
    if code:
        _give_up_at_once(manifest)
        if manifest["kind"] == "HostfileJob":
            manifest["spec"]["restart"] = {"limit": 0}
        # For kinds and versions that have no field for it.
        notes = manifest["metadata"].setdefault("annotations", {})
        notes["muster.dev/restart-limit"] = "0"
    return manifest


def _shrink(node: Any, command: Sequence[str]) -> None:
    if isinstance(node, list):
        for each in node:
            _shrink(each, command)
    if not isinstance(node, dict):
        return
    for key in ("replicas", "numNodes", "gpus", "gpusPerNode", "slotsPerWorker", "nprocPerNode"):
        if isinstance(node.get(key), int):
            node[key] = min(node[key], 2)
    if "containers" in node:
        # What Muster itself runs in workers that wait heeds no signal.
        node["terminationGracePeriodSeconds"] = 2
    if "image" in node:
        node["image"], node["command"] = BUSYBOX, list(command)
        node.pop("args", None)
    for key in ("resources", "resourcesPerNode"):
        if key in node:
            limits = (node[key] or {}).get("limits") or {}
            has_gpus = any(name.endswith("/gpu") for name in limits)
            node[key] = {"limits": {"nvidia.com/gpu": 1}} if has_gpus else {}
    for each in node.values():
        _shrink(each, command)


def _give_up_at_once(node: Any) -> None:
    """No second try, in the field that the kind has for it."""
    if isinstance(node, list):
        for each in node:
            _give_up_at_once(each)
    if not isinstance(node, dict):
        return
    for key, value in list(node.items()):
        if key == "restartPolicy":
            node[key] = "Never"
        elif key in ("backoffLimit", "maxRestarts"):
            node[key] = 0
        elif key == "restart":
            node[key] = {"limit": 0} if isinstance(value, dict) else "Never"
        elif key in REPLICAS and isinstance(value, dict):
            for replica in value.values():
                replica["restartPolicy"] = "Never"
        _give_up_at_once(value)
