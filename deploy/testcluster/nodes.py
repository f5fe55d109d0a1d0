"""Real nodes: a kubelet and a containerd each, in namespaces of their own, with pods on a bridge.

A node is one process that does nothing, first in a process namespace of its own. Everything else
of the node is started inside its namespaces, so killing that process ends the node and
all that ran on it, like a power failure. `/run`, `/var/lib` and `/var/log` inside are
the node's own; `eth0` leads to the bridge that all nodes share.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from deploy.testcluster import cgroups, images, node_files, processes
from deploy.testcluster.controlplane import api_get, ip
from deploy.testcluster.places import Place, Trouble, node_name

MACHINE = "machine"
CHECKOUT = Path(__file__).parents[2]


def folder(place: Place, node: int) -> Path:
    return place.state / node_name(node)


def up(place: Place, node: int, gpus: int = 8) -> None:
    """Start a node, or the parts of it that do not run; `wait_ready` waits until it is ready."""
    home = folder(place, node)
    for name in ("lib", "log", "cni", "manifests"):
        (home / name).mkdir(parents=True, exist_ok=True)
    if processes.pid_of(home, MACHINE) is None:
        _power_on(place, node)
    cgroups.make(place, node)
    start(place, node, "containerd")
    start(place, node, "kubelet")
    if gpus:
        start_gpus(place, node, gpus)


def off(place: Place, node: int) -> None:
    """Switch the node off: everything on it ends at once, without a graceful shutdown."""
    processes.kill(folder(place, node), MACHINE)
    for name in ("containerd", "kubelet", "gpus"):
        processes.kill(folder(place, node), name)
    cgroups.remove(place, node)


def down(place: Place, node: int) -> None:
    off(place, node)
    for mounted in sorted(_mounts_under(folder(place, node)), reverse=True):
        subprocess.run(["umount", mounted], capture_output=True)
    shutil.rmtree(folder(place, node), ignore_errors=True)


def start(place: Place, node: int, name: str) -> None:
    home = folder(place, node)
    if name == "containerd":
        node_files.containerd(place, node, home)
        program = images.root(place) / "usr/bin/containerd"
        path = ":".join(str(images.root(place) / each) for each in ("usr/bin", "usr/sbin", "sbin"))
        words = [str(program), "--config", str(home / "containerd.toml")]
        _start_inside(
            place, node, name, ["env", f"PATH={path}:/usr/sbin:/usr/bin:/sbin:/bin", *words]
        )
        answers = lambda: inside(place, node, [*_ctr(place), "version"]).returncode == 0  # noqa: E731
        processes.until(answers, 20, f"containerd of {node_name(node)}")
        there = _images(place, node)
        for archive in images.archives(place):
            if images.NAMES.get(archive.stem) not in there:
                load_image(place, node, archive)
    elif name == "kubelet":
        _start_inside(place, node, name, node_files.kubelet(place, node, home))
    else:
        raise Trouble(f"a node has no {name}")


def load_image(place: Place, node: int, archive: Path) -> None:
    inside(place, node, [*_ctr(place), "images", "import", str(archive)], check=True)


def has_image(place: Place, node: int, name: str) -> bool:
    return name in _images(place, node)


def _images(place: Place, node: int) -> list[str]:
    return inside(place, node, [*_ctr(place), "images", "list", "-q"]).stdout.split()


def _ctr(place: Place) -> list[str]:
    ctr = str(images.root(place) / "usr/bin/ctr")
    return [ctr, "--address", node_files.SOCKET, "-n", "k8s.io"]


def start_gpus(place: Place, node: int, count: int) -> None:
    module = [
        sys.executable,
        "-m",
        "deploy.testcluster.gpus",
        str(count),
        str(folder(place, node) / "sick"),
    ]
    _start_inside(place, node, "gpus", ["env", f"PYTHONPATH={CHECKOUT}", *module])


def kill(place: Place, node: int, name: str) -> None:
    """Send SIGKILL to one daemon of a node; the containers keep running."""
    home = folder(place, node)
    entered = processes.pid_of(home, name)
    if entered is not None:
        subprocess.run(["kill", "-9", str(processes.child_of(entered))], check=True)
    processes.kill(home, name)


def signal_container(place: Place, node: int, container: str, number: int) -> None:
    """Send a signal to the first process of a container, from outside of Kubernetes."""
    inside(
        place, node, [*_ctr(place), "task", "kill", "--signal", str(number), container], check=True
    )


def sicken(place: Place, node: int, *devices: str) -> None:
    """Set which GPUs of a node are unhealthy from now on; none makes all healthy."""
    (folder(place, node) / "sick").write_text(" ".join(devices))


def unplug(place: Place, node: int, *, plugged: bool = False) -> None:
    """Disconnect the node from the network, or reconnect it; the node keeps running."""
    ip(f"link set {_wire(place, node)} {'up' if plugged else 'down'}")


def inside(
    place: Place, node: int, words: list[str], *, check: bool = False
) -> "subprocess.CompletedProcess[str]":
    """Run a command in the node's namespaces."""
    done = subprocess.run([*_enter(place, node), *words], capture_output=True, text=True)
    if check and done.returncode:
        raise Trouble(f"on {node_name(node)}: `{' '.join(words)}` failed:\n{done.stderr[-2000:]}")
    return done


# The node controller sets these with the effect NoExecute, and takes them away by itself.
TAINTS_OF_LOST_NODES = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


def wait_ready(place: Place, node: int, gpus: int = 8, seconds: float = 60) -> None:
    """Wait until a node is ready, offers its GPUs, and no longer evicts the pods bound to it.

    Kubernetes takes its NoExecute taints away only after the node has become ready; a pod bound in
    between is evicted at once.
    """

    def ready() -> bool:
        answer = json.loads(api_get(place, f"/api/v1/nodes/{node_name(node)}") or "{}")
        status = answer.get("status", {})
        conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
        gpus_offered = int(status.get("allocatable", {}).get("nvidia.com/gpu", 0))
        taints = answer.get("spec", {}).get("taints", ())
        evicts = any(taint["key"] in TAINTS_OF_LOST_NODES for taint in taints)
        return conditions.get("Ready") == "True" and gpus_offered >= gpus and not evicts

    try:
        processes.until(ready, seconds, f"{node_name(node)} to be ready")
    except Trouble as trouble:
        raise Trouble(
            f"{trouble}; log of its kubelet:\n{processes.tail(folder(place, node), 'kubelet')}"
        ) from None


def known(place: Place) -> list[int]:
    """Return the nodes that were started, running or not."""
    folders = place.state.glob("node-*")
    return sorted(int(path.name.removeprefix("node-")) for path in folders if path.is_dir())


def _power_on(place: Place, node: int) -> None:
    home, name = folder(place, node), node_name(node)
    # With SIGCHLD ignored, the kernel itself reaps the processes that end inside.
    idle = "trap '' CHLD; exec sleep infinity"
    namespaces = [
        "--mount",
        "--net",
        "--pid",
        "--uts",
        "--ipc",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    words = ["unshare", *namespaces, "--propagation", "private", "sh", "-c", idle]
    machine = processes.child_of(processes.start(home, MACHINE, words))
    processes.until(lambda: Path(f"/proc/{machine}/comm").read_text() == "sleep\n", 5, name)
    wire = _wire(place, node)
    # The interface of a node that was switched off disappears with its network, which takes a while.
    subprocess.run(["ip", "link", "delete", wire], capture_output=True)
    ip(f"link add {wire} type veth peer name eth0 netns {machine}")
    ip(f"link set {wire} master {place.bridge} up")
    others = (other for other in range(1, 31) if other != node)
    routes = "\n".join(
        f"ip route add {place.pods(other)} via {place.node_address(other)}" for other in others
    )
    set_up = f"""set -e
        mount --make-rshared /
        mount -t tmpfs -o mode=755 run /run
        mount --bind {home}/lib /var/lib
        mount --bind {home}/log /var/log
        mkdir -p /run/containerd /run/netns /var/lib/kubelet /var/log/pods
        hostname {name}
        ip link set lo up
        ip link set eth0 up
        ip address add {place.node_address(node)}/24 dev eth0
        ip route add default via {place.gateway}
        {routes}
        echo 1 > /proc/sys/net/ipv4/ip_forward"""
    inside(place, node, ["sh", "-c", set_up], check=True)
    # The machine itself reaches pods too: tests read what they serve.
    ip(f"route replace {place.pods(node)} via {place.node_address(node)}")


def _wire(place: Place, node: int) -> str:
    return f"{place.bridge}-{node}"


def _enter(place: Place, node: int) -> list[str]:
    running = processes.pid_of(folder(place, node), MACHINE)
    if running is None:
        raise Trouble(f"{node_name(node)} is off")
    machine = str(processes.child_of(running))
    return ["nsenter", "--target", machine, "--mount", "--net", "--pid", "--uts", "--ipc"]


def _start_inside(place: Place, node: int, name: str, words: list[str]) -> None:
    processes.start(folder(place, node), name, [*_enter(place, node), *words])


def _mounts_under(home: Path) -> list[str]:
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return [path for path in mounted if Path(path).is_relative_to(home)]
