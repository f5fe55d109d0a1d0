"""Where the ranks of a gang reach each other: an address book, which the cluster supplies.

A kind gives every rank a name. How another rank reaches it depends on the cluster: on Kubernetes by
that name, which a headless service resolves; on one machine perhaps by a loopback address and a port
of its own. So a kind asks the book of its gang for each host and each port that it writes into an
environment or a file.
"""

from typing import NamedTuple, Protocol


class AddressBook(Protocol):
    """The addresses of the ranks of one gang."""

    def host(self, rank: int, name: str) -> str:
        """Return the host of a rank, as the other ranks of the gang reach it.

        `name` is the DNS name that the kind gives the rank, relative to the job's namespace.
        """

    def full_host(self, rank: int, name: str, namespace: str) -> str:
        """Return the host of a rank, as programs in any namespace reach it."""

    def port(self, rank: int, port: int) -> int:
        """Return the port on which a rank listens; `port` is the one that its spec names."""

    def search_domains(self, service: str, namespace: str) -> tuple[str, ...]:
        """Return the domains in which a resolver finds the bare names of ranks below a service."""


class ServiceNames(NamedTuple):
    """The book of a Kubernetes cluster: names of services and pods, and ports as the spec has them.

    `domain` is the cluster's DNS domain, such as cluster.local; empty if it is not known.
    """

    domain: str = ""

    def host(self, rank: int, name: str) -> str:
        return name

    def full_host(self, rank: int, name: str, namespace: str) -> str:
        host = f"{name}.{namespace}.svc"
        return f"{host}.{self.domain}" if self.domain else host

    def port(self, rank: int, port: int) -> int:
        return port

    def search_domains(self, service: str, namespace: str) -> tuple[str, ...]:
        return (f"{service}.{namespace}.svc.{self.domain or 'cluster.local'}",)
