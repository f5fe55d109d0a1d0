"""etcd, the API server, the scheduler, the controllers and DNS: the part without nodes."""

import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from deploy.testcluster import builds, certificates, oldest, processes, versions
from deploy.testcluster.places import Place, Trouble

ETCD_PORT = 2379
SCHEDULER_PORT = 10259
CONTROLLERS_PORT = 10257
# Quick enough for tests: how long a node may be silent before it counts as lost. Kubelets send a
# heartbeat every two seconds, made-up nodes three within this time.
NODE_GRACE_S = 8.0
CHECKOUT = Path(__file__).parents[2]
ORDER = ("etcd", "apiserver", "scheduler", "controllers", "dns")


def up(place: Place) -> None:
    certificates.make(place)
    _bridge(place)
    start(place, "etcd")
    start(place, "apiserver")
    for name in ("scheduler", "controllers"):
        start(place, name)
    start(place, "dns")


def down(place: Place) -> None:
    for name in reversed(ORDER):
        processes.stop(place.state, name)
    subprocess.run(["ip", "link", "delete", place.bridge], capture_output=True)


def start(place: Place, name: str) -> None:
    """Start one daemon; wait for etcd and the API server to answer."""
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    processes.start(place.state, name, COMMANDS[name](place), env)
    if name == "etcd":
        _wait(place, name, lambda: _get(f"http://{place.loopback}:{ETCD_PORT}/health") != "")
    if name == "apiserver":
        _wait(place, name, lambda: api_get(place, "/readyz") == "ok")


def grace_s(place: Place) -> float:
    """Return how long a node of this cluster may be silent, in seconds."""
    path = place.state / "grace"
    return float(path.read_text()) if path.exists() else NODE_GRACE_S


def has_coredns(place: Place) -> bool:
    """Return whether CoreDNS supports this Kubernetes: 1.21 and newer."""
    return versions.minor(place.kubernetes) >= 21


def api_get(place: Place, path: str) -> str:
    """Return the answer of the API server; "" if there is none."""
    return _get(f"https://{place.api}:443{path}", _trust(place))


def api_delete(place: Place, path: str) -> None:
    request = urllib.request.Request(f"https://{place.api}:443{path}", method="DELETE")
    urllib.request.urlopen(request, timeout=30, context=_trust(place)).close()


def _trust(place: Place) -> ssl.SSLContext:
    pki = place.state / "pki"
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    return context


def _get(url: str, context: ssl.SSLContext | None = None) -> str:
    try:
        with urllib.request.urlopen(url, timeout=2, context=context) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return ""


def _wait(place: Place, name: str, reached: Callable[[], bool]) -> None:
    def step() -> bool:
        if processes.pid_of(place.state, name) is None:
            raise Trouble(f"{name} ended at once:\n{processes.tail(place.state, name)}")
        return reached()

    try:
        processes.until(step, 90, f"{name} to answer")
    except Trouble as trouble:
        raise Trouble(f"{trouble}:\n{processes.tail(place.state, name)}") from None


def _bridge(place: Place) -> None:
    """Create the bridge between the nodes; the machine has the API server's address on it."""
    if not Path(f"/sys/class/net/{place.bridge}").exists():
        ip(f"link add {place.bridge} type bridge")
    for words in (
        f"address replace {place.gateway}/24 dev {place.bridge}",
        f"address replace {place.api}/32 dev {place.bridge}",
        f"link set {place.bridge} up",
    ):
        ip(words)


def ip(words: str) -> None:
    done = subprocess.run(["ip", *words.split()], capture_output=True, text=True)
    if done.returncode:
        raise Trouble(
            f"`ip {words}` failed: {done.stderr.strip()}; it needs root and the package iproute2"
        )


def _etcd(place: Place) -> list[str]:
    old = oldest.is_wanted(place)
    program = oldest.etcd_root(place) / "usr/bin/etcd" if old else builds.etcd(place)
    clients, peers = (f"http://{place.loopback}:{ETCD_PORT + i}" for i in (0, 1))
    return [
        str(program),
        f"--data-dir={place.state / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        # A power failure loses only a test. Etcd 3.4 does not have this flag.
        *([] if old else ["--unsafe-no-fsync"]),
        "--log-level=warn",
    ]


def _apiserver(place: Place) -> list[str]:
    pki = place.state / "pki"
    return [
        str(place.programs / "kube-apiserver"),
        f"--etcd-servers=http://{place.loopback}:{ETCD_PORT}",
        f"--bind-address={place.api}",
        f"--advertise-address={place.api}",
        "--secure-port=443",
        f"--service-cluster-ip-range={place.services}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={pki / 'accounts.key'}",
        f"--service-account-signing-key-file={pki / 'accounts.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        # The node controller takes these away by taint; tests must not wait five minutes for it.
        "--default-not-ready-toleration-seconds=2",
        "--default-unreachable-toleration-seconds=2",
        f"--cert-dir={place.state / 'apiserver'}",
    ]


def _scheduler(place: Place) -> list[str]:
    return [
        str(place.programs / "kube-scheduler"),
        *_client(place, "scheduler", SCHEDULER_PORT),
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
    ]


def _controllers(place: Place) -> list[str]:
    pki = place.state / "pki"
    return [
        str(place.programs / "kube-controller-manager"),
        *_client(place, "controller-manager", CONTROLLERS_PORT),
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={pki / 'accounts.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        "--node-monitor-period=1s",
        f"--node-monitor-grace-period={grace_s(place):g}s",
    ]


def _client(place: Place, who: str, port: int) -> list[str]:
    config = place.state / "pki" / f"{who}.kubeconfig"
    asked = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    return [
        *(f"--{option}={config}" for option in asked),
        f"--bind-address={place.loopback}",
        f"--secure-port={port}",
        "--leader-elect=false",
    ]


def _dns(place: Place) -> list[str]:
    if not has_coredns(place):
        kubeconfig = str(place.state / "pki/dns.kubeconfig")
        return [sys.executable, "-m", "deploy.testcluster.dns", kubeconfig, place.gateway]
    corefile = place.state / "Corefile"
    corefile.write_text(
        f"cluster.local:53 in-addr.arpa:53 {{\n  bind {place.gateway}\n  errors\n"
        f"  ready {place.loopback}:8181\n"
        # Pods that are not ready yet are resolved too where the service requests it; the
        # short TTL makes the new address of a restarted rank visible soon.
        f"  kubernetes cluster.local in-addr.arpa {{\n    kubeconfig {place.state / 'pki/dns.kubeconfig'}"
        "\n    ttl 1\n  }\n}\n"
    )
    return [str(builds.coredns(place)), "-conf", str(corefile)]


COMMANDS = {
    "etcd": _etcd,
    "apiserver": _apiserver,
    "scheduler": _scheduler,
    "controllers": _controllers,
    "dns": _dns,
}


def status(place: Place) -> str:
    running = {name: processes.pid_of(place.state, name) for name in ORDER}
    return json.dumps(running)
