"""The images of the test pods, made from Debian's packages without any container engine.

`localhost/pause` holds a pod's namespaces open, `localhost/busybox` has a shell and small tools,
`localhost/python` has Python with numpy.
"""

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.testcluster import versions
from deploy.testcluster.builds import link, log, once
from deploy.testcluster.debian import Apt
from deploy.testcluster.places import Place

PAUSE = "localhost/pause:1"
BUSYBOX = "localhost/busybox:1"
PYTHON = "localhost/python:3.11"
# In place of the image with which the old MPI operators bring kubectl to a launcher; this one is
# empty, since no test calls kubectl.
DELIVERY = "docker.io/mpioperator/kubectl-delivery:latest"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
EPOCH = "1970-01-01T00:00:00Z"


def root(place: Place) -> Path:
    """Return the folder where Debian's containerd, runc and network plugins are."""
    return place.cache / "debian-12" / "root"


def archives(place: Place) -> list[Path]:
    return sorted((place.cache / "images").glob("*.tar"))


def make(place: Place) -> None:
    """Unpack the packages and make the images that the cache does not have yet."""
    if _missing(place):
        with once(place.cache, "images"):
            _make(place, _missing(place))


def _missing(place: Place) -> list[str]:
    made = [name for name in IMAGES if not (place.cache / "images" / f"{name}.tar").exists()]
    return made if root(place).exists() else [*made, "root"]


def _make(place: Place, missing: list[str]) -> None:
    if not missing:
        return
    log("fetching containerd, runc, network plugins and the pods' images from Debian")
    apt = Apt(place.cache / "debian-12" / "apt")
    apt.update()
    if not root(place).exists():
        fresh = root(place).with_name("root.new")
        shutil.rmtree(fresh, ignore_errors=True)
        apt.fetch(versions.DEBIAN_PACKAGES, fresh)
        fresh.rename(root(place))
    folder = place.cache / "images"
    folder.mkdir(exist_ok=True)
    for name in IMAGES:
        if name in missing:
            tree = folder / f"{name}.tree"
            shutil.rmtree(tree, ignore_errors=True)
            IMAGES[name](tree, root(place), apt, folder / f"{name}.tar")
            shutil.rmtree(tree)


def _pause(tree: Path, debian: Path, apt: Apt, archive: Path) -> None:
    tree.mkdir()
    shutil.copy(debian / "usr/bin/catatonit", tree / "catatonit")
    pack(archive, PAUSE, tree, ["/catatonit", "-P"])


def _busybox(tree: Path, debian: Path, apt: Apt, archive: Path) -> None:
    (tree / "bin").mkdir(parents=True)
    furnish(tree, debian)
    pack(archive, BUSYBOX, tree, [])


def _delivery(tree: Path, debian: Path, apt: Apt, archive: Path) -> None:
    (tree / "bin").mkdir(parents=True)
    furnish(tree, debian)
    pack(archive, DELIVERY, tree, ["/bin/true"])


def _python(tree: Path, debian: Path, apt: Apt, archive: Path) -> None:
    apt.fetch_with_all_they_need(versions.DEBIAN_PYTHON, tree)
    for name in ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/perl"):
        shutil.rmtree(tree / name, ignore_errors=True)
    furnish(tree, debian)
    link(tree / "usr/local/bin/python", "/usr/bin/python3")
    # Debian's install scripts, which do not run here, would add these to the loader's path.
    search = f"{LIBRARIES}/blas:{LIBRARIES}/lapack"
    pack(archive, PYTHON, tree, [], {"LD_LIBRARY_PATH": search, "OPENBLAS_NUM_THREADS": "1"})


IMAGES = {"pause": _pause, "busybox": _busybox, "python": _python, "delivery": _delivery}
NAMES = {"pause": PAUSE, "busybox": BUSYBOX, "python": PYTHON, "delivery": DELIVERY}


def furnish(tree: Path, debian: Path) -> None:
    """Add a shell and small tools, an /etc with one user, and the folders that programs expect."""
    for name in ("bin", "etc", "tmp", "root", "var/tmp", "usr/local/bin"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    shutil.copy(next(debian.glob("**/bin/busybox")), tree / "bin" / "busybox")
    for tool in TOOLS.split():
        if not any(
            (tree / folder / tool).exists() for folder in ("bin", "usr/bin", "sbin", "usr/sbin")
        ):
            link(tree / "bin" / tool, "busybox")
    (tree / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
    )
    (tree / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (tree / "tmp").chmod(0o1777)


TOOLS = (
    "sh cat echo sleep true false date env hostname ls ps kill grep sed awk head tail wc sort seq "
    "test mkdir rm cp mv ln touch chmod dd df free id nc nslookup ping wget vi tr cut xargs find "
    "mktemp printf stat sync tar top uname yes timeout"
)


def pack(
    archive: Path, name: str, tree: Path, entrypoint: Sequence[str], env: Mapping[str, str] = {}
) -> None:
    """Write a tree as an image of one layer, in the format of `docker save`."""
    layer = archive.with_suffix(".layer")
    make_layer(tree, layer)
    save(archive, name, [layer], entrypoint, env)
    layer.unlink()


def make_layer(tree: Path, layer: Path) -> None:
    """Write a tree as a layer without times and owners, so that it is reproducible."""
    fresh = layer.with_suffix(".fresh")
    with tarfile.open(fresh, "w") as tar:
        for path in sorted(tree.rglob("*")):
            entry = tar.gettarinfo(str(path), str(path.relative_to(tree)))
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            if entry.isfile():
                with path.open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)
    fresh.rename(layer)


def save(
    archive: Path,
    name: str,
    layers: Sequence[Path],
    entrypoint: Sequence[str],
    env: Mapping[str, str] = {},
    user: str = "",
) -> None:
    """Write layers, the lowest first, as an image in the format of `docker save`."""
    digests = []
    for layer in layers:
        with layer.open("rb") as content:
            digests.append(f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}")
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": EPOCH,
        "config": {
            "Env": [f"PATH={PATH}", *(f"{key}={value}" for key, value in env.items())],
            "Entrypoint": list(entrypoint) or None,
            "WorkingDir": "/",
            "User": user,
        },
        "rootfs": {"type": "layers", "diff_ids": digests},
        "history": [{"created": EPOCH, "created_by": "muster's test cluster"}] * len(layers),
    }
    config_bytes = json.dumps(config).encode()
    config_name = hashlib.sha256(config_bytes).hexdigest() + ".json"
    names = [f"layer-{number}.tar" for number in range(len(layers))]
    index = [{"Config": config_name, "RepoTags": [name], "Layers": names}]
    fresh = archive.with_suffix(".new")
    with tarfile.open(fresh, "w") as tar:
        members = {config_name: config_bytes, "manifest.json": json.dumps(index).encode()}
        for member, text in members.items():
            entry = tarfile.TarInfo(member)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
        for layer, member in zip(layers, names, strict=True):
            tar.add(layer, arcname=member)
    fresh.rename(archive)
