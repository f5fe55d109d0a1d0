"""The folders and addresses of a test cluster.

The cache holds what was built, for every cluster of the machine; a state folder holds one cluster.
Each cluster has a number, and every name and address outside its folder is
derived from it, so that several clusters run at once.
"""

import ipaddress
import json
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from deploy.testcluster import versions

NUMBERS = range(1, 100)
# Inside a node these are the node's own, so a state folder there would vanish.
HIDDEN_IN_NODES = tuple(map(Path, ("/run", "/var/lib", "/var/log", "/proc")))


class Trouble(Exception):
    """The test cluster cannot run here; the text names what is missing and how to get it."""


class Place(NamedTuple):
    cache: Path
    state: Path
    number: int
    kubernetes: str

    @property
    def programs(self) -> Path:
        return self.cache / f"kubernetes-{self.kubernetes}"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "pki" / "admin.kubeconfig"

    @property
    def bridge(self) -> str:
        return f"muster{self.number}"

    # The API server listens at the first address of the services, where pods look for it; so they
    # reach it without address translation.
    @property
    def services(self) -> str:
        return f"10.96.{self.number}.0/24"

    @property
    def api(self) -> str:
        return f"10.96.{self.number}.1"

    @property
    def gateway(self) -> str:
        """The machine's own address among the nodes; DNS answers there."""
        return f"10.97.{self.number}.1"

    @property
    def loopback(self) -> str:
        """Return the address of the daemons that no pod should reach."""
        return f"127.97.{self.number}.1"

    def node_address(self, node: int) -> str:
        return f"10.97.{self.number}.{10 + node}"

    def pods(self, node: int) -> str:
        return f"10.{100 + self.number}.{node}.0/24"

    @property
    def networks(self) -> list[str]:
        return [self.services, f"10.97.{self.number}.0/24", f"10.{100 + self.number}.0.0/16"]


def node_name(node: int) -> str:
    return f"node-{node}"


def here(environment: dict[str, str] | None = None) -> Place:
    """Return the cluster that the environment names, running or not."""
    env = dict(os.environ) if environment is None else environment
    cache = Path(env.get("MUSTER_TESTCLUSTER_CACHE") or Path.home() / ".cache/muster-testcluster")
    cache = cache.expanduser().absolute()
    state = Path(env.get("MUSTER_TESTCLUSTER_STATE") or cache / "cluster").expanduser().absolute()
    if any(state.is_relative_to(hidden) for hidden in HIDDEN_IN_NODES):
        raise Trouble(f"MUSTER_TESTCLUSTER_STATE={state}: nodes cannot see folders in there")
    known = state / "cluster.json"
    if known.exists():
        stored = json.loads(known.read_text())
        return Place(cache, state, stored["number"], stored["kubernetes"])
    version = env.get("MUSTER_TESTCLUSTER_KUBERNETES") or versions.KUBERNETES
    return Place(cache, state, 0, version)


def settle(place: Place) -> Place:
    """Assign a number to a cluster that is about to start, and record it.

    The bridge of that number is made here: of several processes only one can make it.
    """
    if place.number:
        return place
    for number in NUMBERS:
        numbered = place._replace(number=number)
        if _is_free(numbered) and _made(numbered.bridge):
            place.state.mkdir(parents=True, exist_ok=True)
            settings = {"number": number, "kubernetes": place.kubernetes}
            (place.state / "cluster.json").write_text(json.dumps(settings))
            return numbered
    raise Trouble("every address range that a test cluster would take is in use; see `ip route`")


def _made(bridge: str) -> bool:
    done = subprocess.run(
        ["ip", "link", "add", bridge, "type", "bridge"], capture_output=True, text=True
    )
    if done.returncode and "exists" not in done.stderr:
        raise Trouble(f"no bridge can be made: {done.stderr.strip()}")
    return done.returncode == 0


def _is_free(place: Place) -> bool:
    """Return whether nothing on this machine uses the addresses."""
    wanted = map(ipaddress.ip_network, place.networks)
    taken = _routes()
    return not any(network.overlaps(route) for network in wanted for route in taken)


def _routes() -> list[ipaddress.IPv4Network]:
    try:
        routes = subprocess.run(["ip", "-4", "route"], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        return []
    first = [line.split()[0] for line in routes.stdout.splitlines() if line.strip()]
    return [ipaddress.IPv4Network(word) for word in first if word[0].isdigit()]
