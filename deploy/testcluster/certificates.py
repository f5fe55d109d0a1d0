"""The keys of a test cluster: one authority, and a certificate and a kubeconfig for each client."""

import json
import shutil
import subprocess
from pathlib import Path

from deploy.testcluster.places import Place, Trouble, node_name

DAYS = "3650"
# The clients of the API server: common name and group of each.
PEOPLE = {
    "admin": ("kubernetes-admin", "system:masters"),
    "scheduler": ("system:kube-scheduler", ""),
    "controller-manager": ("system:kube-controller-manager", ""),
    "dns": ("testcluster-dns", "system:masters"),
    "kubelet-client": ("kube-apiserver-kubelet-client", "system:masters"),
}


def make(place: Place) -> None:
    pki = place.state / "pki"
    if (pki / "admin.kubeconfig").exists():
        return
    if not shutil.which("openssl"):
        raise Trouble("openssl is missing; on Debian: apt-get install openssl")
    pki.mkdir(parents=True, exist_ok=True)
    pki.chmod(0o700)
    _run(pki, "req", "-x509", *_key("ca"), "-days", DAYS, "-subj", "/CN=muster-testcluster")
    _run(pki, "genrsa", "-out", "accounts.key", "2048")
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
    addresses = [place.api, place.gateway, place.loopback, "127.0.0.1"]
    also = ",".join([*(f"DNS:{n}" for n in names), *(f"IP:{a}" for a in addresses)])
    _sign(pki, "apiserver", "/CN=kube-apiserver", f"subjectAltName={also}")
    for who, (name, group) in PEOPLE.items():
        person(place, who, name, group)


def for_node(place: Place, node: int) -> Path:
    name = node_name(node)
    return person(place, name, f"system:node:{name}", "system:nodes")


def person(place: Place, who: str, name: str, group: str = "") -> Path:
    """Return the path of the kubeconfig of user `who`; write it if it does not exist yet."""
    pki = place.state / "pki"
    path = pki / f"{who}.kubeconfig"
    if not path.exists():
        _sign(
            pki,
            who,
            f"/O={group}/CN={name}" if group else f"/CN={name}",
            "extendedKeyUsage=clientAuth",
        )
        path.write_text(kubeconfig(place, who))
        path.chmod(0o600)
    return path


def kubeconfig(place: Place, who: str, server: str = "") -> str:
    """Return the kubeconfig as JSON, which is YAML too."""
    pki = place.state / "pki"
    cluster = {
        "server": server or f"https://{place.api}:443",
        "certificate-authority": str(pki / "ca.crt"),
    }
    user = {"client-certificate": str(pki / f"{who}.crt"), "client-key": str(pki / f"{who}.key")}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testcluster", "cluster": cluster}],
        "users": [{"name": who, "user": user}],
        "contexts": [{"name": "testcluster", "context": {"cluster": "testcluster", "user": who}}],
        "current-context": "testcluster",
    }
    return json.dumps(document, indent=1) + "\n"


def _key(name: str) -> list[str]:
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    return [*curve, "-keyout", f"{name}.key", "-out", f"{name}.crt"]


def _sign(pki: Path, name: str, subject: str, extension: str) -> None:
    wanted = _key(name)
    wanted[-1] = f"{name}.csr"
    _run(pki, "req", *wanted, "-subj", subject)
    (pki / f"{name}.ext").write_text(extension + "\n")
    authority = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", f"{name}.ext"]
    _run(
        pki, "x509", "-req", "-in", f"{name}.csr", *authority, "-days", DAYS, "-out", f"{name}.crt"
    )


def _run(folder: Path, *words: str) -> None:
    done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise Trouble(f"openssl {words[0]} failed:\n{done.stderr}")
