"""The whole test cluster: up, down, and what can be done to its nodes."""

import os
import shutil
import sys
from collections.abc import Callable

from deploy.testcluster import builds, controlplane, images, nodes, oldest, processes
from deploy.testcluster.places import Place, Trouble, node_name, settle

MADE_UP = "made-up-nodes"
NEEDED = ("ip", "nsenter", "unshare", "openssl", "umount")


def build(place: Place) -> None:
    """Build everything that the cache does not have yet."""
    (oldest if oldest.is_wanted(place) else builds).build(place)
    images.make(place)


def up(
    place: Place,
    *,
    real: int = 2,
    gpus: int = 8,
    made_up: int = 0,
    grace_s: float = controlplane.NODE_GRACE_S,
) -> Place:
    """Start what does not run yet, and return when every node is ready.

    A cluster of many made-up nodes on a busy machine needs more than the usual grace.
    """
    check()
    build(place)
    if not place.number:
        place = settle(place)
        (place.state / "grace").write_text(str(grace_s))
    controlplane.up(place)
    for node in range(1, real + 1):
        nodes.up(place, node, gpus)
    if made_up:
        start_made_up(place, made_up, gpus)
    for node in range(1, real + 1):
        nodes.wait_ready(place, node, gpus)
    return place


def down(place: Place) -> None:
    if not place.state.exists():
        return
    processes.stop(place.state, MADE_UP)
    for node in nodes.known(place):
        nodes.down(place, node)
    controlplane.down(place)
    shutil.rmtree(place.state)


def start_made_up(place: Place, count: int, gpus: int) -> None:
    """Start nodes without machines, until there are at least as many as requested."""
    known = place.state / "made-up"
    before = int(known.read_text()) if known.exists() else 0
    if count > before:
        processes.stop(place.state, MADE_UP)
        known.write_text(str(count))
    count = max(count, before)
    heartbeat_s = controlplane.grace_s(place) / 3
    module = [
        "deploy.testcluster.fake_nodes",
        str(place.kubeconfig),
        *map(str, (count, gpus, heartbeat_s)),
    ]
    env = {**os.environ, "PYTHONPATH": str(nodes.CHECKOUT)}
    processes.start(place.state, MADE_UP, [sys.executable, "-m", *module], env)


def stop_made_up(place: Place) -> None:
    """Remove the nodes without machines from the cluster."""
    processes.stop(place.state, MADE_UP)
    (place.state / "made-up").unlink(missing_ok=True)
    # The label is theirs alone (`fake_nodes.node`).
    controlplane.api_delete(place, "/api/v1/nodes?labelSelector=muster.dev/made-up")


def check() -> None:
    """Raise Trouble that names what this machine lacks."""
    if os.geteuid() != 0:
        raise Trouble("namespaces and control groups need root: run as root, or set KUBECONFIG")
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing:
        raise Trouble(f"missing: {', '.join(missing)}; apt-get install iproute2 util-linux openssl")


def describe(place: Place) -> str:
    lines = [
        f"# Kubernetes {place.kubernetes}, cluster {place.number}, state in {place.state}",
        f"# control plane: {controlplane.status(place)}",
        f"# nodes: {', '.join(map(node_name, nodes.known(place))) or 'none'}",
        f"export KUBECONFIG={place.kubeconfig}",
        f"export PATH={place.programs}:$PATH    # kubectl",
    ]
    return "\n".join(lines)


Deed = Callable[..., None]
DEEDS: dict[str, Deed] = {
    "up": lambda place, node: nodes.up(place, node),
    "off": nodes.off,
    "kill": nodes.kill,
    "start": nodes.start,
    "sicken": nodes.sicken,
    "unplug": nodes.unplug,
    "plug": lambda place, node: nodes.unplug(place, node, plugged=True),
}
