"""Addresses, modules and images of the test cluster, as far as they are plain values."""

import ipaddress
import json
import tarfile
from itertools import combinations
from pathlib import Path

import pytest

from deploy.testcluster import builds, images, places, versions

CACHE = Path("/nowhere")


def numbered(number: int) -> places.Place:
    return places.Place(CACHE, CACHE / "state", number, versions.KUBERNETES)


def test_no_two_clusters_share_an_address() -> None:
    taken = [
        (n, ipaddress.ip_network(each)) for n in places.NUMBERS for each in numbered(n).networks
    ]
    clashes = [(a, b) for (a, x), (b, y) in combinations(taken, 2) if x.overlaps(y)]
    assert clashes == []


def test_a_cluster_holds_the_addresses_that_it_uses() -> None:
    place = numbered(7)
    used = [place.api, place.gateway, place.node_address(1), place.pods(30)]
    networks = [ipaddress.ip_network(each) for each in place.networks]
    for each in used:
        assert any(ipaddress.ip_network(each).subnet_of(network) for network in networks), each


def test_a_running_cluster_is_recognised_by_its_folder(tmp_path: Path) -> None:
    env = {"MUSTER_TESTCLUSTER_CACHE": str(tmp_path), "MUSTER_TESTCLUSTER_KUBERNETES": "1.34.9"}
    assert places.here(env) == places.Place(tmp_path, tmp_path / "cluster", 0, "1.34.9")
    (tmp_path / "cluster").mkdir()
    settings = {"number": 4, "kubernetes": "1.36.4"}
    (tmp_path / "cluster" / "cluster.json").write_text(json.dumps(settings))
    assert places.here(env) == places.Place(tmp_path, tmp_path / "cluster", 4, "1.36.4")


def test_a_state_folder_that_nodes_cannot_see_is_refused() -> None:
    with pytest.raises(places.Trouble, match="/var/lib/state"):
        places.here({"MUSTER_TESTCLUSTER_STATE": "/var/lib/state"})


@pytest.mark.parametrize(("version", "count"), [("1.34.2", 31), ("1.35.0", 31), ("1.36.4", 33)])
def test_each_release_names_its_own_staging_modules(version: str, count: int) -> None:
    module = builds.kubernetes_module(version)
    assert len(module.replaces) == count
    assert set(module.replaces.values()) == {"v0." + version.removeprefix("1.")}
    assert f"k8s.io/kubernetes v{version}" in builds.go_mod(module)


def test_an_image_is_the_same_whenever_it_is_packed(tmp_path: Path) -> None:
    archives = []
    for name in ("a", "b"):
        tree = tmp_path / name / "tree"
        (tree / "bin").mkdir(parents=True)
        (tree / "bin" / "sh").write_text("a shell")
        (tree / "bin" / "sh").chmod(0o755)
        archives.append(tmp_path / name / "image.tar")
        images.pack(archives[-1], "localhost/test:1", tree, ["/bin/sh"], {"A": "1"})
    configs = []
    for archive in archives:
        with tarfile.open(archive) as tar:
            index = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]
            assert index[0]["RepoTags"] == ["localhost/test:1"]
            configs.append(json.load(tar.extractfile(index[0]["Config"])))  # type: ignore[arg-type]
    assert configs[0] == configs[1]
    assert configs[0]["config"]["Entrypoint"] == ["/bin/sh"]
    assert "A=1" in configs[0]["config"]["Env"]
