"""Address books: hosts and ports of ranks are those of the cluster in use, in every kind."""

import json
from typing import Any

import pytest

from controlplane.kinds.kind import GangContext
from controlplane.kinds.registry import kind_of, read_manifest
from controlplane.model.addresses import ServiceNames
from tests.scenarios.test_examples import DOCUMENTS


class Loopback:
    """The book of one machine: a loopback address and ports of its own for each rank."""

    def host(self, rank: int, name: str) -> str:
        return f"127.0.0.{rank + 2}"

    def full_host(self, rank: int, name: str, namespace: str) -> str:
        return self.host(rank, name)

    def port(self, rank: int, port: int) -> int:
        return port + 10_000 + rank

    def search_domains(self, service: str, namespace: str) -> tuple[str, ...]:
        return ()


def texts(document: dict[str, Any], book: Any) -> tuple[list[str], list[str]]:
    """The names of all ranks, and every text that has the address of another rank."""
    job = read_manifest(document)
    kind, gang = kind_of(job.spec), GangContext(job.namespace, job.name, job.spec, book)
    ranks = range(job.spec.size)
    environments = [kind.environments(gang)(rank) for rank in ranks]
    texts = [
        text
        for each in environments
        for text in (
            *each.env.values(),
            *each.env_if_unset.values(),
            *each.dns_searches,
            each.waits_for_host,
        )
    ]
    texts += [text for files in kind.files(gang, ranks) for text in files.contents.values()]
    return [each.name for each in environments], texts


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_kind_names_a_rank_but_by_the_book(document: dict[str, Any]) -> None:
    names, contents = texts(document, Loopback())
    assert [text for text in contents if ".svc" in text] == []
    assert [text for text in contents for name in names if name in text] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_kind_that_names_hosts_names_the_books(document: dict[str, Any]) -> None:
    names, contents = texts(document, ServiceNames("cluster.local"))
    if any(name in text for text in contents for name in names):
        assert any("127.0.0." in text for text in texts(document, Loopback())[1])


def test_each_rank_has_its_own_port() -> None:
    document = next(p.values[0] for p in DOCUMENTS if p.values[0]["kind"] == "TFJob")
    names, contents = texts(document, Loopback())
    config = next(json.loads(text) for text in contents if text.startswith("{"))
    hosts = [host for role in config["cluster"].values() for host in role]
    assert len(set(hosts)) == len(hosts) == len(names)
    assert {host.partition(":")[0] for host in hosts} == {
        f"127.0.0.{rank + 2}" for rank in range(len(names))
    }
