"""Who takes part, as MPI and its relatives read it: lists of hosts, and what mpirun is told.

Which hosts there are follows from the number of replicas, so a list can be written before any of
them runs. The one exception is a script that elastic Horovod asks again and again: it names those
that run now.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

# Where root's ssh looks for its keys.
SSH_PATH = "/root/.ssh"
CONFIG_PATH = "/etc/mpi"
HOSTFILE = "hostfile"
DISCOVER_HOSTS = "discover_hosts.sh"
# ssh tries this often to reach a host that is only starting.
PATIENT = "-o ConnectionAttempts=10"
READABLE, RUNNABLE = 0o444, 0o555


class Dialect(NamedTuple):
    """How one implementation of MPI wants to be told."""

    # A line of the list of hosts, of {host} and {slots}.
    line: str
    # Variables of the launcher that reaches its hosts by ssh, and with a program of its own.
    over_ssh: Mapping[str, str]
    by_agent: Mapping[str, str]
    # The variable that has the number of slots of a host.
    slots: str = ""


# {hostfile} and {agent} are paths.
DIALECTS = {
    "OpenMPI": Dialect(
        "{host} slots={slots}",
        over_ssh={
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
            "OMPI_MCA_orte_default_hostfile": "{hostfile}",
            "OMPI_MCA_plm_rsh_args": PATIENT,
        },
        by_agent={
            "OMPI_MCA_plm_rsh_agent": "{agent}",
            "OMPI_MCA_orte_default_hostfile": "{hostfile}",
        },
        slots="OMPI_MCA_orte_set_default_slots",
    ),
    "Intel": Dialect(
        "{host}:{slots}",
        over_ssh={
            "I_MPI_HYDRA_HOST_FILE": "{hostfile}",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": PATIENT,
        },
        by_agent={
            "I_MPI_HYDRA_BOOTSTRAP_EXEC": "{agent}",
            "I_MPI_HYDRA_HOST_FILE": "{hostfile}",
        },
        slots="I_MPI_PERHOST",
    ),
    "MPICH": Dialect(
        "{host}:{slots}",
        over_ssh={"HYDRA_HOST_FILE": "{hostfile}", "HYDRA_LAUNCH_EXTRA_ARGS": PATIENT},
        by_agent={"HYDRA_LAUNCHER_EXEC": "{agent}", "HYDRA_HOST_FILE": "{hostfile}"},
    ),
    # For launchers that have no such notion: a host's name, as often as it has slots.
    "Plain": Dialect("{host}", over_ssh={}, by_agent={}),
}
IMPLEMENTATIONS = ("OpenMPI", "Intel", "MPICH")


def hostfile(implementation: str, hosts: Iterable[str], slots: int) -> str:
    dialect = DIALECTS[implementation]
    times = slots if "{slots}" not in dialect.line else 1
    lines = (f"{dialect.line.format(host=host, slots=slots)}\n" * times for host in hosts)
    return "".join(lines)


def over_ssh(implementation: str, path: str, slots: int) -> dict[str, str]:
    """What a launcher is told that logs in to its hosts."""
    dialect = DIALECTS[implementation]
    env = {name: value.format(hostfile=path) for name, value in dialect.over_ssh.items()}
    return {**env, dialect.slots: str(slots)} if dialect.slots else env


def by_agent(implementation: str, path: str, agent: str) -> dict[str, str]:
    """What a launcher is told that reaches its hosts with a program of ours."""
    dialect = DIALECTS[implementation]
    return {
        name: value.format(hostfile=path, agent=agent) for name, value in dialect.by_agent.items()
    }


def discover_hosts(hosts: Iterable[str]) -> str:
    """A script that prints the hosts which run now; elastic Horovod calls it."""
    return "".join(["#!/bin/sh\n", *(f"echo {host}\n" for host in hosts)])
