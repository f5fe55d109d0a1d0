"""Packages of Debian 12, fetched by apt with its signatures checked, unpacked and not installed."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from deploy.testcluster.places import Trouble

SUITES = """\
Types: {types}
URIs: http://deb.debian.org/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: {keys}

Types: {types}
URIs: http://deb.debian.org/debian-security
Suites: bookworm-security
Components: main
Signed-By: {keys}
"""
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class Apt:
    """apt with lists and an archive of its own; it neither reads nor changes the machine's packages."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._env = {**os.environ, "APT_CONFIG": str(home / "apt.conf")}

    def update(self) -> None:
        if not shutil.which("apt-get") or not shutil.which("dpkg-deb") or not KEYS.exists():
            raise Trouble(
                "containerd, runc and the pods' images come from Debian packages: apt-get, dpkg-deb "
                f"and {KEYS} are needed (packages apt, dpkg and debian-archive-keyring)"
            )
        for folder in ("lists/partial", "archives/partial", "parts"):
            (self.home / folder).mkdir(parents=True, exist_ok=True)
        (self.home / "debian.sources").write_text(SUITES.format(types="deb deb-src", keys=KEYS))
        (self.home / "status").touch()
        settings = {
            "Dir::Etc::sourcelist": self.home / "debian.sources",
            "Dir::Etc::sourceparts": self.home / "parts",
            "Dir::State": self.home,
            "Dir::State::lists": self.home / "lists",
            # An empty list of what is installed, so that dependencies are fetched too.
            "Dir::State::status": self.home / "status",
            "Dir::Cache": self.home,
            "Dir::Cache::archives": self.home / "archives",
            "APT::Sandbox::User": "root",
            "APT::Install-Recommends": "false",
        }
        lines = [f'{name} "{value}";' for name, value in settings.items()]
        (self.home / "apt.conf").write_text("\n".join(lines) + "\n")
        self._run("apt-get", "-qq", "update")

    def fetch(self, packages: Sequence[str], folder: Path) -> None:
        """Fetch exactly these packages and unpack them into a folder."""
        debs = self.home / "debs"
        debs.mkdir(exist_ok=True)
        before = set(debs.glob("*.deb"))
        self._run("apt-get", "-qq", "download", *packages, cwd=debs)
        self._unpack(sorted(set(debs.glob("*.deb")) - before), folder)

    def fetch_with_all_they_need(self, packages: Sequence[str], folder: Path) -> None:
        for old in (self.home / "archives").glob("*.deb"):
            old.unlink()
        self._run("apt-get", "-qq", "--yes", "--download-only", "install", *packages)
        self._unpack(sorted((self.home / "archives").glob("*.deb")), folder)

    def fetch_source(self, package: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._run("apt-get", "-qq", "source", "--download-only", package, cwd=folder)

    def _unpack(self, debs: Sequence[Path], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for deb in debs:
            self._run("dpkg-deb", "-x", str(deb), str(folder))

    def _run(self, *words: str, cwd: Path | None = None) -> None:
        done = subprocess.run(words, env=self._env, cwd=cwd, capture_output=True, text=True)
        if done.returncode:
            raise Trouble(
                f"`{' '.join(words)}` failed; is deb.debian.org reached?\n{done.stderr[-2000:]}"
            )
