"""Configuration files of the daemons of a real node: containerd and the kubelet."""

import json
from pathlib import Path

from deploy.testcluster import certificates, cgroups, images, versions
from deploy.testcluster.places import Place, node_name

SOCKET = "/run/containerd/containerd.sock"
GPU_LABELS = {"nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB", "nvidia.com/gpu.memory": "32510"}
NODES_IN_A_RACK = 2


def containerd(place: Place, node: int, home: Path) -> None:
    debian = images.root(place)
    network = {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": True,
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": place.pods(node)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }
    (home / "cni" / "10-pods.conflist").write_text(json.dumps(network))
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    (home / "containerd.toml").write_text(f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[{cri}]
  sandbox_image = "{images.PAUSE}"
  # Where CAP_SYS_RESOURCE is missing, every sandbox would fail without this.
  restrict_oom_score_adj = true
  [{cri}.cni]
    bin_dir = "{debian}/usr/lib/cni"
    conf_dir = "{home}/cni"
  [{cri}.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [{cri}.containerd.runtimes.runc.options]
      BinaryName = "{debian}/usr/sbin/runc"
""")


def kubelet(place: Place, node: int, home: Path) -> list[str]:
    """Write the configuration of the kubelet and return its command line."""
    config = kubelet_config(place, node)
    (home / "kubelet.json").write_text(json.dumps(config, indent=1))
    racks = {"topology.kubernetes.io/zone": f"rack-{(node - 1) // NODES_IN_A_RACK}"}
    labels = ",".join(f"{key}={value}" for key, value in {**GPU_LABELS, **racks}.items())
    words = [
        str(place.programs / "kubelet"),
        f"--config={home / 'kubelet.json'}",
        f"--kubeconfig={certificates.for_node(place, node)}",
        "--cert-dir=/var/lib/kubelet/pki",
        f"--hostname-override={node_name(node)}",
        f"--node-ip={place.node_address(node)}",
        f"--node-labels={labels}",
    ]
    if versions.minor(place.kubernetes) < 27:
        words += ["--container-runtime=remote", f"--container-runtime-endpoint=unix://{SOCKET}"]
    return words


def kubelet_config(place: Place, node: int) -> dict[str, object]:
    new = versions.minor(place.kubernetes) >= 27
    config: dict[str, object] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": place.node_address(node),
        "healthzBindAddress": "127.0.0.1",
        "readOnlyPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(place.state / "pki" / "ca.crt")},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroups.name(place, node),
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "clusterDomain": "cluster.local",
        "clusterDNS": [place.gateway],
        "resolvConf": "",
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 8,
        "syncFrequency": "5s",
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "maxPods": 200,
        "serializeImagePulls": False,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "eventRecordQPS": 0,
        "registryPullQPS": 0,
    }
    if new:
        config |= {"containerRuntimeEndpoint": f"unix://{SOCKET}", "failCgroupV1": False}
    return config
