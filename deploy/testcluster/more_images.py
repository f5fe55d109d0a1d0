"""Images that only some tests need, made on demand and loaded into the nodes that run them.

`localhost/git` checks code out, `localhost/postgres` is a database configured by the variables of
Docker's image of that name, and `localhost/muster` is the control plane itself, from this
checkout: as `Containerfile` builds it, without a container engine and a base image.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from deploy.testcluster import images, nodes
from deploy.testcluster.builds import link, log, once
from deploy.testcluster.debian import Apt
from deploy.testcluster.places import Place, Trouble

GIT = "localhost/git:1"
POSTGRES = "localhost/postgres:15"
MUSTER = "localhost/muster:checkout"
# As in Containerfile.
USER = "65532:65532"
SITE = "opt/muster/lib"
# Documentation is not needed in a pod.
SPARE = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/perl")
# The platform of a lock file's wheels: the Python and the C library of Debian 12.
LIBC = ("2_34", "2_28", "2_17", "2_12", "2_5")
WHEELS = (
    *("--python-version", "3.11", "--implementation", "cp", "--only-binary", ":all:"),
    *(word for tag in LIBC for word in ("--platform", f"manylinux_{tag}_x86_64")),
)

SERVE_POSTGRES = """#!/bin/sh
set -e
programs=/usr/lib/postgresql/15/bin
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  printf %s "$POSTGRES_PASSWORD" > /tmp/password
  $programs/initdb -D "$PGDATA" -U "$POSTGRES_USER" --pwfile=/tmp/password -A scram-sha-256 \\
    --locale=C.UTF-8 -E UTF8
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  echo "CREATE DATABASE $POSTGRES_DB" | $programs/postgres --single -D "$PGDATA" postgres
fi
exec $programs/postgres -D "$PGDATA" -c listen_addresses='*' -c jit=off
"""
START_MUSTER = """#!/usr/bin/python3
import sys

from cli.main import main

sys.exit(main())
"""


def load(place: Place, node: int, archive: Path, name: str) -> None:
    """Load the image into the node."""
    if name == MUSTER or not nodes.has_image(place, node, name):
        nodes.load_image(place, node, archive)


def git(place: Place) -> Path:
    return _made(place, "git", lambda archive: _git(place, archive))


def postgres(place: Place) -> Path:
    return _made(place, "postgres", lambda archive: _postgres(place, archive))


def muster(place: Place) -> Path:
    """Make the image of this checkout, on a layer with Python and the locked wheels."""
    lock = nodes.CHECKOUT / "requirements.lock"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    base = _made(place, f"muster-base-{digest}", lambda layer: _muster_base(place, lock, layer))
    folder = base.parent
    with once(place.cache, "muster-image"):
        tree, layer = folder / "muster.tree", folder / "muster.layer"
        shutil.rmtree(tree, ignore_errors=True)
        _install_checkout(tree)
        images.make_layer(tree, layer)
        archive = folder / "muster.tar"
        env = {"PYTHONPATH": f"/{SITE}", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1",
               "XDG_DATA_HOME": "/var/lib"}  # fmt: skip
        images.save(archive, MUSTER, [base, layer], ["/opt/muster/bin/muster"], env, USER)
        shutil.rmtree(tree)
        layer.unlink()
    return archive


def _made(place: Place, name: str, make: Callable[[Path], None]) -> Path:
    """Return the archive of this name in the cache; make it if it is not there.

    These archives are apart from those that every node gets.
    """
    folder = place.cache / "images" / "more"
    archive = folder / f"{name}.tar"
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with once(place.cache, "more-images"):
            if not archive.exists():
                log(f"making the image {name}")
                make(archive)
    return archive


def _tree(place: Place, archive: Path, *packages: str) -> Path:
    tree = archive.with_suffix(".tree")
    shutil.rmtree(tree, ignore_errors=True)
    apt = Apt(place.cache / "debian-12" / "apt-more")
    apt.update()
    apt.fetch_with_all_they_need(packages, tree)
    for name in SPARE:
        shutil.rmtree(tree / name, ignore_errors=True)
    images.furnish(tree, images.root(place))
    return tree


def _git(place: Place, archive: Path) -> None:
    tree = _tree(place, archive, "git", "ca-certificates", "openssh-client")
    images.pack(archive, GIT, tree, [])
    shutil.rmtree(tree)


def _postgres(place: Place, archive: Path) -> None:
    tree = _tree(place, archive, "postgresql-15")
    # The JIT compiler of queries: optional, and larger than all the rest.
    for spare in (*tree.glob("usr/lib/x86_64-linux-gnu/libLLVM*"), *tree.glob("usr/lib/llvm*")):
        shutil.rmtree(spare) if spare.is_dir() else spare.unlink()
    with (tree / "etc/passwd").open("a") as users:
        users.write("postgres:x:999:999::/var/lib/postgresql:/bin/sh\n")
    (tree / "var/run/postgresql").mkdir(parents=True, exist_ok=True)
    for name in ("pg_isready", "psql"):
        link(tree / "usr/local/bin" / name, f"/usr/lib/postgresql/15/bin/{name}")
    _script(tree / "usr/local/bin/serve", SERVE_POSTGRES)
    images.pack(archive, POSTGRES, tree, ["/usr/local/bin/serve"])
    shutil.rmtree(tree)


def _muster_base(place: Place, lock: Path, layer: Path) -> None:
    # The last one is in every image of Debian that has apt, and numpy needs it.
    tree = _tree(place, layer, "python3", "ca-certificates", "libstdc++6")
    _pip("install", "--require-hashes", *WHEELS, "--no-compile", "--target", str(tree / SITE),
         "-r", str(lock))  # fmt: skip
    images.make_layer(tree, layer)
    shutil.rmtree(tree)


def _install_checkout(tree: Path) -> None:
    """Build a wheel of the checkout without the network and install it, as Containerfile does."""
    wheels = tree.with_suffix(".wheels")
    shutil.rmtree(wheels, ignore_errors=True)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(wheels),
         str(nodes.CHECKOUT), inside=Path(sys.prefix))  # fmt: skip
    (wheel,) = wheels.glob("*.whl")
    _pip("install", "--no-deps", "--no-index", "--no-compile", "--target", str(tree / SITE),
         str(wheel))  # fmt: skip
    shutil.rmtree(wheels)
    _script(tree / "opt/muster/bin/muster", START_MUSTER)
    data = tree / "var/lib/muster"
    data.mkdir(parents=True)
    data.chmod(0o777)


def _script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def _pip(*words: str, inside: Path | None = None) -> None:
    """Return the machine's pip; environments of this project have none."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin:" + os.environ.get("PATH", ""))
    chosen = ["--python", str(inside)] if inside is not None else []
    run = [str(python), "-m", "pip", *chosen, "--disable-pip-version-check", "--quiet", *words]
    done = subprocess.run(run, capture_output=True, text=True)
    if done.returncode:
        raise Trouble(f"`{' '.join(run[1:])}` failed:\n{done.stderr[-2000:]}")
