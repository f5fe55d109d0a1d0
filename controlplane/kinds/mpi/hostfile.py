"""Host files, and the variables of MPI launchers.

The hosts follow from the number of replicas, so a host file can be written before any rank runs.
The one exception is the script `discover_hosts.sh`, which elastic Horovod polls: it prints the hosts
that run now.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

# The directory of root's SSH keys.
SSH_PATH = "/root/.ssh"
CONFIG_PATH = "/etc/mpi"
HOSTFILE = "hostfile"
DISCOVER_HOSTS = "discover_hosts.sh"
# ssh retries, because a host may still be starting.
PATIENT = "-o ConnectionAttempts=10"
READABLE, RUNNABLE = 0o444, 0o555


class Dialect(NamedTuple):
    """The host file format and the launcher variables of one MPI implementation."""

    # A line of the host file, with the placeholders {host} and {slots}.
    line: str
    # Variables of a launcher that reaches its hosts by ssh, and of one that uses another program.
    over_ssh: Mapping[str, str]
    by_agent: Mapping[str, str]
    # The variable for the number of slots of a host; empty if there is none.
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
    # For launchers without slots: the host's name is repeated once for each slot.
    "Plain": Dialect("{host}", over_ssh={}, by_agent={}),
}
IMPLEMENTATIONS = ("OpenMPI", "Intel", "MPICH")


def hostfile(implementation: str, hosts: Iterable[str], slots: int) -> str:
    dialect = DIALECTS[implementation]
    times = slots if "{slots}" not in dialect.line else 1
    lines = (f"{dialect.line.format(host=host, slots=slots)}\n" * times for host in hosts)
    return "".join(lines)


def over_ssh(implementation: str, path: str, slots: int) -> dict[str, str]:
    """Return the variables of a launcher that logs in to its hosts by ssh."""
    dialect = DIALECTS[implementation]
    env = {name: value.format(hostfile=path) for name, value in dialect.over_ssh.items()}
    return {**env, dialect.slots: str(slots)} if dialect.slots else env


def by_agent(implementation: str, path: str, agent: str) -> dict[str, str]:
    """Return the variables of a launcher that reaches its hosts with the program `agent`."""
    dialect = DIALECTS[implementation]
    return {
        name: value.format(hostfile=path, agent=agent) for name, value in dialect.by_agent.items()
    }


def discover_hosts(hosts: Iterable[str]) -> str:
    """Return a script that prints the hosts that run now; elastic Horovod calls it."""
    return "".join(["#!/bin/sh\n", *(f"echo {host}\n" for host in hosts)])
